// muGraphs and their schedules against each other on a GPU.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/statistics.h"
#include "core/jit/driver.h"
#include "core/profile/device_bench.h"
#include "core/profile/reference_program.h"
#include "tools/bench/gpu/contestants.h"
#include "tools/bench/need.h"

namespace {

using namespace quern;

constexpr const char* kUsage =
    R"(usage: mugraph_bench [OPTIONS] GRAPH.qg [MUGRAPH.qmu...]

Takes the best-ranked schedules of every muGraph, compiles them with NVRTC, checks all elements against the f64
reference on random inputs and on those of every hostile class (core/verify/hostile.h), and times them interleaved, in CUDA graphs, with inputs that are in the L2 cache and with inputs that rotate
over more than four times of it, beside what the models of schedules and of the search predicted.

  --search N          the N best candidates of the search for the graph too
  --save DIR          and write these there as .qmu files
  --top M             so many schedules of every muGraph (12)
  --tf32              and as many again that compute f32 products in tf32
  --schedule FILE     this schedule instead
  --best N            of all of them, the N that the optimizer would try first
  --spread N          and N others: the best of other muGraphs, and some from further down its list
  --programs FILE     instead, the programs of this graph in FILE, as --json writes it
  --baseline          the baseline's program too
  --target NAME       sm_90a
  --jobs N            compile so many at a time (1)
  --emit              stop before NVRTC
  --compile           stop after NVRTC; needs no GPU
  --check             do not time
  --unchecked         do not check
  --rounds N          time each of those that are not far behind so often (15)
  --small             instances of a few elements, as the verifier takes them; checked and not timed
  --text              print the text of the best schedule's kernels
  --json FILE         add the results to FILE, by the graph's name; after --emit and --compile without times
)";

struct Options {
  SubjectOptions subjects;
  size_t top = 12, best = 0, spread = 0;
  unsigned jobs = 1;
  int rounds = 15;
  std::string target = "sm_90a", schedule, json, programs;
  bool emit_only = false, compile_only = false, check_only = false, unchecked = false, text = false,
       tf32 = false, baseline = false;
};

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> files;
  auto number = [](const char* text) { return static_cast<size_t>(std::max(1, std::atoi(text))); };
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const struct {
      const char* name;
      bool* flag;
    } flags[] = {{"--emit", &options.emit_only},      {"--compile", &options.compile_only},
                 {"--check", &options.check_only},    {"--small", &options.subjects.small},
                 {"--text", &options.text},           {"--tf32", &options.tf32},
                 {"--unchecked", &options.unchecked}, {"--baseline", &options.baseline}};
    const auto* flag = std::find_if(std::begin(flags), std::end(flags),
                                    [&](const auto& each) { return argument == each.name; });
    if (flag != std::end(flags)) {
      *flag->flag = true;
      continue;
    }
    if (argument.rfind("--", 0) != 0) {
      files.push_back(argument);
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (!value) stop(Status(ErrorCode::INVALID_ARGUMENT, argument + " wants a value\n" + kUsage));
    if (argument == "--top")
      options.top = number(value);
    else if (argument == "--best")
      options.best = number(value);
    else if (argument == "--spread")
      options.spread = number(value);
    else if (argument == "--rounds")
      options.rounds = static_cast<int>(number(value));
    else if (argument == "--programs")
      options.programs = value;
    else if (argument == "--jobs")
      options.jobs = static_cast<unsigned>(number(value));
    else if (argument == "--search")
      options.subjects.search = number(value);
    else if (argument == "--save")
      options.subjects.save = value;
    else if (argument == "--target")
      options.target = value;
    else if (argument == "--schedule")
      options.schedule = value;
    else if (argument == "--json")
      options.json = value;
    else
      stop(Status(ErrorCode::INVALID_ARGUMENT, "no option " + argument + " " + value + "\n" + kUsage));
  }
  if (files.empty() || (files.size() < 2 && options.subjects.search == 0))
    stop(Status(ErrorCode::INVALID_ARGUMENT,
                std::string("wanted: a graph, and at least one muGraph or --search\n") + kUsage));
  options.subjects.graph = files[0];
  options.subjects.mugraphs.assign(files.begin() + 1, files.end());
  return options;
}

