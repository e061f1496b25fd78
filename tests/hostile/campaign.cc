#include "tests/hostile/campaign.h"

#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <random>
#include <utility>

#include "core/codegen/arithmetic_verifier.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/emulator/emulator.h"
#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/optimize/ranking.h"
#include "core/verify/hostile.h"
#include "core/verify/sampled_runs.h"
#include "tests/support/hostile_graph.h"

namespace quern {

using namespace emulated;

namespace {

constexpr unsigned kSecondsPerGraph = 120;  // before it counts as a hang
constexpr int kSmallMachine = 2;            // SMs
constexpr const char* kRandom = "random";

// A reason without the numbers and names that make it another one for every graph.
std::string kind_of(const std::string& reason) {
  std::string kind = reason.substr(0, reason.find('\n'));
  std::replace_if(
      kind.begin(), kind.end(), [](unsigned char c) { return std::isdigit(c); }, '#');
  kind.erase(std::unique(kind.begin(), kind.end(), [](char a, char b) { return a == '#' && b == '#'; }),
             kind.end());
  return kind.substr(0, 90);
}

// Counts the milliseconds of processor time of this thread, and of the children it has waited for, until it
// goes out of scope.
class Stopwatch {
 public:
  Stopwatch(Report& report, const char* what) : report_(report), what_(what) {}
  ~Stopwatch() { report_.count(what_, static_cast<uint64_t>(1000 * (now() - start_))); }

 private:
  static double now() {
    double seconds = 0;
    for (int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage used;
      getrusage(who, &used);
      seconds +=
          static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec);
    }
    return seconds;
  }
  Report& report_;
  const char* what_;
  double start_ = now();
};

// A graph on inputs of one class: what it should compute.
struct Trial {
  std::string name;  // of the class
  std::vector<std::string> buffers;
  ExpectedOutputs expected;
};

Trial make_trial(const Graph& graph, const std::string& name, uint64_t seed) {
  const std::vector<TensorDesc> descs = graph.input_descs();
  std::vector<std::string> buffers;
  if (name == kRandom)
    for (size_t i = 0; i < descs.size(); ++i) buffers.push_back(random_buffer(descs[i], seed * 1000 + i));
  else
    buffers = hostile_inputs(graph, *find_hostile_class(name), seed);
  std::vector<RealTensor> inputs;
  for (size_t i = 0; i < descs.size(); ++i) inputs.push_back(read_buffer(descs[i], buffers[i].data()));
  return {name, std::move(buffers), ExpectedOutputs(graph, std::move(inputs), false)};
}

// What a search or the baseline made of a graph.
struct Contender {
  std::string target, mugraph, schedule;  // without a muGraph: the baseline
  Plan plan;
  ProgramSource source;
};

struct Subject {
  std::string label;
  Graph graph;
  uint64_t seed;
  std::vector<std::string> classes;
  std::vector<Contender> contenders;
};

class Attack {
 public:
  Attack(const CampaignOptions& options, Report& report) : options_(options), report_(report) {}

  void add_graph(const std::string& label, Graph graph, uint64_t seed, std::vector<std::string> classes) {
    report_.count("graphs");
    subjects_.push_back({label, std::move(graph), seed, std::move(classes), {}});
    Subject& subject = subjects_.back();
    for (const std::string& target : options_.targets) {
      report_.doing(text_of(subject, {target, "", "", {}, {}}, "", "in the baseline, search or emitter"));
      if (options_.baseline) add_baseline(subject, target);
      add_searched(subject, target);
    }
  }

  // Of a case that says what muGraph and schedule. What is refused cannot be wrong.
  void add_program(const HostileCase& test, Graph graph) {
    subjects_.push_back(
        {test.comment.substr(0, test.comment.find('\n')), std::move(graph), test.seed, classes_of(test), {}});
    report_.doing(print_case(test));
    auto mugraph = parse_mugraph(test.mugraph);
    auto schedule = parse_schedule(test.schedule);
    if (!mugraph || !schedule) {
      report_.find("case",
                   (!mugraph ? mugraph.status() : schedule.status()).message() + "\n" + print_case(test));
      return;
    }
    add_emitted(subjects_.back(), test.target, *mugraph, *schedule);
  }

  static std::vector<std::string> classes_of(const HostileCase& test) {
    return test.input_class.empty() ? input_classes() : std::vector<std::string>{test.input_class};
  }

  void run() {
    std::vector<ProgramSource> sources;
    for (const Subject& subject : subjects_)
      for (const Contender& contender : subject.contenders) sources.push_back(contender.source);
    report_.doing("the compilation for the emulator");
    auto programs = compile(sources);
    size_t next = 0;
    for (const Subject& subject : subjects_) {
      std::deque<Trial> trials;
      for (const Contender& contender : subject.contenders) {
        Result<Program> program =
            programs ? Result<Program>((*programs)[next]) : compile_program(sources[next]);
        ++next;
        if (program)
          attack(subject, contender, *program, trials);
        else
          report_.find("compile", text_of(subject, contender, "", program.status().message()));
      }
    }
  }

