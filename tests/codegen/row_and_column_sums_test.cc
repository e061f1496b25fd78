// Sums over rows beside sums over columns of the same inputs, as backward passes of norms have them: the
// search finds kernels that go over rows in a loop, store what they make of each, and keep the columns' sums.
// They are right in the emulator, on friendly inputs and those of every hostile class, by schedules of all
// kinds.
#include <set>

#include "core/codegen/arithmetic_verifier.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

std::string layer_norm(const std::string& type, const std::string& weight, const std::string& rows = "0") {
  return "in x: " + type + "\nin g: " + weight + "\nin dy: " + type +
         "\nm = mean(x, axis=-1, keepdims=true)\nd = sub(x, m)\nsq = square(d)\n"
         "v = mean(sq, axis=-1, keepdims=true)\nve = add(v, 1e-3)\nr = rsqrt(ve)\nh = mul(d, r)\n"
         "dyh = mul(dy, h)\ndg = sum(dyh, axis=" +
         rows + ")\ndb = sum(dy, axis=" + rows +
         ")\na = mul(dy, g)\n"
         "b = mean(a, axis=-1, keepdims=true)\nah = mul(a, h)\nc = mean(ah, axis=-1, keepdims=true)\n"
         "ab = sub(a, b)\nhc = mul(h, c)\nabc = sub(ab, hc)\ndx = mul(r, abc)\nout dx, dg, db\n";
}

const std::string kGraphs[] = {
    layer_norm("f32[37, 24]", "f32[24]"),
    layer_norm("f16[64, 40]", "f16[40]"),
    layer_norm("f32[3, 14, 16]", "f32[16]", "[0, 1]"),
    // RMS norm, of rows that do not divide.
    "in x: bf16[50, 33]\nin g: bf16[33]\nin dy: bf16[50, 33]\nsq = square(x)\nv = mean(sq, axis=1, "
    "keepdims=true)\n"
    "ve = add(v, 1e-3)\nr = rsqrt(ve)\nh = mul(x, r)\ndyh = mul(dy, h)\ndg = sum(dyh, axis=0)\na = mul(dy, "
    "g)\n"
    "ah = mul(a, h)\nc = mean(ah, axis=1, keepdims=true)\nhc = mul(h, c)\nac = sub(a, hc)\ndx = mul(r, "
    "ac)\nout dx, dg\n",
    // Softmax with the gradient of a bias, and sums over columns of what rows make.
    "in y: f32[40, 48]\nin dy: f32[40, 48]\np = mul(y, dy)\ns = sum(p, axis=1, keepdims=true)\nt = sub(dy, "
    "s)\n"
    "dx = mul(y, t)\ndb = sum(dx, axis=0)\nout dx, db\n",
    // Of a batch, and with maxima of columns.
    "in x: f32[2, 30, 16]\ns = sum(x, axis=2, keepdims=true)\ny = sub(x, s)\nm = max(y, axis=1)\nz = sum(x, "
    "axis=1)\n"
    "out y, m, z\n",
};

Target small_gpu(const char* name) {
  Target target = **find_target(name);
  target.sms = 2;
  return target;
}

bool stores_in_loop(const MuGraph& mugraph) {
  const MuKernel& kernel = mugraph.kernels[0];
  return kernel.trip_count > 1 && std::any_of(kernel.ops.begin(), kernel.ops.end(), [](const BlockOp& op) {
           return op.is_store() && op.loop_dim() >= 0;
         });
}

// Schedules that differ in how tiles come and in warps.
std::vector<Schedule> various(const MuGraph& mugraph, const Target& target) {
  std::vector<Schedule> out;
  std::set<std::string> seen;
  for (const Schedule& schedule : enumerate_schedules(mugraph, target)) {
    const KernelSchedule& first = schedule.kernels[0];
    const std::string form = std::to_string(first.stages) + (first.tma ? "t" : "") +
                             (first.prefetch ? "p" : "") + (first.warps[0] > 1 ? "r" : "");
    if (out.size() < 8 && seen.insert(form).second) out.push_back(schedule);
  }
  return out;
}

