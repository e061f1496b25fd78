// The text form: what parses, what prints, and what every mistake is answered with.
#include "core/graph/text.h"

#include <algorithm>

#include "core/graph/canon.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

using namespace quern;

static const char kSample[] =
    "# a comment\n"
    "graph sample   # another\n"
    "\n"
    "in  x: f16[16, 4096] strides[1, 16] const\n"
    "in  w: f16[4096, 32]\n"
    "y = rms_norm(x, eps=1e-6)\r\n"
    "z = matmul(y, w)\n"
    "a = mul(z, -0.5)\n"
    "b = add(a, 3)\n"
    "m = max(b, 2.0)\n"
    "r = max(m, axis=0)\n"
    "out r, z\n"
    "out x\n";

static void prints_in_normal_form(void**) {
  const Result<Graph> graph = parse_graph(kSample);
  assert_ok(graph);
  assert_text_equal(print_graph(*graph),
                    "graph sample\n"
                    "in x: f16[16, 4096] strides[1, 16] const\n"
                    "in w: f16[4096, 32]\n"
                    "y = rms_norm(x, axis=[1], eps=1e-06)\n"
                    "z = matmul(y, w)\n"
                    "a = mul(z, -0.5)\n"
                    "b = add(a, 3)\n"
                    "m = max(b, 2.0)\n"
                    "r = max(m, axis=[0], keepdims=false)\n"
                    "out r, z, x\n");
  assert_true(graph->node(graph->outputs[0]).type == (TensorType{DType::f16, {32}}));
}

static void what_is_not_finished_reads_back(void**) {
  const std::string text = "graph g\nin x: f16[2]\ny = exp(x)\n";
  assert_error(parse_graph(text), ErrorCode::INVALID_GRAPH, "4:1: the graph has no output");
  const Result<Graph> graph = parse_unfinished_graph(text);
  assert_ok(graph);
  assert_text_equal(print_graph(*graph), text);
  assert_error(parse_unfinished_graph(text + "out z\n"), ErrorCode::INVALID_GRAPH, "4:5: ");
}

static void a_byte_order_mark_is_skipped(void**) {
  const Result<Graph> graph = parse_graph("\xef\xbb\xbfgraph g\nin x: f16[2]\nout x\n");
  assert_ok(graph);
  assert_text_equal(graph->name, "g");
  assert_error(parse_graph("graph g\n\xef\xbb\xbfin x: f16[2]\nout x\n"), ErrorCode::INVALID_GRAPH, "2:1: ");
}

static void random_graphs_read_back(void**) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = print_graph(random_graph(seed));
    const Result<Graph> again = parse_graph(text);
    assert_ok(again);
    assert_text_equal(print_graph(*again), text);
    assert_ok(parse_graph(canonical_text(*again)));
  }
}

static void numbers_read_back(void**) {
  for (const char* number : {"1", "-1", "2147483647", "-2147483648", "1.0", "0.1", "1e30", "-1.5e-30", "inf",
                             "-inf", "nan", "1e9", ".5", "1000000.0"}) {
    const Result<Graph> graph =
        parse_graph(std::string("graph g\nin x: f32[2]\ny = add(x, ") + number + ")\nout y\n");
    assert_ok(graph);
    const Result<Graph> again = parse_graph(print_graph(*graph));
    assert_ok(again);
    assert_text_equal(print_graph(*again), print_graph(*graph));
    assert_int_equal(static_cast<int>(graph->nodes[1].type.dtype),
                     static_cast<int>(again->nodes[1].type.dtype));
  }
}

static void dot_has_every_edge(void**) {
  const std::string dot =
      print_dot(*parse_graph("graph g\nin x: f32[2]\ny = add(x, x)\nz = mul(y, x)\nout z\n"));
  for (const char* edge : {"n0 -> n1", "n1 -> n2", "n0 -> n2", "n2 -> out0"}) assert_contains(dot, edge);
}

struct Mistake {
  const char* text;
  const char* message;  // how the message must begin
};

