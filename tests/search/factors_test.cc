// Factors of sums: of all ways to compute a graph, those whose terms leave the range of the program's.
#include "core/search/factors.h"

#include <algorithm>
#include <set>

#include "tests/search/examples.h"

namespace quern {

namespace {

// The DAGs of a product some of whose factors have moved over sums, or those without such.
std::set<std::string> dags(const std::string& text, bool with) {
  const Terms terms = saturated_terms(graph_of(text));
  const Factors factors(terms);
  std::set<std::string> out;
  for_each_dag(terms, 8, [&](const Dag& dag) {
    const std::string text = print_dag(dag, terms);
    // Others multiply what the sum adds up element by element.
    if (text.find("matmul") != std::string::npos && factors.are_moved(dag) == with) out.insert(text);
  });
  return out;
}

size_t last_factor(const std::string& dag) {
  size_t last = 0;
  for (const char* factor : {"mul(", "div("})
    if (const size_t at = dag.rfind(factor); at != dag.npos) last = std::max(last, at);
  return last;
}

// Of one product and one factor: in front of either operand, or behind.
void numbers_stay_behind_products(void**) {
  const char* text =
      "graph g\nin x: f32[8, 16]\nin w: f32[16, 24]\na = matmul(x, w)\ny = mul(a, 1000)\nout y\n";
  const std::set<std::string> in_front = dags(text, true), behind = dags(text, false);
  assert_true(in_front.size() >= 2);
  for (const std::string& dag : behind) assert_true(dag.find("mul") > dag.find("matmul"));
  assert_true(!behind.empty());
}

// What the graph itself multiplies in front of a product stays allowed there; behind the product it must not
// be missed.
void the_graphs_own_factors_stay(void**) {
  auto places = [](const std::string& text) {
    bool in_front = false, behind = false;
    for (const std::string& dag : dags(text, false))
      (last_factor(dag) < dag.find("matmul") ? in_front : behind) = true;
    return std::pair(in_front, behind);
  };
  auto scaled = [](const std::string& dtype, const std::string& made) {
    return "graph g\nin x: " + dtype + "[8, 16]\nin r: " + dtype + "[8, 1]\nin w: " + dtype + "[16, 24]\n" +
           made + "y = matmul(a, w)\nout y\n";
  };
  const std::string given = "a = mul(x, r)\n";
  assert_true(places(scaled("f32", given)) == std::pair(true, false));
  assert_true(places(scaled("f16", given)) == std::pair(true, true));
  // Of norms, too.
  const std::string of_rows =
      "s = mul(x, x)\nm = sum(s, axis=1, keepdims=true)\nt = rsqrt(m)\na = mul(x, t)\n";
  assert_true(places(scaled("f32", of_rows)) == std::pair(true, false));
  assert_true(places(scaled("f16", of_rows)) == std::pair(true, true));
}

// What softmax divides by: the exponentials are at most 1 without it.
void sums_of_exponentials_go_behind_products(void**) {
  bool behind = false;
  for (const std::string& dag : dags("graph g\nin x: bf16[8, 16]\nin w: bf16[16, 24]\np = softmax(x)\ny = "
                                     "matmul(p, w)\nout y\n",
                                     false))
    behind |= dag.find("matmul") < last_factor(dag);
  assert_true(behind);
}

// A number that keeps the terms of the graph's product small stays in front of it, unless f32 holds them
// anyway.
void numbers_that_make_terms_smaller_stay_in_front(void**) {
  for (const std::string dtype : {"bf16", "f16", "f32"})
    for (const std::string factor : {"mul(x, 0.125)", "div(x, 8)", "mul(x, 8)"}) {
      bool behind = false;
      for (const std::string& dag : dags("graph g\nin x: " + dtype + "[8, 16]\nin w: " + dtype +
                                             "[16, 24]\na = " + factor + "\ny = matmul(a, w)\nout y\n",
                                         false))
        behind |= std::min(dag.find("mul("), dag.find("div(")) > dag.find("matmul");
      assert_true(behind == (dtype == "f16" || factor == "mul(x, 8)"));
    }
}

// Means divide what they add up.
void means_are_sums(void**) {
  assert_false(dags("graph g\nin x: f32[8, 16]\nin w: f32[16, 24]\ns = mean(x, axis=1, keepdims=true)\n"
                    "y = matmul(x, w)\nz = mul(y, s)\nout z\n",
                    false)
                   .empty());
}

// (a + b) c with a product a: c may be multiplied to a, but not to what a is a sum of.
void distributed_factors_stay_behind_products(void**) {
  const char* text =
      "graph g\nin x: f16[8, 16]\nin w: f16[16, 24]\nin b: f16[24]\nin c: f16[24]\na = matmul(x, w)\ns = "
      "add(a, b)\n"
      "y = mul(s, c)\nout y\n";
  assert_true(!dags(text, true).empty());
  for (const std::string& dag : dags(text, false)) assert_true(dag.find("mul(") > dag.find("matmul"));
}

// In silu(a + b) the sum is there for the sigmoid; its product with that is not made of products of a and b.
void sums_are_not_multiplied_out(void**) {
  const std::string given =
      "graph g\nin x: f16[8, 16]\nin w: f16[16, 24]\nin b: f16[24]\na = matmul(x, w)\ns = add(a, b)\nt = "
      "sigmoid(s)\n";
  auto sums = [](const std::string& dag) {
    size_t count = 0;
    for (size_t at = dag.find("add("); at != dag.npos; at = dag.find("add(", at + 1)) ++count;
    return count;
  };
  auto most_sums = [&](const std::string& text, bool with) {
    size_t most = 0;
    for (const std::string& dag : dags(text, with)) most = std::max(most, sums(dag));
    return most;
  };
  const std::string product = given + "y = mul(s, t)\nout y\n";
  assert_int_equal(most_sums(product, true), 2);
  assert_int_equal(most_sums(product, false), 1);
  // As the graph has it, it may stay.
  assert_int_equal(most_sums(given + "p = mul(a, t)\nq = mul(b, t)\ny = add(p, q)\nout y\n", false), 2);
  // Two products in one contraction have it in one operator.
  const std::string contracted = given + "in v: f16[24, 8]\nm = mul(s, t)\ny = matmul(m, v)\nout y\n";
  auto concatenates = [&](bool with) {
    const std::set<std::string> all = dags(contracted, with);
    return std::any_of(all.begin(), all.end(),
                       [](const std::string& dag) { return dag.find("concat") != dag.npos; });
  };
  assert_true(concatenates(true));
  assert_false(concatenates(false));
}

// (a - b) v by a v - b v: where v is infinite that is undefined. What the graph adds up itself may stay.
void sums_are_not_contracted_one_by_one(void**) {
  const std::string given = "graph g\nin a: f32[8, 16]\nin b: f32[8, 16]\nin v: f32[16, 24]\n";
  auto contractions = [](const std::string& text, bool with) {
    size_t most = 0;
    for (const std::string& dag : dags(text, with)) {
      size_t count = 0;
      for (size_t at = dag.find("matmul["); at != dag.npos; at = dag.find("matmul[", at + 1)) ++count;
      most = std::max(most, count);
    }
    return most;
  };
  for (const std::string sum : {"add", "sub"}) {
    const std::string once = given + "d = " + sum + "(a, b)\ny = matmul(d, v)\nout y\n";
    assert_int_equal(contractions(once, true), 2);
    assert_int_equal(contractions(once, false), 1);
    const std::string twice = given + "p = matmul(a, v)\nq = matmul(b, v)\ny = " + sum + "(p, q)\nout y\n";
    assert_int_equal(contractions(twice, false), 2);
  }
}

}  // namespace

}  // namespace quern

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(quern::numbers_stay_behind_products),
                              cmocka_unit_test(quern::the_graphs_own_factors_stay),
                              cmocka_unit_test(quern::numbers_that_make_terms_smaller_stay_in_front),
                              cmocka_unit_test(quern::sums_of_exponentials_go_behind_products),
                              cmocka_unit_test(quern::means_are_sums),
                              cmocka_unit_test(quern::sums_are_not_multiplied_out),
                              cmocka_unit_test(quern::sums_are_not_contracted_one_by_one),
                              cmocka_unit_test(quern::distributed_factors_stay_behind_products)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
