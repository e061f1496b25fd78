#include "core/codegen/block/computed_products.h"

#include <bit>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

// Of each operator, as an expression over tensors. What is neither loaded nor computed of loads, as what a loop has summed up,
// is only itself.
std::vector<Hash128> expressions(const BlockProgram& program) {
  std::vector<Hash128> out;
  for (const BlockOp& op : program.ops) {
    std::string text;
    if (op.is_load()) {
      text = "tensor " + std::to_string(op.tensor());
    } else if (!op.is_compute()) {
      text = "value " + std::to_string(out.size());
    } else {
      text = std::string(op_info(op.code()).text) + print_attrs(op.attrs());
      if (op.is_compute(OpCode::constant)) text += std::to_string(std::bit_cast<uint64_t>(op.number()));
      for (BlockValue operand : op.operands) text += " " + to_hex(out[static_cast<size_t>(operand)]);
    }
    out.push_back(hash128(text));
  }
  return out;
}

std::string how(const MatmulPlan& plan) {
  std::string out = "FMA";
  if (plan.tensor_cores) {
    out = std::string(plan.wgmma ? "wgmma" : "mma") + " of " + dtype_info(plan.dtype).name;
    if (plan.dtype == DType::f32) out += plan.tf32x3 ? " (3xTF32)" : " (tf32)";
  }
  if (const int bits = std::popcount(plan.partial_warps); bits > 0)
    out += ", the inner dimension split over " + std::to_string(1 << bits) + " warps";
  return out;
}

}  // namespace

ComputedProducts computed_products(const BlockProgram& program, const ProductPlans& plans) {
  const std::vector<Hash128> what = expressions(program);
  ComputedProducts out;
  for (const auto& [product, plan] : plans.all()) out.emplace(what[static_cast<size_t>(product)], how(plan));
  return out;
}

}  // namespace quern
