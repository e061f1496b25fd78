// What the background job does with graphs, and how long it takes:
//   optimize_bench [--target NAME] [--report] [--judge] GRAPH.qg...
//
// One row a graph: seconds of the search, of judging arithmetic, of emitting, of NVRTC and of all; how many
// candidates the search found; the model's time of the program that was taken, its launches and the size of
// its code. --report adds what became of each candidate. --judge judges the arithmetic of all 64 programs
// that would be measured, and adds how many these are, how many of them are refused, and the seconds of
// processor time that one takes, the median and the most. The exit code is 0 when every graph got a program.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "core/base/statistics.h"
#include "core/codegen/arithmetic_verifier.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/optimize.h"
#include "core/schedule/z3_optimizer.h"
#include "tools/bench/need.h"

namespace {

using namespace quern;

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

void judge_all(const Graph& graph, const std::vector<Program>& programs) {
  ArithmeticVerifier verifier(graph);
  std::vector<double> times;
  size_t refused = 0;
  for (const Program& program : programs) {
    if (program.is_baseline()) continue;
    MuGraph mugraph = need(parse_mugraph(program.mugraph));
    const Schedule schedule = need(parse_schedule(program.schedule));
    const std::clock_t start = std::clock();
    refused += verifier.judge(mugraph, schedule).verdict != Verdict::accepted;
    times.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  if (times.empty()) return;
  std::printf("  judged %zu, refused %zu, median %.3f s, most %.3f s\n", times.size(), refused, median(times),
              *std::max_element(times.begin(), times.end()));
}

}  // namespace

int main(int argc, char** argv) {
  std::string target_name = "sm_90a";
  bool report = false, judge = false, all = true;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--report") == 0)
      report = true;
    else if (std::strcmp(argv[i], "--judge") == 0)
      judge = true;
    else if (std::strcmp(argv[i], "--target") == 0 && i + 1 < argc)
      target_name = argv[++i];
    else
      files.push_back(argv[i]);
  }
  const Target& target = *need(find_target(target_name));
  const std::unique_ptr<Compiler> compiler = need(open_nvrtc(""));
  const std::unique_ptr<Optimizer> optimizer = make_z3_optimizer(kChoiceLimit);
  const std::unique_ptr<Solver> solver = make_z3_solver();
  std::printf("%-28s %8s %8s %8s %8s %8s %5s %9s %8s %9s\n", target.name, "search s", "judge s", "emit s",
              "nvrtc s", "all s", "found", "model us", "launches", "cubin B");
  for (const std::string& file : files) {
    const Graph graph = need(parse_graph(read_file(file)));
    OptimizeOptions options;
    options.optimizer = optimizer.get();
    options.solver = solver.get();
    options.search.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    options.list = judge ? 64 : 0;
    const auto start = std::chrono::steady_clock::now();
    const OptimizeResult result = need(optimize(graph, target, *compiler, options));
    const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
    all &= result.found();
    std::printf("%-28s %8.2f %8.2f %8.2f %8.2f %8.2f %5s %9.2f %8zu %9zu\n",
                file.substr(file.rfind('/') + 1).c_str(), seconds(result.search_ns), seconds(result.judge_ns),
                seconds(result.emit_ns), seconds(result.compile_ns), whole.count(),
                result.found() ? "yes" : "NO", result.us, result.plan.launches.size(),
                result.plan.cubin.size());
    if (!result.found()) std::printf("  %s\n", result.reason.c_str());
    if (judge) judge_all(graph, result.programs);
    std::fflush(stdout);
    if (report) std::printf("%s%s\n", result.report.c_str(), result.schedule.c_str());
  }
  return all ? 0 : 1;
}