std::string one_line(const Schedule& schedule) {
  std::string text = print_schedule(schedule);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

void print_table(const std::vector<Contestant>& contestants, bool checked) {
  std::printf("%8s %8s %9s %9s %9s %8s %6s  %s\n", "cold us", "hot us", "schedule", "search", "error",
              "nvrtc ms", "right", "muGraph and schedule");
  for (const Contestant& each : contestants) {
    std::printf("%8.2f %8.2f %9.2f %9.2f %9.2e %8.0f %6s  %s: %s %s\n", median(each.cold), median(each.hot),
                each.modelled_us, each.searched_us, each.error, each.compile_ms,
                !checked             ? "?"
                : each.wrong.empty() ? "yes"
                                     : "NO",
                each.label.c_str(), one_line(each.schedule).c_str(), each.resources.c_str());
    if (!each.wrong.empty()) std::printf("         %s\n", each.wrong.c_str());
  }
}

// The programs of a graph that add_to_json() wrote, without the baseline's.
std::vector<Listed> listed_programs(const std::string& path, const std::string& graph) {
  std::vector<Listed> out;
  const nlohmann::json all = nlohmann::json::parse(read_file(path));
  for (const nlohmann::json& row : all.at(graph).at("candidates")) {
    if (row.at("mugraph") == kBaselineLabel) continue;
    std::string schedule = row.at("schedule");
    std::replace(schedule.begin(), schedule.end(), ';', '\n');
    out.push_back({row.at("mugraph"), need(parse_schedule(schedule))});
  }
  return out;
}

// {graph: {input_bytes, candidates: [...]}}; graphs that are in the file already stay.
void add_to_json(const std::string& path, const std::string& graph, size_t input_bytes,
                 const std::vector<Contestant>& contestants) {
  nlohmann::json all = nlohmann::json::object();
  if (std::ifstream in(path); in) all = nlohmann::json::parse(in);
  nlohmann::json rows = nlohmann::json::array();
  for (const Contestant& each : contestants)
    rows.push_back({{"mugraph", each.label},
                    {"schedule", one_line(each.schedule)},
                    {"cold_us", median(each.cold)},
                    {"hot_us", median(each.hot)},
                    {"modelled_us", each.modelled_us},
                    {"searched_us", each.searched_us},
                    {"error", each.error},
                    {"compile_ms", each.compile_ms},
                    {"right", each.wrong.empty()},
                    {"resources", each.resources}});
  all[graph] = {{"input_bytes", input_bytes}, {"candidates", std::move(rows)}};
  std::ofstream out(path);
  out << all.dump(1) << "\n";
  if (!out.flush()) stop(Status(ErrorCode::IO, path + " cannot be written"));
}

constexpr int kFirstRounds = 2;
constexpr double kFarBehind = 3;  // after the first rounds it need not be known better

// Fills in their errors and, with `timed`, the times of those that are right.
void run_contestants(const Graph& graph, std::vector<Contestant>& contestants, Compiler& compiler,
                     const Target& target, const Options& options) {
  const bool timed = !options.check_only && !options.subjects.small;
  DeviceBenchOptions how;
  how.tf32 = options.tf32;
  how.threads = 16;
  if (!options.unchecked)
    if (const auto reference = make_reference(graph, target, compiler))
      how.reference = encode_reference(*reference);
  const std::unique_ptr<Bench> bench = need(open_device_bench(graph, how));
  std::vector<uint32_t> ids;
  std::vector<Contestant*> right;
  for (Contestant& each : contestants) {
    const uint32_t id = need(bench->add(each.plan, computes_in_tf32(each.schedule)));
    if (!options.unchecked) {
      const Bench::Check check = need(bench->check(id));
      each.error = check.error;
      each.wrong = check.wrong;
    }
    if (!timed || !each.wrong.empty()) {
      bench->remove(id);
      continue;
    }
    ids.push_back(id);
    right.push_back(&each);
  }
  for (const int rounds : {kFirstRounds, options.rounds}) {
    if (ids.empty()) return;
    const std::vector<Bench::Time> times = need(bench->time(ids, rounds));
    double fastest = INFINITY;
    for (size_t i = 0; i < right.size(); ++i) {
      right[i]->hot = times[i].hot;
      right[i]->cold = times[i].cold;
      fastest = std::min(fastest, median(times[i].cold));
    }
    size_t kept = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      if (median(right[i]->cold) > kFarBehind * fastest) {
        bench->remove(ids[i]);
        continue;
      }
      ids[kept] = ids[i];
      right[kept++] = right[i];
    }
    ids.resize(kept);
    right.resize(kept);
  }
}

