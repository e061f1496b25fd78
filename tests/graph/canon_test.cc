// The canonical form: equal for what is the same program, different for every change that a kernel depends
// on.
#include "core/graph/canon.h"

#include <algorithm>
#include <random>
#include <set>

#include "core/graph/text.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

using namespace quern;

static std::string canon(const std::string& text) {
  const Result<Graph> graph = parse_graph(text);
  assert_ok(graph);
  return canonical_text(*graph);
}

static void same_program_same_text(void**) {
  const std::string text = canon(
      "graph a\nin x: f16[4, 8]\nin w: f16[8, 2]\ny = rms_norm(x)\nz = matmul(y, w)\ne = exp(z)\no = add(e, "
      "z)\nout o\n");
  const char* others[] = {
      // renamed
      "graph b\nin p: f16[4, 8]\nin q: f16[8, 2]\nr = rms_norm(p)\ns = matmul(r, q)\nt = exp(s)\nu = add(t, "
      "s)\nout u\n",
      // spelled-out defaults
      "graph a\nin x: f16[4, 8] strides[8, 1]\nin w: f16[8, 2]\ny = rms_norm(x, axis=-1, eps=0.00001)\nz = "
      "matmul(y, w)\ne = exp(z)\no = add(e, z)\nout o\n",
      // dead code
      "graph a\nin x: f16[4, 8]\nd = exp(x)\nin w: f16[8, 2]\ny = rms_norm(x)\nz = matmul(y, w)\ne = "
      "exp(z)\nf = neg(e)\no = add(e, z)\nout o\n",
      // a repeated subexpression
      "graph a\nin x: f16[4, 8]\nin w: f16[8, 2]\ny = rms_norm(x)\nz = matmul(y, w)\nz2 = matmul(y, w)\ne = "
      "exp(z2)\no = add(e, z)\nout o\n",
  };
  for (const char* other : others) assert_text_equal(canon(other), text);
}

// Random programs in a random order of statements that keeps operands before users, with random names.
static Graph shuffled(const Graph& graph, std::mt19937_64& random) {
  Graph result;
  result.name = "shuffled";
  std::vector<ValueId> at(graph.nodes.size(), -1);
  auto place = [&](ValueId id) {
    Node node = graph.node(id);
    for (ValueId& operand : node.operands) operand = at[operand];
    if (node.code != OpCode::constant) node.name = "n" + std::to_string(random());
    at[id] = static_cast<ValueId>(result.nodes.size());
    result.nodes.push_back(node);
  };
  for (ValueId id : graph.inputs) place(id), result.inputs.push_back(at[id]);
  for (;;) {
    std::vector<ValueId> ready;
    for (size_t id = 0; id < graph.nodes.size(); ++id) {
      const auto& operands = graph.nodes[id].operands;
      if (at[id] < 0 && std::all_of(operands.begin(), operands.end(), [&](ValueId o) { return at[o] >= 0; }))
        ready.push_back(static_cast<ValueId>(id));
    }
    if (ready.empty()) break;
    place(ready[random() % ready.size()]);
  }
  for (ValueId id : graph.outputs) result.outputs.push_back(at[id]);
  return result;
}

static void order_and_names_do_not_matter(void**) {
  std::mt19937_64 random(7);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = random_graph(seed);
    const std::string text = canonical_text(graph);
    assert_text_equal(canonical_text(shuffled(graph, random)), text);
    assert_text_equal(canon(text), text);  // canonical text is its own canonical form
  }
}

