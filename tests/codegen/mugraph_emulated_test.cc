// The golden muGraphs of the six workload families, by several schedules each, in the emulator against the
// float reference of their graphs.
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/mugraph/files.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

std::vector<KernelSchedule> ways(const KernelSchedule& own) {
  std::vector<KernelSchedule> out;
  for (const std::array<int, 3>& warps :
       {std::array<int, 3>{1, 1, 4}, {1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 2, 2}})
    for (int stages : {0, 2, 3}) {
      KernelSchedule way = own;
      way.warps = warps;
      way.stages = stages;
      way.prefetch = warps[2] == 4;
      out.push_back(way);
    }
  return out;
}

void golden_mugraphs_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const MuGraphFile& file : mugraph_files()) {
    const std::string& name = file.name;
    if (name.find("_small") == std::string::npos && name.find("_ragged") == std::string::npos) continue;
    const bool cluster = name.find("cluster") != std::string::npos;
    const Schedule own = default_schedule(file.mugraph);
    for (const KernelSchedule& way : ways(own.kernels[0])) {
      Schedule schedule = own;
      for (size_t k = 0; k < own.kernels.size(); ++k) {
        schedule.kernels[k].warps = way.warps;
        schedule.kernels[k].stages = way.stages;
        schedule.kernels[k].prefetch = way.prefetch;
      }
      cases.push_back({name + ", " + print_schedule(schedule), file.graph, file.mugraph, schedule, 1.0,
                       cluster ? "sm_90a" : "sm_80"});
    }
  }
  assert_true(cases.size() > 60);
  all_are_right(cases);
}

// Operators that are left to the baseline and follow each other are fused, and what only they use is not
// stored.
void library_operators_are_fused(void**) {
  auto graph = parse_graph(
      "graph causal\nin s: f16[24, 40]\ni = iota(shape=[24, 1], axis=0)\nj = iota(shape=[1, 40], axis=1)\n"
      "c = le(j, i)\nm = where(c, s, -inf)\np = softmax(m)\nt = transpose(p)\nh = slice(t, start=[0, 0], "
      "stop=[7, 24])\nout p, h\n");
  assert_ok(graph);
  auto mugraph = parse_mugraph(
      "mugraph causal\nin s: f16[24, 40]\ntensor i: i32[24, 1]\ntensor j: i32[1, 40]\ntensor c: bool[24, "
      "40]\n"
      "tensor p: f16[24, 40]\ntensor t: f16[40, 24]\ntensor h: f16[7, 24]\n"
      "i = iota(shape=[24, 1], axis=[0], dtype=i32)\nj = iota(shape=[1, 40], axis=[1], dtype=i32)\nc = le(j, "
      "i)\n"
      "kernel grid=[3] threads=128 {\n v0 = load(c, x=0)\n v1 = load(s, x=0)\n v2 = where(v0, v1, -inf)\n"
      " v3 = softmax(v2, axis=[1])\n store(v3, p, x=0)\n}\n"
      "t = transpose(p, perm=[1, 0])\nh = slice(t, start=[0, 0], stop=[7, 24], step=[1, 1])\nout p, h\n");
  assert_ok(mugraph);
  const MuGraphCase causal = {"causal", *graph, *mugraph, default_schedule(*mugraph)};
  const Plan plan = emitted(causal).plan;
  assert_int_equal(plan.launches.size(), 3);
  assert_int_equal(plan.workspace_bytes, 24 * 40);  // of the mask
  all_are_right({causal});
}

// What a condition chooses from has the dtype of the choices, numbers that of what they meet: both products
// of masked and capped attention are made by tensor cores.
void a_mask_leaves_products_to_tensor_cores(void**) {
  const std::string inputs = "in q: f16[16, 32]\nin k: f16[32, 64]\nin v: f16[64, 32]\nin c: bool[16, 64]\n";
  auto graph = parse_graph(
      "graph masked\n" + inputs +
      "s = matmul(q, k)\na = div(s, 5)\nm = where(c, a, -inf)\np = softmax(m)\no = matmul(p, v)\nout o\n");
  assert_ok(graph);
  auto mugraph = parse_mugraph(
      "mugraph masked\n" + inputs +
      "tensor o: f16[16, 32]\nkernel grid=[1] threads=64 {\n q0 = load(q)\n k0 = load(k)\n"
      " v0 = load(v)\n c0 = load(c)\n five = number(5)\n fifth = reciprocal(five)\n a = mul(q0, fifth)\n"
      " s = matmul(a, k0)\n m = where(c0, s, -inf)\n"
      " t = max(m, axis=[1], keepdims=true)\n d = sub(m, t)\n e = exp(d)\n"
      " n = sum(e, axis=[1], keepdims=true)\n y = matmul(e, v0)\n z = div(y, n)\n"
      " store(z, o)\n}\nout o\n");
  assert_ok(mugraph);
  const MuGraphCase masked = {"masked", *graph, *mugraph, default_schedule(*mugraph)};
  const std::string text = emitted(masked).kernels;
  assert_true(text.find("mma_fragment") != std::string::npos);
  assert_true(text.find("multiply_add") == std::string::npos);
  all_are_right({masked});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(golden_mugraphs_are_right),
                              cmocka_unit_test(library_operators_are_fused),
                              cmocka_unit_test(a_mask_leaves_products_to_tensor_cores)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