 private:
  Result<std::vector<Program>> compile(const std::vector<ProgramSource>& sources) {
    const Stopwatch watch(report_, "ms of compilation");
    return compile_programs(sources, options_.compilers);
  }

  static std::string text_of(const Subject& subject, const Contender& contender,
                             const std::string& input_class, const std::string& what) {
    return print_case({subject.label + (contender.mugraph.empty() ? ", baseline: " : ": ") + what,
                       contender.target, input_class, subject.seed, print_graph(subject.graph),
                       contender.mugraph, contender.schedule});
  }

  void add_baseline(Subject& subject, const std::string& target) {
    auto emitted = emit_baseline(subject.graph, **find_target(target));
    if (emitted)
      add(subject, {target, "", "", std::move(emitted->plan), {std::move(emitted->kernels), {}}});
    else
      report_.find("baseline", text_of(subject, {target, "", "", {}, {}}, "", emitted.status().message()));
  }

  // The model of the whole machine would give each element of such small graphs a block of its own. On one
  // with as few SMs as the graph is small, tiles and loops are those of large graphs.
  static Target small_machine(const std::string& name) {
    Target target = **find_target(name);
    target.sms = kSmallMachine;
    return target;
  }

  void add_searched(Subject& subject, const std::string& name) {
    const Target target = small_machine(name);
    const Stopwatch watch(report_, "ms of search, ranking and emission");
    SearchOptions how;
    how.limit = options_.search_limit;
    how.threads = 1;
    how.time_of = SubgraphModel(target);
    auto found = search(subject.graph, target, how);
    check(found.ok(), "the search refuses its options");
    for (const PieceReport& piece : found->report.pieces)
      for (const std::string& failure : piece.failures)
        report_.find("search", text_of(subject, {name, "", "", {}, {}}, "", failure));
    std::vector<Implementation> ranked =
        rank_implementations(subject.graph, found->candidates, target, {}, 64);
    ArithmeticVerifier verifier(subject.graph);
    size_t taken = take(subject, name, found->candidates, ranked, options_.best, verifier);
    if (taken == 0) report_.count("graphs without a searched program, " + name);
    std::mt19937_64 random(subject.seed);
    std::shuffle(ranked.begin(), ranked.end(), random);
    std::stable_partition(ranked.begin(), ranked.end(), uses_copy_engine);
    take(subject, name, found->candidates, ranked, options_.others, verifier);
  }

  // The data paths of sm_90, which such small graphs seldom rank first.
  static bool uses_copy_engine(const Implementation& each) {
    return std::any_of(each.schedule.kernels.begin(), each.schedule.kernels.end(),
                       [](const KernelSchedule& kernel) { return kernel.wgmma || kernel.tma; });
  }

  // The first `most` that pass the second verdict and can be emitted, as when a plan is published.
  size_t take(Subject& subject, const std::string& target, const std::vector<Candidate>& candidates,
              const std::vector<Implementation>& order, size_t most, ArithmeticVerifier& verifier) {
    size_t taken = 0;
    for (const Implementation& each : order) {
      if (taken == most) break;
      // As the text has it, so that a finding gives the same program again.
      auto mugraph = parse_mugraph(print_mugraph(candidates[each.candidate].mugraph));
      check(mugraph.ok(), "the text of a muGraph that was found is none");
      const ArithmeticVerdict verdict = verifier.judge(*mugraph, each.schedule);
      if (verdict.verdict == Verdict::accepted)
        taken += add_emitted(subject, target, *mugraph, each.schedule);
      else
        report_.count(std::string("refused: ") + verdict_name(verdict.verdict) + " by the second verdict" +
                      (verdict.largest_class.empty() ? ": " + kind_of(verdict.reason)
                                                     : " on " + verdict.largest_class));
    }
    return taken;
  }

  bool add_emitted(Subject& subject, const std::string& target, const MuGraph& mugraph,
                   const Schedule& schedule) {
    Contender contender{target, print_mugraph(mugraph), print_schedule(schedule), {}, {}};
    report_.doing(text_of(subject, contender, "", "in the emitter"));
    auto emitted = emit_mugraph(subject.graph, mugraph, schedule, **find_target(target));
    if (!emitted) {
      report_.count("refused: " + kind_of(emitted.status().message()));
      return false;
    }
    contender.plan = std::move(emitted->plan);
    contender.source.text = std::move(emitted->kernels);
    add(subject, std::move(contender));
    return true;
  }

