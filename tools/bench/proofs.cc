// What is proved of the kernels that graphs become, and how long it takes:
//   proofs [--target NAME] GRAPH.qg...
//
// One row a kernel, of the program that the background job takes and of the baseline: how many launches have
// it, seconds, questions that intervals and Z3 decide, and the result. Last the median and the most. The exit
// code is 0 if no kernel is disproved.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "core/base/statistics.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/optimize.h"
#include "core/optimize/prove_program.h"
#include "tools/bench/need.h"

namespace {

using namespace quern;

struct Sums {
  std::vector<double> seconds;
  int proved = 0, unproved = 0, disproved = 0;
};

void print(const std::string& graph, const char* program, const Emitted& emitted, Solver* solver,
           Sums& sums) {
  for (const KernelProof& each : prove_program(emitted, solver)) {
    const Proof& proof = each.proof;
    sums.seconds.push_back(proof.seconds);
    ++(proof.proved() ? sums.proved : proof.disproof() ? sums.disproved : sums.unproved);
    std::printf("| %s | %s | %s | %d | %.3f | %d | %d | %s |\n", graph.c_str(), program, each.kernel.c_str(),
                each.launches, proof.seconds, proof.by_intervals, proof.by_solver, proof.summary().c_str());
  }
  std::fflush(stdout);
}

void print_sums(const char* what, Sums& sums) {
  if (sums.seconds.empty()) return;
  std::printf("%s: %zu kernels, %d proved, %d unproved, %d disproved; median %.3f s, at most %.3f s\n", what,
              sums.seconds.size(), sums.proved, sums.unproved, sums.disproved, median(sums.seconds),
              *std::max_element(sums.seconds.begin(), sums.seconds.end()));
}

}  // namespace

int main(int argc, char** argv) {
  std::string target_name = "sm_90a";
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--target") == 0 && i + 1 < argc)
      target_name = argv[++i];
    else
      files.push_back(argv[i]);
  }
  const Target& target = *need(find_target(target_name));
  const std::unique_ptr<Compiler> compiler = need(open_nvrtc(""));
  const std::unique_ptr<Solver> solver = make_z3_solver();
  Sums chosen, baselines;
  std::printf("| graph | program | kernel | launches | seconds | by intervals | by Z3 | result |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const std::string& file : files) {
    const Graph graph = need(parse_graph(read_file(file)));
    const std::string name = file.substr(file.rfind('/') + 1, file.rfind('.') - file.rfind('/') - 1);
    OptimizeOptions options;
    options.search.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const OptimizeResult result = need(optimize(graph, target, *compiler, options));
    if (result.found())
      print(name, "chosen",
            need(emit_mugraph(graph, need(parse_mugraph(result.mugraph)),
                              need(parse_schedule(result.schedule)), target)),
            solver.get(), chosen);
    print(name, "baseline", need(emit_baseline(graph, target)), solver.get(), baselines);
  }
  print_sums("\nchosen", chosen);
  print_sums("baseline", baselines);
  return chosen.disproved + baselines.disproved == 0 ? 0 : 1;
}
