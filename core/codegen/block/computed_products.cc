#include "core/codegen/block/computed_products.h"

#include "core/base/dtype_info.h"

namespace quern {

namespace {

// An expression over tensors. What is neither loaded nor computed of loads, as what a loop has summed up, is only itself.
std::string what(const BlockProgram& program, BlockValue value) {
  const BlockOp& op = program.op(value);
  if (op.is_load()) return "t" + std::to_string(op.tensor());
  if (program.is_number(value)) return std::to_string(op.number());
  if (!op.is_compute()) return "v" + std::to_string(value);
  std::string out = std::string(op_info(op.code()).text) + print_attrs(op.attrs()) + "(";
  for (BlockValue operand : op.operands) out += what(program, operand) + ",";
  return out + ")";
}

std::string how(const MatmulPlan& plan) {
  const std::string by = !plan.tensor_cores ? "fma"
                         : plan.wgmma       ? "wgmma"
                                            : "mma",
                    of = std::string(dtype_info(plan.tensor_cores ? plan.dtype : DType::f32).name) +
                         (plan.tf32x3 ? "x3" : "");
  return by + " of " + of + " in " + std::to_string(1 << __builtin_popcount(plan.partial_warps)) + " parts";
}

}  // namespace

ComputedProducts computed_products(const BlockProgram& program, const ProductPlans& plans) {
  ComputedProducts out;
  for (const auto& [product, plan] : plans.all()) out.emplace(what(program, product), how(plan));
  return out;
}

}  // namespace quern
