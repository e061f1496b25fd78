// Graphs without their repetitions compute the same, and have none where they can be without.
#include "core/search/regroup.h"

#include "tests/search/same_graph.h"
#include "tests/support/random_graph.h"

namespace quern {

namespace {

int count(const Graph& graph, OpCode code) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.code == code; }));
}

// `rest` is computed of r, f32[2, 6, 5, 4] that repeats k, f32[2, 3, 5, 4], each head twice.
std::string repeated(const std::string& rest, bool in_turn = false) {
  const std::string narrow = in_turn ? "[2, 1, 3, 5, 4]" : "[2, 3, 1, 5, 4]",
                    wide = in_turn ? "[2, 2, 3, 5, 4]" : "[2, 3, 2, 5, 4]";
  return "graph g\nin k: f32[2, 3, 5, 4]\nin q: f32[2, 6, 1, 4]\nin b: f32[6, 1, 1]\nin w: f32[4]\nin c: "
         "f32[2, 6, 5, 4]\n"
         "n = reshape(k, shape=" +
         narrow + ")\nx = broadcast(n, shape=" + wide + ")\nr = reshape(x, shape=[2, 6, 5, 4])\n" + rest;
}

void repetitions_disappear(void**) {
  const char* kRests[] = {
      "t = transpose(r, perm=[0, 1, 3, 2])\ns = matmul(q, t)\np = softmax(s)\no = matmul(p, r)\nout o\n",
      "t = transpose(r, perm=[0, 1, 3, 2])\ns = matmul(q, t)\nd = add(s, b)\nm = max(d, axis=3)\nout m, s\n",
      "y = mul(r, 2.0)\nz = add(y, c)\nout z\n",
      "y = rms_norm(r, w)\nz = mean(y, axis=[2])\nu = sum(z, axis=[0])\nout u\n",
      "y = cast(r, dtype=f16)\nz = transpose(y, perm=[1, 0, 2, 3])\ne = exp(z)\nout e\n",
      "y = sum(r, axis=[0, 3], keepdims=true)\nz = where(b, y, 1.5)\nout z\n",
      "y = mul(r, w)\nz = sub(r, y)\nout z\n",
      "y = exp(r)\nout y, y\n"};
  for (const char* rest : kRests)
    for (bool in_turn : {false, true}) {
      const Graph graph = graph_of(repeated(rest, in_turn));
      const Graph made = regroup(graph);
      assert_computes_the_same(graph, made);
      assert_string_not_equal(print_graph(made).c_str(), print_graph(graph).c_str());
      // What is computed is computed of what is not repeated.
      for (const Node& user : made.nodes)
        for (ValueId operand : user.operands)
          if (made.node(operand).code == OpCode::broadcast) assert_true(user.code == OpCode::reshape);
    }
}

// Where one dimension is asked for it is there, and what else is computed stays without.
void one_dimension_is_there_where_it_is_asked_for(void**) {
  const char* kRests[] = {
      "s = sum(r, axis=1)\ne = exp(r)\nout s, e\n",
      "s = softmax(r, axis=1)\nout s\n",
      "s = concat(r, c, axis=1)\nout s\n",
      "s = slice(r, start=[0, 1, 0, 0], stop=[2, 4, 5, 4])\nout s\n",
      "s = reshape(r, shape=[12, 20])\ne = neg(s)\nout e, r\n",
      "t = transpose(r, perm=[0, 2, 1, 3])\nu = transpose(t, perm=[0, 1, 3, 2])\ns = matmul(t, u)\nout s\n",
      "out r\n"};
  for (const char* rest : kRests)
    for (bool in_turn : {false, true}) {
      const Graph graph = graph_of(repeated(rest, in_turn));
      assert_computes_the_same(graph, regroup(graph));
    }
}

void each_operand_is_parted_once(void**) {
  const Graph graph = graph_of(repeated("y = mul(r, c)\nz = add(y, c)\nout z\n"));
  const Graph made = regroup(graph);
  assert_computes_the_same(graph, made);
  // Of k, of c and of the result.
  assert_int_equal(count(made, OpCode::reshape), 3);
}

