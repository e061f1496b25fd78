// Reductions in front of the loop: what they need is loaded once more, whole, along an index of its own.
#include "core/search/whole.h"

#include <algorithm>

#include "core/search/derive.h"
#include "tests/search/as_written.h"

namespace quern {

namespace {

std::vector<Cut> changed(AsWritten& program) {
  return with_whole_reductions(kernel_cuts(program.dag, program.terms, 1)[0], program.terms);
}

int count(const std::vector<DagOp>& ops, BlockKind kind) {
  return static_cast<int>(
      std::count_if(ops.begin(), ops.end(), [&](const DagOp& op) { return op.term.kind == kind; }));
}

// The form of the only cut's only kernel under a loop over `label`.
LoopForm form_of_only(AsWritten& program, const std::vector<Cut>& cuts, const char* label) {
  assert_int_equal(cuts.size(), 1);
  assert_int_equal(cuts[0].kernels.size(), 1);
  const std::optional<LoopForm> form = loop_form(cuts[0].kernels[0], program.find(label), program.terms);
  assert_true(form.has_value());
  return *form;
}

void a_norm_in_front_of_a_product(void**) {
  AsWritten norm(
      "graph g\nin x: bf16[4, 64]\nin g: bf16[64]\nin w: bf16[64, 32]\ns = square(x)\n"
      "m = mean(s, axis=1, keepdims=true)\nr = rsqrt(m)\ny = mul(x, r)\nh = mul(y, g)\nz = matmul(h, w)\nout z\n");
  assert_false(norm.loop("x1").has_value());
  const std::vector<Cut> cuts = changed(norm);
  const LoopForm form = form_of_only(norm, cuts, "x1");
  const std::vector<DagOp>& ops = cuts[0].kernels[0].dag.ops;
  assert_int_equal(count(ops, BlockKind::leaf), 4);  // x twice
  for (size_t at = 0; at < ops.size(); ++at) {
    assert_int_equal(form.accumulates[at], ops[at].term.kind == BlockKind::matmul);
    if (ops[at].term.kind == BlockKind::reduction) assert_int_equal(form.stages[at], Stage::before);
  }
  // The label of its own is no loop's, has the other's extent, and comes once.
  const LabelInfo& own = norm.terms.labels.back();
  assert_int_equal(own.whole_of, norm.find("x1"));
  assert_int_equal(own.extent, 64);
  const size_t labels = norm.terms.labels.size();
  assert_int_equal(changed(norm).size(), 1);
  assert_int_equal(norm.terms.labels.size(), labels);
  for (const Roles& roles :
       legal_roles(cuts[0].kernels[0], cuts[0].tensors, norm.terms, **find_target("sm_90a")))
    assert_true(roles.loop < 0 || norm.terms.labels[static_cast<size_t>(roles.loop)].whole_of < 0);
}

// As a muGraph: one load that the loop cuts and one that it does not.
void the_mugraph_loads_twice(void**) {
  AsWritten norm(
      "graph g\nin x: bf16[4, 64]\nin w: bf16[64, 32]\ns = square(x)\nm = sum(s, axis=1, keepdims=true)\n"
      "r = rsqrt(m)\ny = mul(x, r)\nz = matmul(y, w)\nout z\n");
  const std::vector<Cut> cuts = changed(norm);
  form_of_only(norm, cuts, "x1");
  const Label loop = norm.find("x1");
  Design design;
  design.tensors = cuts[0].tensors;
  for (Roles& roles :
       legal_roles(cuts[0].kernels[0], cuts[0].tensors, norm.terms, **find_target("sm_90a")))
    if (roles.loop == loop && roles.split == Split::none)
      design.kernels = {{cuts[0].kernels[0], std::move(roles), {{2, 1, 1}, 4, 1, 128}}};
  assert_int_equal(design.kernels.size(), 1);
  const Result<MuGraph> mugraph = derive(norm.graph, norm.terms, design);
  assert_ok(mugraph);
  std::vector<std::string> tiles;
  for (const BlockOp& op : mugraph->kernels[0].ops)
    if (op.is_load() && op.tensor() == mugraph->inputs[0])
      tiles.push_back(std::to_string(op.type.shape[1]) + (op.loop_dim() < 0 ? " whole" : " of the loop"));
  std::sort(tiles.begin(), tiles.end());
  assert_true((tiles == std::vector<std::string>{"16 of the loop", "64 whole"}));
}

// The variance needs the mean: both are made of one load.
void a_reduction_of_another(void**) {
  AsWritten norm(
      "graph g\nin x: f16[4, 64]\nin w: f16[64, 32]\nm = mean(x, axis=1, keepdims=true)\nd = sub(x, m)\n"
      "q = square(d)\nv = mean(q, axis=1, keepdims=true)\nr = rsqrt(v)\ny = mul(d, r)\nz = matmul(y, w)\nout z\n");
  const std::vector<Cut> cuts = changed(norm);
  form_of_only(norm, cuts, "x1");
  const std::vector<DagOp>& ops = cuts[0].kernels[0].dag.ops;
  assert_int_equal(count(ops, BlockKind::leaf), 3);
  assert_int_equal(count(ops, BlockKind::reduction), 2);
}

void products_are_not_made_whole(void**) {
  AsWritten attention(
      "graph g\nin q: f16[8, 16]\nin k: f16[16, 64]\nin v: f16[64, 16]\ns = matmul(q, k)\n"
      "m = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = exp(d)\nl = sum(e, axis=1, keepdims=true)\n"
      "p = div(e, l)\no = matmul(p, v)\nout o\n");
  assert_true(changed(attention).empty());
  AsWritten chain(
      "graph g\nin x: f16[8, 64]\nin w: f16[64, 16]\nin u: f16[16, 64]\nh = matmul(x, w)\ny = matmul(h, u)\n"
      "z = add(x, y)\ns = sum(z, axis=1)\nout s\n");
  assert_true(changed(chain).empty());
}

// What is exponentiated must be what its maximum is of, to the last bit: maxima are, sums in two orders are not.
void sums_are_not_made_twice(void**) {
  auto softmax_of = [](const std::string& reduction) {
    AsWritten attention(
        "graph g\nin q: f16[8, 16, 1]\nin k: f16[16, 64]\nin v: f16[64, 16]\nt = add(q, k)\ns = " + reduction +
        "(t, axis=1)\nm = max(s, axis=1, keepdims=true)\nd = sub(s, m)\ne = exp(d)\nl = sum(e, axis=1, keepdims=true)\n"
        "p = div(e, l)\no = matmul(p, v)\nout o\n");
    return changed(attention).size();
  };
  assert_int_equal(softmax_of("max"), 1);
  assert_int_equal(softmax_of("sum"), 0);
}

void loops_that_need_none_or_sum_nothing(void**) {
  AsWritten product("graph g\nin x: f16[8, 64]\nin w: f16[64, 16]\nz = matmul(x, w)\nout z\n");
  assert_true(changed(product).empty());
  AsWritten norm(
      "graph g\nin x: f16[8, 64]\ns = sum(x, axis=1, keepdims=true)\ny = div(x, s)\nout y\n");
  assert_true(changed(norm).empty());
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_norm_in_front_of_a_product),
      cmocka_unit_test(the_mugraph_loads_twice),
      cmocka_unit_test(a_reduction_of_another),
      cmocka_unit_test(products_are_not_made_whole),
      cmocka_unit_test(sums_are_not_made_twice),
      cmocka_unit_test(loops_that_need_none_or_sum_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