static void mistakes_are_explained(void**) {
  const Mistake mistakes[] = {
      {"", "1:1: expected \"graph NAME\""},
      {"in x: f16[2]\n", "1:1: expected \"graph NAME\""},
      {"graph\n", "1:6: expected the name of the graph, found the end of the line"},
      {"graph g\n", "2:1: the graph has no output"},
      {"graph g\nin x f16[2]\n", "2:6: expected \":\", found \"f16\""},
      {"graph g\nin x: f64[2]\n", "2:7: expected a dtype (f16, bf16, f32, i32, bool), found \"f64\""},
      {"graph g\nin x: f16[2\n", "2:12: expected \",\" or \"]\", found the end of the line"},
      {"graph g\nin x: f16[2.5]\n", "2:11: expected an integer"},
      {"graph g\nin x: f16[-2]\n", "2:7: extent -2"},
      {"graph g\nin x: f16[1,1,1,1,1,1,1,1,1]\n", "2:7: rank 9 is above the limit of 8"},
      {"graph g\nin x: f16[99999999,99999999]\n", "2:7: [99999999, 99999999] has more than 2^40 elements"},
      {"graph g\nin x: f16[2,3] strides[1]\n", "2:16: expected one stride for each of the 2 dimensions"},
      {"graph g\nin x: f16[2] strides[-1]\n", "2:7: stride -1"},
      {"graph g\nin x: f16[2] konst\n", "2:14: expected \"strides\", \"const\""},
      {"graph g\nin x: f16[2]\nin x: f16[2]\n", "3:4: \"x\" is defined already"},
      {"graph g\nin x: f16[2]\ny = sofmax(x)\n",
       "3:5: there is no operator \"sofmax\"; did you mean \"softmax\"?"},
      {"graph g\nin x: f16[2]\ny = sin(x)\n", "3:5: there is no operator \"sin\""},
      {"graph g\nin x: f16[2]\ny = gt(x, 0)\n", "3:5: there is no operator \"gt\"; a > b is lt(b, a)"},
      {"graph g\nin x: f16[2]\ny = sub(-x, 1)\n", "3:9: \"-x\" is no operand; neg(x) is -x"},
      {"graph g\nin x: f16[4]\ny = reshape(x, shape=[2, -1, -1])\n",
       "3:5: reshape(f16[4]): only one extent of [2, -1, -1] can be -1"},
      {"graph g\nin x: f16[2]\ny = frobnicate(x)\n", "3:5: there is no operator \"frobnicate\""},
      {"graph g\nin x: f16[2]\ny = add(x)\n", "3:5: \"add\" takes 2 operands, not 1"},
      {"graph g\nin x: f16[2]\ny = max(x, x, x)\n", "3:5: \"max\" takes 2 or 1 operands, not 3"},
      {"graph g\nin x: f16[2]\ny = exp(z)\n", "3:9: \"z\" is not defined above this line"},
      {"graph g\nin x: f16[2]\ny = exp(x\n", "3:10: expected \",\" or \")\""},
      {"graph g\nin x: f16[2]\ny exp(x)\n", "3:3: expected \"=\" after \"y\""},
      {"graph g\nin x: f16[2]\ny = exp(add(x, x))\n", "3:9: an argument is a name or a number"},
      {"graph g\nin x: f16[2]\ny = sum(x, axs=0)\n", "3:12: there is no attribute \"axs\""},
      {"graph g\nin x: f16[2]\ny = sum(x, dim=0)\n", "3:12: there is no attribute \"dim\"; it is axis"},
      {"graph g\nin x: f16[2]\ny = cat(x, x)\n",
       "3:5: there is no operator \"cat\"; it is concat(a, b, axis=...)"},
      {"graph g\nin x: f16[2]\ny = exp(x, axis=0)\n", "3:5: exp(f16[2]): there is no attribute \"axis\""},
      {"graph g\nin x: f16[2]\ny = sum(x, axis=1)\n",
       "3:5: sum(f16[2]): axis 1 does not exist in a tensor of rank 1"},
      {"graph g\nin x: f16[2]\ny = sum(x, axis=[0, 0])\n", "3:5: sum(f16[2]): axis 0 is named twice"},
      {"graph g\nin x: f16[2]\ny = sum(x, axis=0, axis=0)\n", "3:20: the attribute \"axis\" is given twice"},
      {"graph g\nin x: f16[2]\ny = sum(axis=0, x)\n", "3:17: operands come before attributes"},
      {"graph g\nin x: f16[2]\ny = sum(x, keepdims=1)\n", "3:21: expected true or false"},
      {"graph g\nin x: f16[2]\ny = cast(x)\n", "3:5: cast(f16[2]): the attribute \"dtype\" is missing"},
      {"graph g\nin x: f16[2]\ny = reshape(x, shape=[3])\n",
       "3:5: reshape(f16[2]): shape [3] does not hold the 2 elements"},
      {"graph g\nin x: f16[0]\ny = reshape(x, shape=[0, -1])\n",
       "3:5: reshape(f16[0]): the extent -1 in [0, -1] is not determined"},
      {"graph g\nin x: f16[2,3]\ny = transpose(x, perm=[0, 0])\n",
       "3:5: transpose(f16[2, 3]): perm [0, 0] does not name each"},
      {"graph g\nin x: f16[2,3]\ny = slice(x, start=[0])\n",
       "3:5: slice(f16[2, 3]): slice needs one number per dimension"},
      {"graph g\nin x: f16[2]\ny = slice(x, step=[0])\n", "3:5: slice(f16[2]): step 0 is below 1"},
      {"graph g\nin x: f16[2,3]\ny = matmul(x, x)\n",
       "3:5: matmul(f16[2, 3], f16[2, 3]): the inner extents differ: 3 and 2"},
      {"graph g\nin x: f16[2,3]\nin y: f16[4,3]\nz = add(x, y)\n",
       "4:5: add(f16[2, 3], f16[4, 3]): extents 2 and 4 do not broadcast in dimension 0"},
      {"graph g\nin x: f16[2]\nin w: f16[3]\ny = rms_norm(x, w)\n",
       "4:5: rms_norm(f16[2], f16[3]): the weight has shape [3]"},
      {"graph g\nin x: f16[2]\ny = rms_norm(x, eps=-1)\n", "3:5: rms_norm(f16[2]): eps is -1"},
      {"graph g\nin x: f16[2]\ny = add(x, 99999999999)\n", "3:12: 99999999999 is not a 32-bit integer"},
      {"graph g\nin x: f16[2]\ny = add(x, 1e999)\n", "3:12: \"1e999\" is not a number"},
      {"graph g\nin x: f16[2]\ny = add(x, 1.2.3)\n", "3:12: \"1.2.3\" is not a number"},
      {"graph g\nin x: f16[2]\nout y\n", "3:5: \"y\" is not defined"},
      {"graph g\nin x: f16[2]\nout x y\n", "3:7: expected the end of the line, found \"y\""},
      {"graph g\nin inf: f16[2]\n", "2:4: \"inf\" cannot be a name"},
      {"graph g\ndim m in 1..64\n", "2:1: symbolic dimensions"},
      {"graph g\nin x: f16[2]\n$\n", "3:1: expected \"in\", \"out\", or a name and \"=\", found \"$\""},
      {"graph g\nin x: f16[2]\n\xff\xfe\n", "3:1: expected"},
  };
  for (const Mistake& mistake : mistakes) {
    const Result<Graph> graph = parse_graph(mistake.text);
    assert_error(graph.status(), ErrorCode::INVALID_GRAPH);
    const std::string& message = graph.status().message();
    if (message.rfind(mistake.message, 0) != 0)
      fail_test("for:\n" + std::string(mistake.text) + "\nexpected: " + mistake.message +
                "\nbut got: " + message);
  }
}

