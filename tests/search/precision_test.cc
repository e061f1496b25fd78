// What tensor cores can take the operands of products as, of all ways to compute a graph.
#include "core/search/precision.h"

#include <set>

#include "tests/search/examples.h"

namespace quern {

namespace {

// "mul(x, g) tf32": the operands of all products of all DAGs.
std::set<std::string> operands_of_products(std::string_view text) {
  const Terms terms = saturated_terms(graph_of(text));
  std::set<std::string> out;
  for_each_dag(terms, 9, [&](const Dag& dag) {
    const std::vector<Precision> precision = precisions(dag, terms);
    std::vector<std::string> name;
    for (size_t at = 0; at < dag.ops.size(); ++at) {
      const DagOp& op = dag.ops[at];
      std::string operands;
      for (int operand : op.operands)
        operands += (operands.empty() ? "" : ", ") + name[static_cast<size_t>(operand)];
      if (op.term.kind == BlockKind::leaf)
        name.push_back("in" + std::to_string(op.term.index));
      else
        name.push_back(
            std::string(op.term.kind == BlockKind::matmul ? "matmul" : op_info(op.term.code).text) + "(" +
            operands + ")");
      if (op.term.kind != BlockKind::matmul) continue;
      constexpr const char* kNames[] = {"narrow", "tf32", "full"};
      for (int operand : op.operands)
        out.insert(name[static_cast<size_t>(operand)] + " " +
                   kNames[static_cast<size_t>(precision[static_cast<size_t>(operand)])]);
    }
  });
  return out;
}

void assert_has(const std::set<std::string>& operands, const std::string& one) {
  std::string all;
  for (const std::string& each : operands) all += each + "\n";
  assert_contains(all, one + "\n");
}

std::string scaled_rows(const char* row, const char* weight) {
  return std::string("graph g\nin x: f16[64, 32]\nin r: ") + row + "[64, 1]\nin g: " + weight +
         "[32]\nin w: f16[32, 48]\na = mul(x, r)\nb = mul(a, g)\ny = matmul(b, w)\nout y\n";
}

// The rows' factors may be moved behind the product: what stays in front of it is no value of the graph.
void what_is_invented_goes_in_as_tf32(void**) {
  const std::set<std::string> operands = operands_of_products(scaled_rows("f16", "f16"));
  assert_has(operands, "mul(in2, mul(in0, in1)) narrow");
  assert_has(operands, "mul(in0, in2) tf32");
  assert_has(operands, "in3 narrow");
}

// The unfused program computes such a product in f32 and rounds nothing for it.
void what_is_computed_in_f32_leaves_tensor_cores(void**) {
  const std::set<std::string> operands = operands_of_products(scaled_rows("f32", "f16"));
  assert_has(operands, "mul(in2, mul(in0, in1)) full");
  assert_has(operands, "mul(in0, in2) full");  // though both have 16 bits
  assert_has(operands, "in3 narrow");
}

// With both factors moved, the operands are 16-bit numbers, and their products exact in f32.
void what_has_16_bits_goes_in_as_it_is(void**) {
  const std::string text =
      "graph g\nin x: f16[64, 32]\nin r: f32[64, 1]\nin w: f16[32, 48]\na = mul(x, r)\ny = matmul(a, w)\nout "
      "y\n";
  const std::set<std::string> operands = operands_of_products(text);
  assert_has(operands, "mul(in0, in1) full");
  assert_has(operands, "in0 narrow");
  assert_has(operands, "in2 narrow");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_invented_goes_in_as_tf32),
      cmocka_unit_test(what_is_computed_in_f32_leaves_tensor_cores),
      cmocka_unit_test(what_has_16_bits_goes_in_as_it_is),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
