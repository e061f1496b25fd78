// Types of values, and the rules that give the type of an operator's result.
#pragma once

#include <span>
#include <string>

#include "core/base/plan.h"
#include "core/base/status.h"
#include "core/lang/attrs.h"
#include "core/lang/op.h"

namespace quern {

struct TensorType {
  DType dtype = DType::f32;
  Ints shape;
  // A number written in the program: it takes the dtype of what it is combined with, as far as it can be
  // written in it.
  bool literal = false;
  bool operator==(const TensorType&) const = default;

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t element_count() const;
};

// "f16[16, 4096]"
std::string print_type(const TensorType& type);

// The most elements a tensor may have; offsets in bytes then fit 63 bits with room for strides.
inline constexpr int64_t kMaxElements = int64_t{1} << 40;

// An error unless rank, extents and element count are within the limits.
Status check_shape(const Ints& shape);

// The result type of `code` on operands of these types. Fills in and normalises `attrs` (see Attrs).
// INVALID_GRAPH with the operand types in the message when the operator does not take them.
Result<TensorType> infer_type(OpCode code, std::span<const TensorType> operands, Attrs& attrs);

// The dtype of a value that combines operands of these dtypes: f16 with bf16 gives f32, a float wins over i32
// over bool, and a literal counts only where nothing else decides (a fraction with integers gives f32).
DType promote(std::span<const TensorType> operands);

// The dtype an elementwise operator computes in: f32 for all floats, i32, or bool. Operands are converted to
// it first (the condition of `where` to bool).
DType compute_dtype(OpCode code, std::span<const TensorType> operands);

// The shape to which all of these broadcast as in numpy, or an error that names the dimension.
Result<Ints> broadcast_shapes(std::span<const TensorType> operands);

}  // namespace quern
