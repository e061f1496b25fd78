#include "core/lang/type.h"

#include <algorithm>

namespace quern {

int64_t TensorType::element_count() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

std::string print_type(const TensorType& type) { return dtype_name(type.dtype) + print_ints(type.shape); }

Status check_shape(const Ints& shape) {
  if (shape.size() > kMaxRank)
    return Status(ErrorCode::INVALID_GRAPH, "rank " + std::to_string(shape.size()) +
                                                " is above the limit of " + std::to_string(kMaxRank));
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || extent > kMaxElements)
      return Status(ErrorCode::INVALID_GRAPH, "extent " + std::to_string(extent) + " in " +
                                                  print_ints(shape) + " is not between 0 and 2^40");
    // Zero extents do not excuse the others: strides are computed from all of them.
    const int64_t factor = std::max<int64_t>(extent, 1);
    if (count > kMaxElements / factor)
      return Status(ErrorCode::INVALID_GRAPH, print_ints(shape) + " has more than 2^40 elements");
    count *= factor;
  }
  return {};
}

DType promote(std::span<const TensorType> operands) {
  bool seen = false;
  DType result = DType::boolean;
  bool fraction = false, integer = false;
  auto combine = [&](DType dtype) {
    if (!seen || !is_float(result))
      result = is_float(dtype) || (dtype == DType::i32) || !seen ? dtype : result;
    else if (is_float(dtype) && dtype != result)
      result = DType::f32;
    seen = true;
  };
  for (const TensorType& operand : operands) {
    if (!operand.literal) combine(operand.dtype);
    fraction |= operand.literal && is_float(operand.dtype);
    integer |= operand.literal && !is_float(operand.dtype);
  }
  if (fraction && !(seen && is_float(result))) return DType::f32;
  if (integer && !(seen && result != DType::boolean)) return DType::i32;
  return result;
}

DType compute_dtype(OpCode code, std::span<const TensorType> operands) {
  const OpInfo& op = op_info(code);
  if (op.result == ResultRule::floating) return DType::f32;
  const DType dtype = promote(op.result == ResultRule::select ? operands.subspan(1) : operands);
  if (is_float(dtype)) return DType::f32;
  return op.result == ResultRule::select ? dtype : DType::i32;
}

Result<Ints> broadcast_shapes(std::span<const TensorType> operands) {
  Ints shape;
  for (const TensorType& operand : operands) {
    if (operand.shape.size() > shape.size())
      shape.insert(shape.begin(), operand.shape.size() - shape.size(), 1);
    const size_t offset = shape.size() - operand.shape.size();
    for (size_t i = 0; i < operand.shape.size(); ++i) {
      int64_t& extent = shape[offset + i];
      if (extent == 1)
        extent = operand.shape[i];
      else if (operand.shape[i] != 1 && operand.shape[i] != extent)
        return Status(ErrorCode::INVALID_GRAPH,
                      "extents " + std::to_string(extent) + " and " + std::to_string(operand.shape[i]) +
                          " do not broadcast in dimension " + std::to_string(offset + i));
    }
  }
  return shape;
}

}  // namespace quern
