// Programs that the ranking lists beside those of the enumeration.
#include "core/optimize/ranking.h"

#include <set>

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/verify/rounded_values.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr const char* kGraph = R"(graph product
in x: bf16[3000, INNER]
in w: bf16[INNER, COLUMNS]
o = matmul(x, w)
out o
)";
constexpr const char* kProduct = R"(mugraph product
in x: bf16[3000, INNER]
in w: bf16[INNER, COLUMNS]
tensor o: bf16[3000, COLUMNS]
kernel grid=[40, 24] loop=16 threads=256 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  y = matmul(x0, w0)
  a = accumulate_sum(y)
  store(a, o, x=1, y=0)
}
out o
)";

// Schedules with multicast among the programs of this product: they can be emitted where their likes without
// it can.
std::vector<KernelSchedule> with_multicast(const std::string& inner, const std::string& columns) {
  auto sized = [&](const char* text) { return with(with(text, "INNER", inner), "COLUMNS", columns); };
  const auto graph = parse_graph(sized(kGraph));
  assert_ok(graph);
  const auto mugraph = parse_mugraph(sized(kProduct));
  assert_ok(mugraph);
  Candidate candidate;
  candidate.mugraph = *mugraph;
  const Target& target = **find_target("sm_90a");
  std::vector<KernelSchedule> out;
  for (const Implementation& each : rank_implementations(*graph, {candidate}, target, {}, 64)) {
    if (each.schedule.kernels[0].multicast_blocks() == 1) continue;
    Schedule alone = each.schedule;
    alone.kernels[0].multicast = {1, 1, 1};
    if (!emit_mugraph(*graph, *mugraph, alone, target)) continue;
    assert_ok(emit_mugraph(*graph, *mugraph, each.schedule, target));
    out.push_back(each.schedule.kernels[0]);
  }
  return out;
}

// Rows of 2000 and of 10000 bytes begin within a line of the cache, rows of 2048 and 8192 with one.
void pairs_of_blocks_are_tried_where_rows_straddle_lines(void**) {
  const std::vector<KernelSchedule> tried = with_multicast("1000", "5000");
  assert_true(!tried.empty());
  for (const KernelSchedule& each : tried) assert_true(each.producer && each.wgmma);
  assert_true(with_multicast("1024", "4096").empty());
}

// Blocks whose warps make operands for others (transform) are no pairs, however much they ask for.
void blocks_that_make_operands_are_no_pairs(void**) {
  const auto graph = parse_graph(R"(graph normed
in q: f16[64, 128, 128]
in k: f16[64, 128, 2048]
in v: f16[64, 2048, 128]
w = rms_norm(v, axis=-1, eps=1e-5)
s = matmul(q, k)
p = softmax(s, axis=-1)
o = matmul(p, w)
out o
)");
  assert_ok(graph);
  const auto mugraph = parse_mugraph(R"(mugraph normed
in q: f16[64, 128, 128]
in k: f16[64, 128, 2048]
in v: f16[64, 2048, 128]
tensor o: f16[64, 128, 128]
kernel grid=[64, 2] loop=32 threads=128 {
  q0 = load(q, x=0, y=1)
  k0 = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  w0 = rms_norm(v0, axis=[2], eps=1e-05)
  s = matmul(q0, k0)
  top = max(s, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, w0)
  n = accumulate_rescaled(pv, m)
  y = div(n, l)
  store(y, o, x=0, y=1)
}
out o
)");
  assert_ok(mugraph);
  Candidate candidate;
  candidate.mugraph = *mugraph;
  note_rounded_values(*graph, candidate.mugraph);
  int made = 0;
  for (const Implementation& each :
       rank_implementations(*graph, {candidate}, **find_target("sm_90a"), {}, 200)) {
    assert_ok(check_fields(each.schedule.kernels[0]));
    made += each.schedule.kernels[0].transform;
  }
  assert_true(made > 0);
}

