#include "tools/bench/gpu/contestants.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/codegen/baseline.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/mugraph/text.h"
#include "core/optimize/optimize.h"
#include "core/optimize/program_model.h"
#include "core/optimize/ranking.h"
#include "core/optimize/registers.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"
#include "core/verify/rounded_values.h"
#include "tools/bench/need.h"

namespace quern {

namespace {

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// "64 registers, 128 bytes on the stack": of every kernel, from the log of ptxas.
std::string resources_of(const std::string& log) {
  std::string out;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (const size_t frame = line.find(" bytes stack frame"); frame != std::string::npos)
      out += line.substr(line.find_first_not_of(" "), frame - line.find_first_not_of(" ")) +
             " bytes on the stack, ";
    if (const size_t used = line.find("Used "); used != std::string::npos)
      out += line.substr(used + 5, line.find(" registers") - used - 5) + " registers; ";
  }
  return out;
}

void save(const Subject& subject, const std::string& path) {
  std::ofstream to(path);
  to << print_mugraph(subject.mugraph);
  if (!to.flush()) stop(Status(ErrorCode::IO, path + " cannot be written"));
}

std::string stem(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return file.substr(0, file.rfind('.'));
}

// What save() wrote has the label that it had.
std::string label_of(const std::string& file, const std::string& graph) {
  const std::string name = stem(file), prefix = stem(graph) + "-";
  return name.rfind(prefix, 0) == 0 ? "search " + name.substr(prefix.size())
                                    : file.substr(file.rfind('/') + 1);
}

Contestant contestant_of(const Subject& subject, const Schedule& schedule, EmittedMuGraph emitted,
                         double us) {
  Contestant out;
  out.label = subject.label;
  out.schedule = schedule;
  out.searched_us = subject.us;
  out.modelled_us = us;
  out.source = std::move(emitted.source);
  out.plan = std::move(emitted.plan);
  out.blocks = std::move(emitted.blocks);
  return out;
}

constexpr double kHopeless = 3;  // times the best, by the model

// Emits those of a ranked list that are asked for, no text twice.
class Pick {
 public:
  Pick(const std::vector<Subject>& subjects, const Target& target, bool tf32)
      : subjects_(subjects), target_(target) {
    std::vector<Candidate> candidates;
    for (const Subject& subject : subjects) candidates.emplace_back().mugraph = subject.mugraph;
    ranked_ =
        rank_implementations(subjects[0].graph, candidates, target, {}, OptimizeOptions().schedules, tf32);
    tried_.resize(ranked_.size());
  }

  void take_best(size_t most) {
    for (size_t rank = 0; rank < ranked_.size() && out_.size() < most; ++rank) take(rank);
  }

  // The best of each muGraph that has none yet.
  void take_others(size_t most) {
    most += out_.size();
    for (size_t rank = 0; rank < ranked_.size() && out_.size() < most; ++rank)
      if (!seen_.contains(ranked_[rank].candidate)) take(rank);
  }

  // Ranks that grow by one factor, down to what nobody would take.
  void take_far(size_t count) {
    if (ranked_.empty()) return;
    const auto end = std::find_if(ranked_.begin(), ranked_.end(), [&](const Implementation& each) {
      return each.us > kHopeless * ranked_[0].us;
    });
    const double first = static_cast<double>(out_.size() + 1),
                 all = static_cast<double>(end - ranked_.begin());
    for (size_t i = 1; i <= count; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(count);
      size_t rank = static_cast<size_t>(first * std::pow(std::max(1.0, all / first), share)) - 1;
      while (rank > 0 && (rank >= ranked_.size() || !take(rank))) --rank;
    }
  }

  std::vector<Contestant> taken() && { return std::move(out_); }

 private:
  bool take(size_t rank) {
    if (tried_[rank]) return false;
    tried_[rank] = true;
    const Implementation& from = ranked_[rank];
    const Subject& subject = subjects_[from.candidate];
    auto emitted = emit_mugraph(subject.graph, subject.mugraph, from.schedule, target_);
    if (!emitted || !sources_.insert(emitted->source).second) return false;
    seen_.insert(from.candidate);
    out_.push_back(contestant_of(subject, from.schedule, std::move(*emitted), from.us));
    return true;
  }

  const std::vector<Subject>& subjects_;
  const Target& target_;
  std::vector<Implementation> ranked_;
  std::vector<bool> tried_;
  std::set<size_t> seen_;  // candidates
  std::set<std::string> sources_;
  std::vector<Contestant> out_;
};

}  // namespace