static void limits_hold(void**) {
  std::string text = "graph g\nin v0: f16[2]\n";
  for (int i = 0; i < 4097; ++i) text += "v" + std::to_string(i + 1) + " = neg(v" + std::to_string(i) + ")\n";
  assert_error(parse_graph(text + "out v4097\n").status(), ErrorCode::LIMIT, "4096 operators");
  assert_error(parse_graph(std::string(kMaxGraphText + 1, ' ')).status(), ErrorCode::LIMIT);
}

// No text may crash the parser: every cut and many damaged bytes of a real one.
static void damaged_texts_do_no_harm(void**) {
  const std::string text = kSample;
  for (size_t length = 0; length < text.size(); ++length) {
    const Result<Graph> graph = parse_graph(text.substr(0, length));
    if (!graph) assert_true(graph.status().message().size() > 4);
  }
  uint64_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = text;
    for (int i = 0; i < 3; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      damaged[(state >> 33) % damaged.size()] = static_cast<char>(state >> 25);
    }
    const Result<Graph> graph = parse_graph(damaged);
    if (graph) assert_ok(parse_graph(print_graph(*graph)));
  }
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(prints_in_normal_form),    cmocka_unit_test(what_is_not_finished_reads_back),
      cmocka_unit_test(a_byte_order_mark_is_skipped),
      cmocka_unit_test(random_graphs_read_back),
      cmocka_unit_test(numbers_read_back),        cmocka_unit_test(dot_has_every_edge),
      cmocka_unit_test(mistakes_are_explained),   cmocka_unit_test(limits_hold),
      cmocka_unit_test(damaged_texts_do_no_harm),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
