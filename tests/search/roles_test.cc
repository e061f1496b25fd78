// What an index may do: loops with plain and rescaled accumulators, and what is refused.
#include "core/search/roles.h"

#include "core/search/cuts.h"
#include "tests/search/as_written.h"

namespace quern {

namespace {

int accumulators(const LoopForm& form, bool rescaled) {
  int count = 0;
  for (size_t at = 0; at < form.accumulates.size(); ++at)
    count += form.accumulates[at] && (form.shift[at] >= 0) == rescaled;
  return count;
}

constexpr const char* kAttention =
    "graph g\nin q: f16[8, 16]\nin k: f16[16, 64]\nin v: f16[64, 16]\ns = matmul(q, k)\n"
    "m = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = exp(d)\nl = sum(e, axis=1, keepdims=true)\n"
    "o = matmul(e, v)\nr = div(o, l)\nout r\n";

void online_softmax(void**) {
  AsWritten attention(kAttention);
  const std::optional<LoopForm> form = attention.loop("k1");
  assert_true(form.has_value());
  assert_int_equal(accumulators(*form, true), 2);
  assert_int_equal(accumulators(*form, false), 1);  // the maximum
  assert_int_equal(form->stages[attention.dag.outputs[0]], Stage::after);
}

void a_division_before_the_sum_needs_it_whole(void**) {
  AsWritten attention(
      "graph g\nin s: f16[8, 64]\nin v: f16[64, 16]\nm = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = "
      "exp(d)\n"
      "l = sum(e, axis=1, keepdims=true)\np = div(e, l)\nr = matmul(p, v)\nout r\n");
  std::string why;
  assert_false(attention.loop("s1", &why).has_value());
  assert_contains(why, "whole");
}

void what_is_not_linear_in_the_shift_is_refused(void**) {
  // square(exp(s - m)) is relative to exp(-2m), which no accumulator rescales.
  AsWritten squared(
      "graph g\nin s: f16[8, 64]\nm = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = exp(d)\nt = "
      "square(e)\n"
      "r = sum(t, axis=1)\nout r\n");
  std::string why;
  assert_false(squared.loop("s1", &why).has_value());
  assert_contains(why, "not linear");
  AsWritten shifted(
      "graph g\nin s: f16[8, 64]\nm = max(s, axis=1, keepdims=true)\nd = sub(s, m)\nr = sum(d, axis=1)\nout "
      "r\n");
  assert_false(shifted.loop("s1", &why).has_value());
  AsWritten mixed(
      "graph g\nin s: f16[8, 64]\nm = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = exp(d)\nt = add(e, "
      "s)\n"
      "r = sum(t, axis=1)\nout r\n");
  assert_false(mixed.loop("s1", &why).has_value());
}

// Sums over rows beside sums over columns: blocks have some rows each, and store what they make of them in
// the loop.
void results_with_the_looped_index_are_stored_in_the_loop(void**) {
  AsWritten both(
      "graph g\nin x: f32[64, 32]\ns = sum(x, axis=1, keepdims=true)\ny = sub(x, s)\nc = sum(y, axis=0)\nout "
      "y, c\n");
  const std::vector<Cut> cuts = kernel_cuts(both.dag, both.terms, 1);
  const Label rows = both.find("x0"), columns = both.find("x1");
  int storing = 0;
  for (const Roles& roles :
       legal_roles(cuts[0].kernels[0], cuts[0].tensors, both.terms, **find_target("sm_90a"))) {
    assert_true(roles.grid.empty());  // columns are reduced, and c has no rows
    assert_int_equal(roles.stores_in_loop, roles.loop == rows);
    if (!roles.stores_in_loop) continue;
    assert_true(roles.split != Split::cluster);
    if (roles.split != Split::second_kernel) continue;
    assert_true(roles.combine == std::vector<Label>{columns});
    ++storing;
  }
  assert_int_equal(storing, 1);
  AsWritten shifted(
      "graph g\nin s: f16[8, 64]\nm = max(s, axis=0, keepdims=true)\nd = sub(s, m)\ne = exp(d)\n"
      "r = sum(e, axis=0)\nout e, r\n");
  std::string why;
  assert_false(shifted.loop("s0", &why).has_value());
  assert_contains(why, "a result is relative to the running maximum");
}

void grids_hold_what_all_results_have(void**) {
  AsWritten attention(kAttention);
  const std::vector<Cut> cuts = kernel_cuts(attention.dag, attention.terms, 1);
  assert_int_equal(cuts.size(), 1);
  int clusters = 0, second = 0;
  for (const char* name : {"sm_90a", "sm_80"}) {
    const Target& target = **find_target(name);
    for (const Roles& roles : legal_roles(cuts[0].kernels[0], cuts[0].tensors, attention.terms, target)) {
      for (Label label : roles.grid) {
        assert_true(label == attention.find("q0") || label == attention.find("v1"));
        // Partial denominators have no v1: blocks would write them to the same place.
        if (roles.split == Split::second_kernel) assert_int_equal(label, attention.find("q0"));
      }
      clusters += roles.split == Split::cluster;
      second += roles.split == Split::second_kernel;
      if (target.max_cluster == 1) assert_true(roles.split != Split::cluster);
    }
  }
  assert_true(clusters > 0 && second > 0);
}

void cuts_are_kernels_that_follow_each_other(void**) {
  AsWritten attention(kAttention);
  const std::vector<Cut> cuts = kernel_cuts(attention.dag, attention.terms, 16);
  assert_true(cuts.size() > 2);
  for (size_t i = 1; i < cuts.size(); ++i) {
    const Cut& cut = cuts[i];
    assert_int_equal(cut.kernels.size(), 2);
    assert_true(i == 1 || cuts[i - 1].traffic <= cut.traffic);
    const int handed = cut.kernels[0].stores[0];
    bool read = false;
    for (const DagOp& op : cut.kernels[1].dag.ops)
      read |= op.term.kind == BlockKind::leaf && op.term.index == handed;
    assert_true(read);
    for (const DagOp& op : cut.kernels[0].dag.ops)
      assert_true(op.term.kind != BlockKind::leaf || op.term.index < 3);
  }
}

// Two softmaxes whose difference is contracted: one kernel hands on what is known of both behind all keys, and the other goes
// through the keys again, without online softmax.
void all_that_is_known_behind_an_index_is_handed_on(void**) {
  AsWritten difference(
      "graph g\nin s: f16[8, 64]\nin t: f16[8, 64]\nin v: f16[64, 16]\n"
      "m = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = exp(d)\nl = sum(e, axis=1, keepdims=true)\np = "
      "div(e, l)\n"
      "n = max(t, axis=1, keepdims=true)\nf = sub(t, n)\ng = exp(f)\nk = sum(g, axis=1, keepdims=true)\nq = "
      "div(g, k)\n"
      "h = sub(p, q)\ny = matmul(h, v)\nout y\n");
  const Label keys = difference.find("s1");
  int found = 0;
  for (const Cut& cut : kernel_cuts(difference.dag, difference.terms, 16)) {
    if (cut.kernels.size() == 1 || cut.kernels[0].stores.size() != 4) continue;
    ++found;
    assert_true(cut.handed_on == DType::f32);
    assert_int_equal(cut.tensors.size(), 4 + 4);
    for (const KernelDag& kernel : cut.kernels)
      assert_true(loop_form(kernel, keys, difference.terms).has_value());
    for (const DagOp& op : cut.kernels[1].dag.ops) assert_true(op.term.code != OpCode::reduce_max);
  }
  assert_int_equal(found, 1);
  // In one kernel the difference would be of values that are relative to two maxima.
  assert_false(difference.loop("s1").has_value());
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(online_softmax),
      cmocka_unit_test(a_division_before_the_sum_needs_it_whole),
      cmocka_unit_test(what_is_not_linear_in_the_shift_is_refused),
      cmocka_unit_test(results_with_the_looped_index_are_stored_in_the_loop),
      cmocka_unit_test(grids_hold_what_all_results_have),
      cmocka_unit_test(all_that_is_known_behind_an_index_is_handed_on),
      cmocka_unit_test(cuts_are_kernels_that_follow_each_other),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