size_t input_bytes(const Graph& graph) {
  size_t bytes = 0;
  for (const TensorDesc& desc : graph.input_descs())
    bytes += static_cast<size_t>(desc.span()) * dtype_size(desc.dtype);
  return bytes;
}

// Compiles, checks and times the contestants of one graph; whether all are right.
bool compete(const Options& options, const Graph& graph, std::vector<Contestant>& contestants,
             Compiler& compiler, const Target& target) {
  std::vector<double> compile;
  if (!options.emit_only) {
    compile_contestants(contestants, compiler, target, options.jobs);
    for (const Contestant& each : contestants) compile.push_back(each.compile_ms);
    std::printf("%s, %s, NVRTC median %.0f ms, most %.0f ms\n", graph.name.c_str(), target.name,
                median(compile), *std::max_element(compile.begin(), compile.end()));
  }
  const bool runs = !options.compile_only && !options.emit_only;
  if (runs) {
    std::erase_if(contestants, [](const Contestant& each) { return each.plan.cubin.empty(); });
    run_contestants(graph, contestants, compiler, target, options);
    std::stable_sort(contestants.begin(), contestants.end(), [](const Contestant& a, const Contestant& b) {
      return median(a.cold) < median(b.cold);
    });
  }
  if (!options.json.empty())
    add_to_json(options.json, graph.name, input_bytes(graph), contestants);
  print_table(contestants, runs && !options.unchecked);
  return std::all_of(contestants.begin(), contestants.end(),
                     [](const Contestant& each) { return each.wrong.empty(); });
}

std::vector<Contestant> make_contestants(const Options& options, const std::vector<Subject>& subjects,
                                         const Schedule* only, const Target& target) {
  std::vector<Contestant> out;
  const Graph& graph = subjects[0].graph;
  if (!options.programs.empty())
    out = emit_listed(subjects, listed_programs(options.programs, graph.name), target);
  else if (options.best + options.spread > 0 && !only)
    out = emit_ranked(subjects, options.best, options.spread, target, options.tf32);
  else
    for (const Subject& subject : subjects) {
      std::vector<Contestant> own = emit_contestants(subject, options.top, only, target, options.tf32);
      std::move(own.begin(), own.end(), std::back_inserter(out));
    }
  std::stable_sort(out.begin(), out.end(),
                   [](const Contestant& a, const Contestant& b) { return a.modelled_us < b.modelled_us; });
  if (options.baseline) out.push_back(emit_baseline_contestant(graph, target));
  return out;
}

// Every instance has shapes of its own.
bool compete_small(const Options& options, const std::vector<Subject>& subjects, const Schedule* only,
                   Compiler& compiler, const Target& target) {
  bool right = true;
  for (const Subject& subject : subjects) {
    std::vector<Contestant> own = emit_contestants(subject, options.top, only, target, options.tf32);
    if (options.text && !own.empty()) std::printf("%s", own[0].source.c_str());
    if (!own.empty()) right &= compete(options, subject.graph, own, compiler, target);
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const Target& target = *need(find_target(options.target));
  const std::unique_ptr<Compiler> compiler = need(open_nvrtc(""));
  const std::vector<Subject> subjects = make_subjects(options.subjects, target);
  if (subjects.empty()) stop(Status(ErrorCode::UNSUPPORTED, "the search found no muGraph"));
  Schedule schedule;
  if (!options.schedule.empty()) schedule = need(parse_schedule(read_file(options.schedule)));
  const Schedule* only = options.schedule.empty() ? nullptr : &schedule;
  if (options.subjects.small) return compete_small(options, subjects, only, *compiler, target) ? 0 : 1;
  std::vector<Contestant> contestants = make_contestants(options, subjects, only, target);
  if (contestants.empty()) stop(Status(ErrorCode::UNSUPPORTED, "no schedule could be emitted"));
  if (options.text) std::printf("%s", contestants[0].source.c_str());
  return compete(options, subjects[0].graph, contestants, *compiler, target) ? 0 : 1;
}