  // What the programs that were attacked made use of, so that a campaign shows what it did not reach.
  void count_means(const Contender& contender) {
    static const std::pair<const char*, const char*> kMeans[] = {{"wgmma=1", "wgmma"},
                                                                 {"tma=1", "TMA"},
                                                                 {"producer=1", "a producer warp"},
                                                                 {"pdl=1", "PDL"},
                                                                 {"accumulate_", "a loop"},
                                                                 {"accumulate_rescaled", "a rescaled sum"},
                                                                 {"cluster=", "clusters"},
                                                                 {"mma_", "mma"}};
    for (const auto& [text, name] : kMeans)
      if (contender.mugraph.find(text) != std::string::npos ||
          contender.schedule.find(text) != std::string::npos ||
          contender.source.text.find(text) != std::string::npos)
        report_.count(std::string("programs with ") + name);
  }

  // Programs of two targets that are the same are run once.
  void add(Subject& subject, Contender contender) {
    report_.count("programs");
    count_means(contender);
    for (const Contender& other : subject.contenders)
      if (other.source.text == contender.source.text && other.plan.launches == contender.plan.launches &&
          other.plan.tensor_maps == contender.plan.tensor_maps)
        return;
    report_.count("different programs");
    contender.source = make_source(std::move(contender.source.text), contender.plan);
    subject.contenders.push_back(std::move(contender));
  }

  void attack(const Subject& subject, const Contender& contender, Program& program,
              std::deque<Trial>& trials) {
    std::string failed, what;  // the first class, and what is wrong on all of them
    for (size_t i = 0; i < subject.classes.size(); ++i) {
      const std::string& name = subject.classes[i];
      report_.doing(text_of(subject, contender, name, "in the emulator or the reference"));
      if (i == trials.size()) {
        const Stopwatch watch(report_, "ms of references");
        trials.push_back(make_trial(subject.graph, name, subject.seed));
      }
      const std::string wrong = judge(subject, contender, program, trials[i]);
      if (wrong.empty()) continue;
      if (failed.empty()) failed = name;
      what += (what.empty() ? "" : "\n") + name + ": " + wrong;
    }
    if (!failed.empty())
      report_.find(rule_broken_ ? "rule" : "wrong", text_of(subject, contender, failed, what));
    rule_broken_ = false;
  }

  // Empty if it is right.
  std::string judge(const Subject& subject, const Contender& contender, Program& program, Trial& trial) {
    const Stopwatch watch(report_, "ms in the emulator");
    report_.count("runs on " + trial.name);
    const std::vector<std::string_view> views(trial.buffers.begin(), trial.buffers.end());
    const auto outputs = run_plan(program, contender.plan, views, {.seed = subject.seed});
    if (!outputs) {
      rule_broken_ = true;
      return outputs.status().message();
    }
    for (size_t i = 0; i < outputs->size(); ++i) {
      const TensorDesc& desc = contender.plan.outputs[i];
      const Comparison result = trial.expected.compare(i, desc, read_buffer(desc, (*outputs)[i].data()));
      if (result.acceptable) continue;
      report_.count("wrong on " + trial.name);
      return desc.name + " " + result.what + "; error " + std::to_string(result.error) + " above " +
             std::to_string(result.bound);
    }
    return "";
  }

  const CampaignOptions& options_;
  Report& report_;
  std::deque<Subject> subjects_;
  bool rule_broken_ = false;
};

void add_case(const HostileCase& test, Attack& attack, Report& report) {
  const std::string label = test.comment.substr(0, test.comment.find('\n'));
  auto graph = parse_graph(test.graph);
  if (!graph)
    report.find("case", graph.status().message() + "\n" + print_case(test));
  else if (test.mugraph.empty())
    attack.add_graph(label, std::move(*graph), test.seed, Attack::classes_of(test));
  else
    attack.add_program(test, std::move(*graph));
}

}  // namespace

std::vector<std::string> input_classes() {
  std::vector<std::string> names = {kRandom};
  for (const HostileClass& each : hostile_classes()) names.push_back(each.name);
  return names;
}

Tally attack_graphs(uint64_t first, size_t count, const CampaignOptions& options) {
  return run_in_batches(count, options.batch, kSecondsPerGraph,
                        [&](size_t begin, size_t many, Report& report) {
                          Attack attack(options, report);
                          for (uint64_t seed = first + begin; seed < first + begin + many; ++seed)
                            attack.add_graph("hostile graph " + std::to_string(seed), hostile_graph(seed),
                                             seed, input_classes());
                          attack.run();
                        });
}

Tally attack_cases(const std::vector<HostileCase>& cases, const CampaignOptions& options) {
  return run_in_batches(cases.size(), options.batch, kSecondsPerGraph,
                        [&](size_t begin, size_t many, Report& report) {
                          Attack attack(options, report);
                          for (size_t i = begin; i < begin + many; ++i) add_case(cases[i], attack, report);
                          attack.run();
                        });
}

}  // namespace quern