std::vector<Subject> make_subjects(const SubjectOptions& options, const Target& target) {
  const Graph graph = need(parse_graph(read_file(options.graph)));
  std::vector<Subject> out;
  for (const std::string& file : options.mugraphs)
    out.push_back({label_of(file, options.graph), graph, need(parse_mugraph(read_file(file)))});
  if (options.search > 0) {
    SearchOptions how;
    how.results = std::max(how.results, options.search);
    how.time_of = SubgraphModel(target);
    const SearchResult result = need(search(graph, target, how));
    std::printf("search: %zu candidates in %.1f s\n", result.candidates.size(), result.report.seconds);
    for (size_t i = 0; i < std::min(options.search, result.candidates.size()); ++i) {
      const Candidate& candidate = result.candidates[i];
      out.push_back({"search " + std::to_string(i), graph, candidate.mugraph, candidate.us});
      if (!options.save.empty())
        save(out.back(), options.save + "/" + stem(options.graph) + "-" + std::to_string(i) + ".qmu");
    }
  }
  if (options.small)
    for (Subject& subject : out) {
      Instance instance = need(shrink(subject.mugraph, subject.graph));
      subject.graph = std::move(instance.graph);
      subject.mugraph = std::move(instance.mugraph);
    }
  for (Subject& subject : out) note_rounded_values(subject.graph, subject.mugraph);
  return out;
}

bool computes_in_tf32(const Schedule& schedule) {
  return std::any_of(schedule.kernels.begin(), schedule.kernels.end(),
                     [](const KernelSchedule& kernel) { return kernel.tf32; });
}

std::vector<Contestant> emit_contestants(const Subject& subject, size_t top, const Schedule* only,
                                         const Target& target, bool tf32) {
  std::vector<Contestant> out;
  const double start = milliseconds();
  const std::vector<Schedule> schedules =
      only ? std::vector<Schedule>{*only} : enumerate_schedules(subject.mugraph, target, tf32);
  std::printf("%s: %zu schedules in %.0f ms", subject.label.c_str(), schedules.size(),
              milliseconds() - start);
  const ProgramModel model = need(ProgramModel::make(subject.graph, subject.mugraph, target));
  std::map<std::string, int> refused;
  std::array<size_t, 2> taken = {0, 0};  // exact, in tf32
  for (const Schedule& schedule : schedules) {
    size_t& of_kind = taken[computes_in_tf32(schedule)];
    if (of_kind == top) continue;
    auto emitted = emit_mugraph(subject.graph, subject.mugraph, schedule, target);
    if (!emitted) {
      ++refused[emitted.status().message()];
      continue;
    }
    out.push_back(contestant_of(subject, schedule, std::move(*emitted), need(model.us(schedule))));
    ++of_kind;
  }
  std::printf(", %zu taken\n", out.size());
  for (const auto& [reason, times] : refused) std::printf("  refused %d times: %s\n", times, reason.c_str());
  return out;
}

std::vector<Contestant> emit_ranked(const std::vector<Subject>& subjects, size_t best, size_t spread,
                                    const Target& target, bool tf32) {
  Pick pick(subjects, target, tf32);
  pick.take_best(best);
  pick.take_others(spread / 2);
  pick.take_far(spread - spread / 2);
  return std::move(pick).taken();
}

std::vector<Contestant> emit_listed(const std::vector<Subject>& subjects, const std::vector<Listed>& programs,
                                    const Target& target) {
  std::vector<Contestant> out;
  for (const Listed& each : programs) {
    const auto subject = std::find_if(subjects.begin(), subjects.end(),
                                      [&](const Subject& of) { return of.label == each.label; });
    if (subject == subjects.end())
      stop(Status(ErrorCode::NOT_FOUND, "a program is of " + each.label + ", which is not given"));
    const ProgramModel model = need(ProgramModel::make(subject->graph, subject->mugraph, target));
    auto emitted = need(emit_mugraph(subject->graph, subject->mugraph, each.schedule, target));
    out.push_back(contestant_of(*subject, each.schedule, std::move(emitted), need(model.us(each.schedule))));
  }
  return out;
}

Contestant emit_baseline_contestant(const Graph& graph, const Target& target) {
  Emitted emitted = need(emit_baseline(graph, target));
  Contestant out;
  out.label = kBaselineLabel;
  out.modelled_us = modelled_launches(need(baseline_work(graph, target)), target);
  out.source = std::move(emitted.source);
  out.plan = std::move(emitted.plan);
  return out;
}

void compile_contestants(std::vector<Contestant>& contestants, Compiler& compiler, const Target& target,
                         unsigned jobs) {
  std::atomic<size_t> next = 0, refused = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < contestants.size();) {
      Contestant& contestant = contestants[i];
      const double begin = milliseconds();
      auto compiled = compiler.compile({contestant.source, target.name, {"--ptxas-options=-v"}});
      if (!compiled)
        stop(compiled.status().with_context(contestant.label + ", " + print_schedule(contestant.schedule)));
      contestant.compile_ms = milliseconds() - begin;
      contestant.resources = resources_of(compiled->log);
      if (spilling_warpgroups(contestant.schedule, contestant.blocks, compiled->log).empty())
        contestant.plan.cubin = std::move(compiled->cubin);
      else
        ++refused;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < jobs; ++i) threads.emplace_back(work);
    work();
  }
  if (refused > 0)
    std::printf("%zu of %zu refused: wgmma in a kernel with values on the stack\n", refused.load(),
                contestants.size());
}

}  // namespace quern