// One base program and one small change each: all canonical texts must differ.
static void every_change_matters(void**) {
  const std::string base =
      "graph g\nin x: f16[4, 8]\nin v: f16[4, 8]\nin c: bool[4, 8]\nin w: f16[8, 8]\ny = rms_norm(x, "
      "eps=1e-5)\nz = matmul(y, w)\n"
      "s = softmax(z, axis=1)\nt = sub(s, v)\nu = mul(t, 2.0)\nq = where(c, u, v)\nr = sum(q, axis=1, "
      "keepdims=true)\nk = slice(q, start=[0, 2], stop=[4, 6])\n"
      "p = transpose(k, perm=[1, 0])\nh = cast(p, dtype=f32)\nj = concat(q, v, axis=0)\ni = iota(shape=[4, "
      "8], axis=1)\nl = add(q, i)\nout r, h, j, l\n";
  const std::pair<const char*, const char*> changes[] = {
      {"x: f16[4, 8]", "x: bf16[4, 8]"},                                         // dtype
      {"x: f16[4, 8]", "x: f16[4, 8] strides[1, 4]"},                            // strides
      {"x: f16[4, 8]", "x: f16[4, 8] const"},                                    // const
      {"x: f16[4, 8]", "x: f16[1, 8]"},                                          // shape
      {"in x: f16[4, 8]\nin v: f16[4, 8]", "in v: f16[4, 8]\nin x: f16[4, 8]"},  // input order
      {"out r, h, j, l", "out h, r, j, l"},                                      // output order
      {"out r, h, j, l", "out r, h, j"},                                         // fewer outputs
      {"out r, h, j, l", "out r, h, j, l, l"},                                   // an output twice
      {"eps=1e-5", "eps=1e-6"},                                                  // attribute
      {"s = softmax(z, axis=1)", "s = softmax(z, axis=0)"},
      {"sub(s, v)", "sub(v, s)"},      // wiring: operand order
      {"sub(s, v)", "sub(s, x)"},      // wiring: another value
      {"sub(s, v)", "add(s, v)"},      // operator
      {"mul(t, 2.0)", "mul(t, 2.5)"},  // number
      {"mul(t, 2.0)", "mul(t, 2)"},    // kind of number
      {"where(c, u, v)", "where(c, v, u)"},
      {"axis=1, keepdims=true", "axis=1, keepdims=false"},
      {"sum(q", "max(q"},
      {"start=[0, 2], stop=[4, 6]", "start=[0, 3], stop=[4, 7]"},
      {"stop=[4, 6]", "stop=[4, 6], step=[1, 2]"},
      {"perm=[1, 0]", "perm=[0, 1]"},
      {"dtype=f32", "dtype=bf16"},
      {"concat(q, v, axis=0)", "concat(v, q, axis=0)"},
      {"concat(q, v, axis=0)", "concat(q, v, axis=1)"},
      {"iota(shape=[4, 8], axis=1)", "iota(shape=[4, 8], axis=0)"},
      {"iota(shape=[4, 8], axis=1)", "iota(shape=[4, 8], axis=1, dtype=f32)"},
      {"in w: f16[8, 8]", "in w: f16[8, 8]\nin unused: f16[1]"},  // an unread input is still a parameter
  };
  std::set<std::string> texts = {canon(base)};
  for (const auto& [from, to] : changes) {
    std::string changed = base;
    const size_t at = changed.find(from);
    assert_true(at != std::string::npos);
    changed.replace(at, std::string(from).size(), to);
    if (!texts.insert(canon(changed)).second)
      fail_test(std::string("no difference after ") + from + " -> " + to);
  }
}

static void deep_programs_fit_the_stack(void**) {
  std::string text = "graph g\nin v0: f16[2]\n";
  for (int i = 0; i < 4096; ++i) text += "v" + std::to_string(i + 1) + " = neg(v" + std::to_string(i) + ")\n";
  assert_true(canon(text + "out v4096\n").size() > 4096);
  std::string ladder = "graph g\nin v0: f16[2]\n";
  for (int i = 0; i < 1000; ++i)
    ladder +=
        "v" + std::to_string(i + 1) + " = add(v" + std::to_string(i) + ", v" + std::to_string(i) + ")\n";
  assert_true(canon(ladder + "out v1000\n").size() < 100000);
}

// What is stored is parsed and printed again by whoever checks its hash.
static void the_text_is_that_of_its_graph(void**) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const std::string text = canonical_text(random_graph(seed, {.max_ops = 24}));
    const Result<Graph> graph = parse_graph(text);
    assert_ok(graph);
    assert_text_equal(print_graph(*graph), text);
    assert_text_equal(canonical_text(*graph), text);
  }
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(same_program_same_text),
      cmocka_unit_test(order_and_names_do_not_matter),
      cmocka_unit_test(every_change_matters),
      cmocka_unit_test(the_text_is_that_of_its_graph),
      cmocka_unit_test(deep_programs_fit_the_stack),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