std::vector<InputKind> all_inputs(const Graph& graph) {
  std::vector<InputKind> out = {
      {"random", [](const TensorDesc& desc, size_t input) { return random_buffer(desc, 900 + input, 1); }}};
  for (const HostileClass& cls : hostile_classes())
    out.push_back({cls.name, [buffers = hostile_inputs(graph, cls, 1)](const TensorDesc&, size_t input) {
                     return buffers[input];
                   }});
  return out;
}

void kernels_that_store_in_the_loop_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* name : {"sm_80", "sm_90a"})
    for (const std::string& text : kGraphs) {
      auto graph = parse_graph("graph g\n" + text);
      assert_ok(graph);
      const Target target = small_gpu(name);
      SearchOptions options;
      options.limit = std::chrono::seconds(20);
      options.time_of = SubgraphModel(target);
      auto found = search(*graph, target, options);
      assert_ok(found);
      size_t storing = 0;
      for (const Candidate& candidate : found->candidates) {
        if (!stores_in_loop(candidate.mugraph) || storing == 3) continue;
        ++storing;
        for (const Schedule& schedule : various(candidate.mugraph, target)) {
          if (ArithmeticVerifier(*graph).judge(candidate.mugraph, schedule).verdict == Verdict::rejected)
            continue;
          cases.push_back({std::string(name) + ", " + print_schedule(schedule), *graph, candidate.mugraph,
                           schedule, 1.0, name, all_inputs(*graph)});
        }
      }
      if (storing == 0) fail_test("nothing that stores in the loop: " + text);
    }
  assert_true(cases.size() >= 4 * 2 * std::size(kGraphs));
  all_are_right(cases);
}

// Attention that hands out its scores: no iteration is left out, also where all of it is masked.
void masked_iterations_store(void**) {
  const auto graph = parse_graph(
      "graph scores\nin q: f16[64, 16]\nin k: f16[16, 128]\nin v: f16[128, 16]\ni = iota(shape=[64, 1], "
      "axis=0)\n"
      "j = iota(shape=[1, 128], axis=1)\nc = le(j, i)\ns = matmul(q, k)\nt = where(c, s, -1e30)\np = "
      "softmax(t)\n"
      "o = matmul(p, v)\nout o, s\n");
  assert_ok(graph);
  const auto mugraph = parse_mugraph(
      "mugraph scores\nin q: f16[64, 16]\nin k: f16[16, 128]\nin v: f16[128, 16]\ntensor i: i32[64, 1]\n"
      "tensor j: i32[1, 128]\ntensor o: f16[64, 16]\ntensor s: f16[64, 128]\n"
      "i = iota(shape=[64, 1], axis=[0], dtype=i32)\nj = iota(shape=[1, 128], axis=[1], dtype=i32)\n"
      "kernel grid=[4] loop=4 threads=128 {\n q0 = load(q, x=0)\n k0 = load(k, loop=1)\n v0 = load(v, "
      "loop=0)\n"
      " i0 = load(i, x=0)\n j0 = load(j, loop=1)\n s0 = matmul(q0, k0)\n store(s0, s, x=0, loop=1)\n c0 = "
      "le(j0, i0)\n"
      " w = where(c0, s0, -1e30)\n top = max(w, axis=[1], keepdims=true)\n m = accumulate_max(top)\n d = "
      "sub(w, m)\n"
      " e = exp(d)\n r = sum(e, axis=[1], keepdims=true)\n l = accumulate_rescaled(r, m)\n pv = matmul(e, "
      "v0)\n"
      " n = accumulate_rescaled(pv, m)\n y = div(n, l)\n store(y, o, x=0)\n}\nout o, s\n");
  assert_ok(mugraph);
  std::vector<MuGraphCase> cases;
  for (const char* name : {"sm_80", "sm_90a"})
    for (int stages : {0, 2, 3}) {
      Schedule schedule = default_schedule(*mugraph);
      for (KernelSchedule& kernel : schedule.kernels) {
        kernel.warps = {1, 1, 1};
        kernel.stages = stages;
      }
      cases.push_back({std::string(name) + ", " + std::to_string(stages) + " stages", *graph, *mugraph,
                       schedule, 1.0, name});
    }
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(masked_iterations_store),
                              cmocka_unit_test(kernels_that_store_in_the_loop_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