// Scores of queries whose rows, or whose matrices, are groups: taken apart for a mask, and joined for the next product.
void groups_stay_apart(void**) {
  const char* kGraphs[] = {
      "in q: f32[2, 12, 4]\nin k: f32[2, 4, 5]\nin v: f32[2, 5, 6]\nin b: f32[4, 5]\ns = matmul(q, k)\nt = "
      "mul(s, 0.5)\n"
      "r = reshape(t, shape=[2, 3, 4, 5])\nw = add(r, b)\np = softmax(w)\nj = reshape(p, shape=[2, 12, 5])\n"
      "o = matmul(j, v)\nout o\n",
      "in q: f32[12, 4]\nin k: f32[4, 5]\nin v: f32[5, 6]\nin b: f32[4, 5]\ns = matmul(q, k)\nr = reshape(s, "
      "shape=[3, 4, 5])\n"
      "w = add(r, b)\np = softmax(w)\nj = reshape(p, shape=[12, 5])\no = matmul(j, v)\nout o, s\n",
      "in q: f32[6, 3, 4]\nin k: f32[6, 4, 5]\nin v: f32[6, 5, 6]\nin b: f32[2, 1, 1, 5]\ns = matmul(q, k)\n"
      "r = reshape(s, shape=[2, 3, 3, 5])\nw = add(r, b)\np = softmax(w)\nj = reshape(p, shape=[6, 3, 5])\n"
      "o = matmul(j, v)\nout o\n"};
  for (const char* rest : kGraphs) {
    const Graph graph = graph_of(std::string("graph g\n") + rest);
    const Graph made = regroup(graph);
    assert_computes_the_same(graph, made);
    // Both products have the dimensions of the groups, and nothing is joined between them.
    std::vector<int64_t> ranks;
    for (const Node& node : made.nodes) {
      if (node.code == OpCode::matmul) ranks.push_back(node.type.rank());
      for (ValueId operand : node.operands)
        if (node.code == OpCode::matmul && operand == node.operands[0] && ranks.size() == 2)
          assert_true(made.node(operand).code != OpCode::reshape);
    }
    const int64_t rank = graph.nodes[0].type.rank() + 1;
    assert_true(ranks == (std::vector<int64_t>{rank, rank}));
  }
}

// A value that is used twice by each of many operators: paths to the product double with every one of them.
void chains_of_uses_are_followed_once(void**) {
  std::string text =
      "graph g\nin q: f32[12, 4]\nin k: f32[4, 5]\nin v: f32[5, 6]\nin b: f32[4, 5]\ny0 = matmul(q, k)\n";
  for (int i = 0; i < 60; ++i) {
    const std::string before = "y" + std::to_string(i);
    text += "y" + std::to_string(i + 1) + " = max(" + before + ", " + before + ")\n";
  }
  const Graph graph = graph_of(text +
                               "r = reshape(y60, shape=[3, 4, 5])\nw = add(r, b)\nj = reshape(w, shape=[12, "
                               "5])\no = matmul(j, v)\nout o\n");
  assert_computes_the_same(graph, regroup(graph));
}

void other_graphs_stay(void**) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = random_graph(seed);
    const Graph made = regroup(graph);
    if (count(graph, OpCode::broadcast) == 0)
      assert_text_equal(print_graph(made), print_graph(graph));
    else
      assert_computes_the_same(graph, made);
  }
  // A reshape that joins what is not repeated.
  const Graph joined =
      graph_of("graph g\nin x: f32[2, 3, 4]\nr = reshape(x, shape=[6, 4])\ny = exp(r)\nout y\n");
  assert_text_equal(print_graph(regroup(joined)), print_graph(joined));
  // Rows that are taken apart and not joined; columns.
  for (const char* rest :
       {"r = reshape(s, shape=[3, 4, 5])\ny = exp(r)\nout y\n",
        "r = reshape(s, shape=[12, 1, 5])\ny = exp(r)\nj = reshape(y, shape=[12, 5])\nout j\n"}) {
    const Graph apart =
        graph_of(std::string("graph g\nin a: f32[12, 4]\nin b: f32[4, 5]\ns = matmul(a, b)\n") + rest);
    assert_text_equal(print_graph(regroup(apart)), print_graph(apart));
  }
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(repetitions_disappear),
                              cmocka_unit_test(one_dimension_is_there_where_it_is_asked_for),
                              cmocka_unit_test(each_operand_is_parted_once),
                              cmocka_unit_test(groups_stay_apart),
                              cmocka_unit_test(chains_of_uses_are_followed_once),
                              cmocka_unit_test(other_graphs_stay)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
