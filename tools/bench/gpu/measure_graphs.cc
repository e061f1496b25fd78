// Searches and measures any graphs on a GPU, without a daemon: what was tried, what was refused and why, and
// how the best program compares with the baseline and with the one that the model would have taken.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/base/facts.h"
#include "core/graph/text.h"
#include "core/jit/driver.h"
#include "core/optimize/optimize.h"
#include "core/profile/bench_process.h"
#include "core/profile/measure.h"
#include "tools/bench/gpu/faults.h"
#include "tools/bench/need.h"

namespace {

using namespace quern;

constexpr const char* kUsage = R"(usage: measure_graphs [OPTIONS] GRAPH.qg...
       measure_graphs --faults N [--parallel P] [--minutes M]

  --budget S      seconds of measuring, a graph (30)
  --search S      seconds of searching, a graph (10)
  --list N        programs of a graph at most (64)
  --jobs N        compilers at a time (the processors, at most 16)
  --tf32          programs may compute f32 products in tf32
  --worker PATH   quern-worker (beside this program, or ../libexec/quern/)
  --device N      the GPU (0)
  --busy          measure although others use the GPU
  --json FILE     write all timings, with the texts of their programs
  --verbose       a line for every program
  --faults N      instead: N measuring jobs with a planted fault each; none may be published
  --parallel P    so many of these at once (1)
  --minutes M     no graph of these is begun later
)";

struct Options {
  std::vector<std::string> graphs;
  double budget = 30, search = 10;
  size_t list = 64;
  unsigned jobs = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  bool tf32 = false, busy = false, verbose = false;
  std::string json;
  FaultOptions faults;
};

// Where it is installed, in a bundle and in a build.
std::string find_worker() {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::string tried;
  for (const char* place : {"quern-worker", "../libexec/quern/quern-worker", "../../daemon/quern-worker"}) {
    const std::filesystem::path path = (folder / place).lexically_normal();
    if (std::filesystem::exists(path)) return path;
    tried += " " + path.string();
  }
  stop(Status(ErrorCode::NOT_FOUND, "no quern-worker; tried" + tried + "; --worker names it"));
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) != 0) {
      options.graphs.push_back(argument);
      continue;
    }
    const std::pair<const char*, bool*> flags[] = {
        {"--tf32", &options.tf32}, {"--busy", &options.busy}, {"--verbose", &options.verbose}};
    const auto flag = std::find_if(std::begin(flags), std::end(flags),
                                   [&](const auto& each) { return argument == each.first; });
    if (flag != std::end(flags)) {
      *flag->second = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (!value) stop(Status(ErrorCode::INVALID_ARGUMENT, argument + " wants a value\n" + kUsage));
    const std::map<std::string, std::function<void()>> with_value = {
        {"--budget", [&] { options.budget = std::atof(value); }},
        {"--search", [&] { options.search = std::atof(value); }},
        {"--list", [&] { options.list = static_cast<size_t>(std::atoi(value)); }},
        {"--jobs", [&] { options.jobs = static_cast<unsigned>(std::atoi(value)); }},
        {"--worker", [&] { options.faults.worker = value; }},
        {"--device", [&] { options.faults.device = std::atoi(value); }},
        {"--json", [&] { options.json = value; }},
        {"--faults", [&] { options.faults.jobs = std::atoi(value); }},
        {"--minutes", [&] { options.faults.minutes = std::atof(value); }},
        {"--parallel", [&] { options.faults.parallel = static_cast<unsigned>(std::max(1, std::atoi(value))); }}};
    const auto found = with_value.find(argument);
    if (found == with_value.end())
      stop(Status(ErrorCode::INVALID_ARGUMENT, "no option " + argument + "\n" + kUsage));
    found->second();
  }
  if (options.graphs.empty() && options.faults.jobs == 0)
    stop(Status(ErrorCode::INVALID_ARGUMENT, std::string("wanted: graphs, or --faults\n") + kUsage));
  if (options.faults.worker.empty()) options.faults.worker = find_worker();
  return options;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds));
}

struct Row {
  std::string graph;
  std::vector<Program> programs;  // as they were given
  MeasureResult result;
  double search_s = 0, open_s = 0, measure_s = 0, first_better_s = 0;
};

const ProgramTiming* timing_of(const Row& row, const Program& program) {
  for (const ProgramTiming& timing : row.result.timings)
    if (timing.program == program.name()) return &timing;
  return nullptr;
}

// Of the first program of the list that is no baseline and is right.
double modelled_choice_us(const Row& row) {
  for (const Program& program : row.programs)
    if (const ProgramTiming* timing = timing_of(row, program);
        !program.is_baseline() && timing && timing->cold_ns > 0)
      return timing->cold_ns / 1e3;
  return NAN;
}

