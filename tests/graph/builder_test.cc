// The builder refuses what would not be a valid graph.
#include "core/graph/builder.h"

#include "core/graph/text.h"
#include "tests/support/test.h"

using namespace quern;

static void builds_what_the_text_says(void**) {
  GraphBuilder builder("g");
  const ValueId x = *builder.add_input("x", DType::f16, {2, 3});
  const ValueId two = *builder.add_constant(2, true);
  const ValueId operands[] = {x, two};
  const ValueId y = *builder.add_op(OpCode::mul, operands);
  assert_ok(builder.add_output(y));
  assert_text_equal(print_graph(*builder.finish()), "graph g\nin x: f16[2, 3]\nv2 = mul(x, 2)\nout v2\n");
}

static void refuses_what_is_invalid(void**) {
  GraphBuilder builder("g");
  const ValueId x = *builder.add_input("x", DType::f16, {2, 3});
  const ValueId stranger[] = {x, 99};
  assert_error(builder.add_op(OpCode::add, stranger).status(), ErrorCode::INVALID_GRAPH, "operand 1 is 99");
  assert_error(builder.add_op(OpCode::input, {}).status(), ErrorCode::INVALID_GRAPH);
  assert_error(builder.add_input("x", DType::f16, {2}).status(), ErrorCode::INVALID_GRAPH, "taken");
  assert_error(builder.add_input("2x", DType::f16, {2}).status(), ErrorCode::INVALID_GRAPH,
               "cannot be a name");
  assert_error(builder.add_input("s", DType::f16, {2, 2}, {1}).status(), ErrorCode::INVALID_GRAPH, "strides");
  assert_error(builder.add_constant(0.5, true).status(), ErrorCode::INVALID_GRAPH);
  assert_error(builder.add_output(5), ErrorCode::INVALID_GRAPH);
  assert_error(builder.add_output(*builder.add_constant(1, true)), ErrorCode::INVALID_GRAPH, "not a number");
  assert_error(builder.finish().status(), ErrorCode::INVALID_GRAPH, "no output");
}

static void numbers_are_rounded_to_what_they_meet(void**) {
  auto rounded = [](const std::string& inputs, const std::string& line) {
    auto graph = parse_graph("graph g\n" + inputs + "y = " + line + "\nout y\n");
    assert_ok(graph);
    const std::string text = print_graph(*graph);
    return text.substr(text.find("y = "), text.find("\nout") - text.find("y = "));
  };
  const std::string half = "in x: f16[2]\nin c: bool[2]\n", bfloat = "in x: bf16[2]\nin c: bool[2]\n",
                    single = "in x: f32[2]\nin c: bool[2]\n", whole = "in x: i32[2]\n";
  assert_text_equal(rounded(half, "mul(x, 0.3)"), "y = mul(x, 0.300048828125)");
  assert_text_equal(rounded(half, "where(c, x, -1e30)"), "y = where(c, x, -inf)");
  assert_text_equal(rounded(half, "lt(0.3, x)"), "y = lt(0.300048828125, x)");
  assert_text_equal(rounded(half, "add(x, 2049)"), "y = add(x, 2048.0)");
  assert_text_equal(rounded(half, "add(x, 2)"), "y = add(x, 2)");
  assert_text_equal(rounded(bfloat, "mul(x, 0.3)"), "y = mul(x, 0.30078125)");
  assert_text_equal(rounded(single, "where(c, x, -1e30)"), "y = where(c, x, -1e+30)");
  assert_text_equal(rounded(whole, "add(x, 2049)"), "y = add(x, 2049)");
}

static void names_of_its_own_are_free(void**) {
  GraphBuilder builder("g");
  const ValueId x = *builder.add_input("v1", DType::f16, {2});
  const ValueId operands[] = {x};
  const ValueId y = *builder.add_op(OpCode::neg, operands);
  assert_false(builder.graph().node(y).name == "v1");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(builds_what_the_text_says),
                              cmocka_unit_test(refuses_what_is_invalid),
                              cmocka_unit_test(numbers_are_rounded_to_what_they_meet),
                              cmocka_unit_test(names_of_its_own_are_free)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
