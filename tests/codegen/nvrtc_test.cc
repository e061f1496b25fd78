// NVRTC takes what the emitter emits: the 18 benchmark graphs for every target, and random graphs for one.
// Skipped where there is no NVRTC.
#include "core/codegen/baseline.h"
#include "core/jit/compiler.h"
#include "tests/codegen/emulated.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

Compiler* compiler() {
  static Result<std::unique_ptr<Compiler>> opened = open_nvrtc("");
  if (!opened) skip_test(opened.status().message());
  return opened.value().get();
}

// The oldest and the newest NVRTC know different targets: one that this NVRTC does not know is no failure of
// the text.
bool knows(const Target& target) {
  return compiler()->compile({"extern \"C\" __global__ void f() {}", target.name, {}}).ok();
}

void compile(const Graph& graph, const Target& target, const std::string& label) {
  auto emitted = emit_baseline(graph, target);
  assert_ok(emitted);
  if (emitted->plan.launches.empty()) return;
  auto output = compiler()->compile({emitted->source, target.name, {}});
  if (!output) print_error("%s for %s:\n%s\n", label.c_str(), target.name, output.status().message().c_str());
  assert_ok(output);
  assert_true(output->cubin.size() > 0);
  for (const Launch& launch : emitted->plan.launches) assert_contains(output->cubin, launch.kernel);
}

void benchmark_graphs_compile_for_every_target(void**) {
  const auto folder = test_root() / "examples";
  int graphs = 0;
  for (const Target& target : all_targets()) {
    if (!knows(target)) {
      print_message("%s is not known to %s\n", target.name, compiler()->fingerprint().c_str());
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".qg") continue;
      compile(test_graph(read_test_file(entry.path())), target, entry.path().filename());
      ++graphs;
    }
  }
  assert_true(graphs >= 18);
}

void random_graphs_compile(void**) {
  for (uint64_t seed = 1; seed <= 40; ++seed)
    compile(random_graph(seed), **find_target("sm_80"), "seed " + std::to_string(seed));
}

// Nobody has the memory to run these here; their indices take 64 bits and their grids two dimensions.
void huge_tensors_compile(void**) {
  for (const char* text :
       {"in x: bool[1048576, 1048576]\ny = transpose(x)\nz = sum(x, axis=1)\nout y, z\n",
        "in x: f16[65536, 65536]\nin w: f16[65536, 65536]\ny = matmul(x, w)\nz = softmax(y, axis=0)\nout z\n",
        "in x: f32[1, 16]\nin w: f32[16, 68719476736]\ny = matmul(x, w)\nout y\n"})
    compile(test_graph(std::string("graph huge\n") + text), **find_target("sm_90a"), text);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(benchmark_graphs_compile_for_every_target),
                              cmocka_unit_test(random_graphs_compile),
                              cmocka_unit_test(huge_tensors_compile)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