Row run_graph(const std::string& path, const Options& options, Compiler& compiler, const Target& target) {
  Row row;
  const Graph graph = need(parse_graph(read_file(path)));
  row.graph = path.substr(path.rfind('/') + 1);
  double start = seconds();
  OptimizeOptions how;
  how.search.limit = milliseconds(options.search);
  how.search.threads = static_cast<int>(std::min(options.jobs, 8u));
  how.limit = milliseconds(options.search + 15);
  how.list = options.list;
  how.allow_tf32 = options.tf32;
  row.programs = need(optimize(graph, target, compiler, how)).programs;
  row.search_s = seconds() - start;
  start = seconds();
  BenchProcessOptions process;
  process.command = {options.faults.worker, "--bench", std::to_string(options.faults.device)};
  process.bench.threads = options.jobs;
  process.bench.tf32 = options.tf32;
  process.compiler = &compiler;
  process.target = &target;
  auto bench = open_bench(graph, process);
  row.open_s = seconds() - start;
  if (!bench) {
    row.result.reason = bench.status().message();
    return row;
  }
  start = seconds();
  MeasureOptions measuring;
  measuring.budget = milliseconds(options.budget);
  measuring.jobs = options.jobs;
  measuring.allow_tf32 = options.tf32;
  measuring.most_disturbance = options.busy ? 1 : 0.1;
  measuring.on_progress = [&](const MeasureProgress& progress) {
    if (!progress.plan.empty()) row.first_better_s = seconds() - start;
  };
  row.result = need(measure(graph, target, row.programs, &compiler, **bench, measuring));
  row.measure_s = seconds() - start;
  return row;
}

void print_row(const Row& row, bool verbose) {
  const MeasureResult& result = row.result;
  size_t refused = 0;
  std::map<std::string, int> reasons;
  for (const ProgramTiming& timing : result.timings)
    if (!timing.refusal.empty()) ++refused, ++reasons[timing.refusal];
  std::printf("%-32s %3zu %3zu %3zu %9.2f %9.2f %9.2f %6.2f %6.1f %6.1f %6.1f %6.1f  %s\n", row.graph.c_str(),
              row.programs.size(), result.timings.size(), refused, result.baseline_us,
              modelled_choice_us(row), result.cold_us, result.baseline_us / result.cold_us, row.search_s,
              row.open_s, row.measure_s, row.first_better_s, result.reason.c_str());
  for (const auto& [reason, times] : reasons) std::printf("    %d refused: %s\n", times, reason.c_str());
  if (const auto plan = decode_plan(result.plan); plan.ok())
    if (const auto facts = parse_facts(plan->certificate); facts.ok())
      for (const char* name : {"measured error", "measured elements"})
        if (const std::string* value = find_fact(*facts, name))
          std::printf("    %s: %s\n", name, value->c_str());
  if (verbose) std::printf("%s", result.report.c_str());
  std::fflush(stdout);
}

nlohmann::json to_json(const Row& row) {
  nlohmann::json programs = nlohmann::json::array();
  for (const Program& program : row.programs) {
    const ProgramTiming* timing = timing_of(row, program);
    nlohmann::json each = {{"baseline", program.is_baseline()},
                           {"mugraph", program.mugraph},
                           {"schedule", program.schedule},
                           {"modelled_us", static_cast<double>(program.modelled_ns) / 1e3}};
    if (timing && timing->refusal.empty()) {
      each["cold_us"] = timing->cold_ns / 1e3;
      each["hot_us"] = timing->hot_ns / 1e3;
      each["rounds"] = timing->samples;
      each["error"] = timing->error;
    }
    if (timing && !timing->refusal.empty()) each["refusal"] = timing->refusal;
    programs.push_back(std::move(each));
  }
  return {{"device", row.result.device},    {"end", measure_end_name(row.result.end)},
          {"reason", row.result.reason},    {"baseline_us", row.result.baseline_us},
          {"best_us", row.result.cold_us},  {"seconds", {row.search_s, row.open_s, row.measure_s}},
          {"programs", std::move(programs)}};
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const auto driver = need(Driver::open());
  const DeviceInfo info = need(driver->device(options.faults.device));
  const Target& target = *need(target_for_device(info.major, info.minor));
  const std::unique_ptr<Compiler> compiler = need(open_nvrtc(""));
  if (options.faults.jobs > 0) return run_faults(options.faults, *compiler, target) ? 0 : 1;
  std::printf("%-32s %3s %3s %3s %9s %9s %9s %6s %6s %6s %6s %6s\n", "graph", "all", "run", "not", "baseline",
              "modelled", "best", "gain", "search", "open", "measure", "first");
  nlohmann::json all = nlohmann::json::object();
  for (const std::string& path : options.graphs) {
    const Row row = run_graph(path, options, *compiler, target);
    print_row(row, options.verbose);
    all[row.graph] = to_json(row);
    if (options.json.empty()) continue;
    std::ofstream out(options.json);
    out << all.dump(1) << "\n";
    if (!out.flush()) stop(Status(ErrorCode::IO, options.json + " cannot be written"));
  }
  return 0;
}
