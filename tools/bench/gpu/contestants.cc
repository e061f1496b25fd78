#include "tools/bench/gpu/contestants.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/optimize/registers.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"
#include "core/verify/rounded_values.h"
#include "tools/bench/gpu/need.h"

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

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) stop(Status(ErrorCode::NOT_FOUND, path + " cannot be read"));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Subject> make_subjects(const SubjectOptions& options, const Target& target) {
  const Graph graph = need(parse_graph(read_file(options.graph)));
  std::vector<Subject> out;
  for (const std::string& file : options.mugraphs)
    out.push_back({file.substr(file.rfind('/') + 1), graph, need(parse_mugraph(read_file(file)))});
  if (options.search > 0) {
    SearchOptions how;
    how.results = std::max(how.results, options.search);
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
    const double begin = milliseconds();
    auto emitted = emit_mugraph(subject.graph, subject.mugraph, schedule, target);
    if (!emitted) {
      ++refused[emitted.status().message()];
      continue;
    }
    Contestant contestant;
    contestant.emit_ms = milliseconds() - begin;
    contestant.label = subject.label;
    contestant.schedule = schedule;
    contestant.searched_us = subject.us;
    contestant.modelled_us = need(model.us(schedule));
    contestant.source = std::move(emitted->source);
    contestant.plan = std::move(emitted->plan);
    contestant.blocks = std::move(emitted->blocks);
    out.push_back(std::move(contestant));
    ++of_kind;
  }
  std::printf(", %zu taken\n", out.size());
  for (const auto& [reason, times] : refused) std::printf("  refused %d times: %s\n", times, reason.c_str());
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
