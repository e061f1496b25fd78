// Graphs as terms: labels, renamings, composites, counts, and what is outside.
#include "core/search/terms.h"

#include "tests/search/examples.h"

namespace quern {

namespace {

Status reason(std::string_view text) { return make_terms(graph_of(text)).status(); }

void equal_dimensions_are_one_label(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[8, 16]\nin w: f16[16, 32]\nin b: f16[32]\ny = matmul(x, w)\nz = add(y, b)\nout "
      "z\n");
  const Result<Terms> terms = make_terms(graph);
  assert_ok(terms);
  assert_int_equal(terms->labels.size(), 3);
  assert_int_equal(terms->inputs[0][1], terms->inputs[1][0]);
  assert_int_equal(terms->inputs[1][1], terms->inputs[2][0]);
  assert_true(terms->goal_dims[0] == (Dims{terms->inputs[0][0], terms->inputs[1][1]}));
  // The result varies along rows and columns, not along what was summed.
  assert_true(terms->egraph.labels(terms->goals[0]) == label_set(terms->goal_dims[0]));
}

void renamings_are_no_terms(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[8, 16]\nt = transpose(x, perm=[1, 0])\nr = reshape(t, shape=[16, 1, 8])\n"
      "u = transpose(r, perm=[2, 1, 0])\nv = reshape(u, shape=[8, 16])\ny = exp(v)\nz = exp(x)\nout y, z\n");
  const Result<Terms> terms = make_terms(graph);
  assert_ok(terms);
  assert_int_equal(terms->goals[0], terms->goals[1]);
}

void casts_that_change_no_value_are_no_terms(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[8, 16]\na = cast(x, dtype=f32)\nb = cast(a, dtype=f32)\ny = exp(b)\n"
      "c = cast(a, dtype=f16)\nd = cast(c, dtype=bf16)\nz = exp(c)\nu = exp(d)\nout y, z, u\n");
  const Result<Terms> terms = make_terms(graph);
  assert_ok(terms);
  // x is f16 whoever reads it; what is rounded is another value each time.
  assert_int_equal(terms->of_value[0], terms->of_value[2]);
  assert_false(terms->dtype_of_value[1].has_value());
  assert_true(terms->dtype_of_value[4] == DType::f16);
  for (const auto& [first, second] : {std::pair{0, 1}, {0, 2}, {1, 2}})
    assert_int_not_equal(terms->goals[static_cast<size_t>(first)], terms->goals[static_cast<size_t>(second)]);
}

void composites_are_their_definition(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f16[8, 16]\ny = softmax(x)\nm = max(x, axis=1, keepdims=true)\ns = sub(x, m)\ne = "
      "exp(s)\n"
      "l = sum(e, axis=1, keepdims=true)\nz = div(e, l)\nout y, z\n");
  const Result<Terms> terms = make_terms(graph);
  assert_ok(terms);
  assert_int_equal(terms->egraph.find(terms->goals[0]), terms->egraph.find(terms->goals[1]));
  bool composite = false;
  for (const ENode& node : terms->egraph.nodes(terms->goals[0])) composite |= node.code == OpCode::softmax;
  assert_true(composite);
}

void the_count_of_a_mean_is_no_number_of_the_program(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f32[8, 16]\ny = mean(x, axis=1)\ns = sum(x, axis=1)\nz = div(s, 16.0)\nout y, z\n");
  const Result<Terms> terms = make_terms(graph);
  assert_ok(terms);
  assert_int_equal(terms->counts.size(), 1);
  assert_true(terms->counts[0] == label_bit(terms->inputs[0][1]));
  assert_int_not_equal(terms->goals[0], terms->goals[1]);
}

void only_the_programs_exponentials_are_admitted(void**) {
  const Terms terms = saturated_terms(graph_of("graph g\nin x: f16[8, 16]\ny = softmax(x)\nout y\n"));
  const Universe universe(terms);
  int exponentials = 0;
  for (ClassId id : terms.egraph.classes())
    for (const BlockTerm& term : universe.of(id)) exponentials += term.code == OpCode::exp;
  assert_int_equal(exponentials, 1);  // exp(x - max), and neither exp(x) nor exp(max)
  // Not even those that the program has stand for another: exp(x) overflows where exp(x - y) does not.
  const Terms both = saturated_terms(
      graph_of("graph g\nin x: f32[8, 16]\nin y: f32[8, 1]\na = exp(x)\nb = exp(y)\nd = sub(x, y)\nc = "
               "exp(d)\nout a, b, c\n"));
  const Universe of_both(both);
  for (const BlockTerm& term : of_both.of(both.egraph.find(both.goals[2])))
    assert_true(term.code == OpCode::exp);
}

void what_is_outside_says_why(void**) {
  assert_error(reason("graph g\nin x: f32[8, 16]\ny = reshape(x, shape=[16, 8])\nout y\n"),
               ErrorCode::UNSUPPORTED, "reshape");
  assert_error(reason("graph g\nin x: f32[8, 8]\ny = matmul(x, x)\nout y\n"), ErrorCode::UNSUPPORTED,
               "two dimensions");
  assert_error(reason("graph g\nin x: f32[8]\ny = cast(x, dtype=i32)\nout y\n"), ErrorCode::UNSUPPORTED,
               "cast");
  assert_error(reason("graph g\nin x: i32[8]\ny = mul(x, x)\nout y\n"), ErrorCode::UNSUPPORTED, "i32");
  assert_error(reason("graph g\nin x: f32[8]\ny = broadcast(x, shape=[4, 8])\nout y\n"),
               ErrorCode::UNSUPPORTED, "does not vary");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(equal_dimensions_are_one_label),
      cmocka_unit_test(renamings_are_no_terms),
      cmocka_unit_test(casts_that_change_no_value_are_no_terms),
      cmocka_unit_test(composites_are_their_definition),
      cmocka_unit_test(the_count_of_a_mean_is_no_number_of_the_program),
      cmocka_unit_test(only_the_programs_exponentials_are_admitted),
      cmocka_unit_test(what_is_outside_says_why),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