// Two products, the second of the first, are varied together: no two programs have a kernel in common, until one has no more.
void all_kernels_are_varied_at_once(void**) {
  const auto graph = parse_graph(R"(graph two
in x: bf16[16, 1024]
in w: bf16[1024, 2048]
in v: bf16[2048, 1024]
h = matmul(x, w)
z = matmul(h, v)
out z
)");
  assert_ok(graph);
  const auto mugraph = parse_mugraph(R"(mugraph two
in x: bf16[16, 1024]
in w: bf16[1024, 2048]
in v: bf16[2048, 1024]
tensor h: bf16[16, 2048]
tensor z: bf16[16, 1024]
kernel grid=[32] loop=8 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  y = matmul(x0, w0)
  a = accumulate_sum(y)
  store(a, h, x=1)
}
kernel grid=[16] loop=16 threads=128 {
  h0 = load(h, loop=1)
  v0 = load(v, x=1, loop=0)
  y = matmul(h0, v0)
  a = accumulate_sum(y)
  store(a, z, x=1)
}
out z
)");
  assert_ok(mugraph);
  std::vector<Candidate> candidates(1);
  candidates[0].mugraph = *mugraph;
  const Target& target = **find_target("sm_90a");
  Ranking ranking(*graph, candidates, target);
  const Schedule best = ranking.rank({}, 1)[0].schedule;
  const auto varied = ranking.vary_all(0, {}, 12);
  assert_int_equal(varied.size(), 12);
  for (size_t k : {0, 1}) {
    std::set<std::string> seen = {print_schedule({{best.kernels[k]}})};
    for (const Implementation& each : varied)
      if (!seen.insert(print_schedule({{each.schedule.kernels[k]}})).second)
        fail_test("kernel " + std::to_string(k) + " twice: " + print_schedule(each.schedule));
  }
  const double best_us = ranking.rank({}, 1)[0].us;
  for (const Implementation& each : ranking.vary_all(0, {}, 400)) assert_true(each.us < 1.6 * best_us);
  // Of the first ones no two differ in stages and blocks an SM alone.
  for (size_t k : {0, 1}) {
    const KernelSchedule &a = varied[0].schedule.kernels[k], &b = best.kernels[k];
    assert_true(a.tile != b.tile || a.warps != b.warps || a.tile_k != b.tile_k || a.tma != b.tma ||
                a.wgmma != b.wgmma);
  }
  auto refuse = [](const KernelSchedule& schedule, bool, const std::function<MuKernel()>&) {
    return schedule.wgmma;
  };
  for (const Implementation& each : ranking.vary_all(0, {}, 40, refuse))
    for (const KernelSchedule& kernel : each.schedule.kernels) assert_false(kernel.wgmma);
  // One kernel is ranked, and that is all.
  const auto product = parse_mugraph(with(with(kProduct, "INNER", "1024"), "COLUMNS", "4096"));
  const auto product_graph = parse_graph(with(with(kGraph, "INNER", "1024"), "COLUMNS", "4096"));
  assert_ok(product);
  candidates[0].mugraph = *product;
  assert_true(Ranking(*product_graph, candidates, target).vary_all(0, {}, 12).empty());
}

// Two products that may share a launch: where the best of both are refused, and what they share, others are there.
void neighbours_have_others_where_the_best_are_refused(void**) {
  const auto graph = parse_graph(R"(graph pair
in x: bf16[16, 1024]
in w: bf16[1024, 2048]
in v: bf16[1024, 512]
y = matmul(x, w)
z = matmul(x, v)
out y
out z
)");
  assert_ok(graph);
  const auto mugraph = parse_mugraph(R"(mugraph pair
in x: bf16[16, 1024]
in w: bf16[1024, 2048]
in v: bf16[1024, 512]
tensor y: bf16[16, 2048]
tensor z: bf16[16, 512]
kernel grid=[32] loop=8 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  p = matmul(x0, w0)
  a = accumulate_sum(p)
  store(a, y, x=1)
}
kernel grid=[8] loop=8 threads=128 {
  x0 = load(x, loop=1)
  v0 = load(v, x=1, loop=0)
  p = matmul(x0, v0)
  a = accumulate_sum(p)
  store(a, z, x=1)
}
out y
out z
)");
  assert_ok(mugraph);
  std::vector<Candidate> candidates(1);
  candidates[0].mugraph = *mugraph;
  Ranking ranking(*graph, candidates, **find_target("sm_90a"));
  std::vector<Implementation> all = ranking.rank({}, 64);
  std::set<std::string> refused;
  for (size_t i = 0; i < 12; ++i)
    for (KernelSchedule kernel : all[i].schedule.kernels) {
      kernel.joined = kernel.pdl = false;
      refused.insert(print_schedule({{kernel}}));
    }
  const auto refuse = [&](KernelSchedule kernel, bool, const std::function<MuKernel()>&) {
    kernel.joined = kernel.pdl = false;
    return refused.count(print_schedule({{kernel}})) > 0;
  };
  const std::vector<Implementation> others = ranking.rank({}, 64, refuse);
  assert_true(others.size() > 12);
  assert_true(others[0].us >= all[0].us);
  for (const Implementation& each : others)
    for (size_t k = 0; k < 2; ++k) {
      const KernelSchedule& kernel = each.schedule.kernels[k];
      assert_false(refuse(kernel, kernel.joined, {}));
    }
}

// What is tried is near the front: candidates behind have fewer schedules.
void candidates_behind_have_fewer_schedules(void**) {
  auto sized = [](const char* text, const char* columns) {
    return with(with(text, "INNER", "1024"), "COLUMNS", columns);
  };
  const auto graph = parse_graph(sized(kGraph, "4096"));
  assert_ok(graph);
  const auto first = parse_mugraph(sized(kProduct, "4096")),
             second = parse_mugraph(with(sized(kProduct, "4096"), "y = matmul(x0, w0)",
                                         "n = neg(x0)\n  m = neg(w0)\n  y = matmul(n, m)"));
  assert_ok(first);
  assert_ok(second);
  std::vector<Candidate> candidates(2);
  candidates[0].mugraph = *first;
  candidates[1].mugraph = *second;
  Ranking ranking(*graph, candidates, **find_target("sm_90a"));
  const auto counts = [&](bool tapered) {
    std::array<int, 2> count{};
    for (const Implementation& each : ranking.rank({}, 40, {}, tapered)) ++count[each.candidate];
    return count;
  };
  const auto all = counts(false), tapered = counts(true);
  assert_int_equal(tapered[0], all[0]);
  assert_true(tapered[1] > 0 && tapered[1] < 0.75 * all[1]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(pairs_of_blocks_are_tried_where_rows_straddle_lines),
                              cmocka_unit_test(blocks_that_make_operands_are_no_pairs),
                              cmocka_unit_test(all_kernels_are_varied_at_once),
                              cmocka_unit_test(neighbours_have_others_where_the_best_are_refused),
                              cmocka_unit_test(candidates_behind_have_fewer_schedules)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
