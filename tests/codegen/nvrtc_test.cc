// NVRTC takes what the emitter emits: the 18 benchmark graphs for every target, and random graphs for one.
// Skipped where there is no NVRTC.
#include "core/codegen/baseline.h"
#include "core/codegen/prelude.h"
#include "core/codegen/wgmma_text.h"
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

// Both kinds of left operand, both ways that operands can lie.
void products_of_warpgroups_compile(void**) {
  const Target& target = **find_target("sm_90a");
  if (!knows(target)) skip_test("sm_90a is not known to this NVRTC");
  std::string text = std::string(prelude_text()) + std::string(prelude_hopper_text()) +
                     std::string(prelude_wgmma_text()),
              kernels;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (int columns = 8; columns <= kMostWgmmaColumns; columns *= 2) {
      text += wgmma_text({dtype, columns});
      const std::string type = dtype == DType::f16 ? "f16" : "bf16", n = std::to_string(columns),
                        call = "  wgmma<" + type + ", " + n + ">(sums, ";
      kernels +=
          "extern \"C\" __global__ void __launch_bounds__(128) " + type + "_" + n +
          "(float* to, unsigned* from) {\n  unsigned char* const at = dynamic_shared<unsigned char>();\n"
          "  float sums[" +
          n +
          " / 2] = {};\n  unsigned a[4] = {from[0], from[1], from[2], from[3]};\n"
          "  wgmma_fence();\n" +
          call +
          "SharedOperand<128, false, 0, 1024>{at}, SharedOperand<32, true, 4096, "
          "256>{at + 8192});\n" +
          call +
          "SharedOperand<64, true, 4096, 512>{at}, SharedOperand<128, false, 0, "
          "1024>{at + 8192});\n" +
          call +
          "a, SharedOperand<128, true, 4096, 1024>{at + 8192});\n"
          "  wgmma_commit();\n  schedule_fence(__uint_as_float(a[0]));\n  wgmma_wait<0>();\n  "
          "wgmma_landed(sums);\n  for (int i = 0; i < " +
          n + " / 2; ++i) to[threadIdx.x * 128 + i] = sums[i];\n}\n";
    }
  auto output = compiler()->compile({text + kernels, target.name, {"--ptxas-options=-v"}});
  assert_ok(output);
  // ptxas says so when it cannot keep products under way, and has to wait for each.
  if (output->log.find("serialized") != std::string::npos) print_error("%s\n", output->log.c_str());
  assert_true(output->log.find("serialized") == std::string::npos);
  assert_contains(output->log, "bf16_256");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(benchmark_graphs_compile_for_every_target),
                              cmocka_unit_test(random_graphs_compile), cmocka_unit_test(huge_tensors_compile),
                              cmocka_unit_test(products_of_warpgroups_compile)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
