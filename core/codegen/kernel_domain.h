// A domain of evaluate_mugraph.h: the arithmetic of emitted kernels.
//
// Values are f32 (held as f64, rounded after every operation) or integers that wrap. Operands of products are
// rounded to what tensor cores read, exponentials are those that the emitter writes, tensors hold what fits
// their dtype. The sum of a product is that of 16 (tf32: 8) exact products at a time; other sums are taken in
// the order of the elements. A kernel's order is another one, so sums also follow what their positive and
// their negative terms make alone: in the worst order a sum is infinite where one of these is.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/codegen/arithmetic.h"
#include "core/verify/evaluate_mugraph.h"

namespace quern {

// How a kernel computes.
struct KernelForm {
  std::vector<Stage> stages;                         // of its operators
  bool approximate = false;                          // functions exact to some 2^-21
  std::map<BlockValue, DType> products;              // those on tensor cores: the dtype of their operands
  std::map<BlockValue, ExpArithmetic> exponentials;  // those of differences that one fma makes, or scaled
};

enum class SumOrder : uint8_t { elements, worst };

struct KernelValue {
  double v = 0;
  float above = 0, below = 0;  // of a sum: of its positive and of its negative terms; both 0 if it is none

  KernelValue(double value = 0) : v(value) {}
  friend bool operator==(const KernelValue& a, const KernelValue& b) { return a.v == b.v; }
};

class KernelDomain {
 public:
  using Value = KernelValue;
  using Tile = internal::Tile<Value>;

  // `mugraph` has the operators that `forms`, one a kernel, number.
  KernelDomain(const MuGraph& mugraph, const std::vector<KernelForm>& forms, SumOrder order)
      : mugraph_(mugraph), forms_(forms), order_(order) {}

  void enter(size_t kernel) { kernel_ = kernel; }
  const std::vector<Stage>& stages() const { return form().stages; }
  std::optional<Tile> compute(size_t op, const std::vector<std::optional<Tile>>& values) const;
  Value stored(Value value, DType dtype) const { return round_to(dtype, read(value)); }

  Value number(double value, DType dtype) const { return is_float(dtype) ? single(value) : value; }
  Value zero(DType) const { return 0; }
  Value identity(OpCode reduction, DType dtype) const { return reduction_identity(reduction, dtype); }
  Value combine(OpCode reduction, Value a, Value b, DType dtype) const;
  Value apply(OpCode code, DType compute, const Value* operands) const;
  Value convert(Value value, DType from, DType to) const;
  Value cast(Value value, DType, DType to) const { return round_to(to, read(value)); }
  Value add(Value a, Value b, DType dtype) const;
  // Of floats not rounded: the sum that it is added to is made by one fma.
  Value multiply(Value a, Value b, DType dtype) const;
  Value finish(Value value, const Node&) const { return value; }
  Value rescale(Value sum, Value old_shift, Value new_shift) const;

  // What an operator reads.
  double read(const Value& value) const;

 private:
  static double single(double value) { return static_cast<double>(static_cast<float>(value)); }
  Tile product(const BlockOp& op, const Tile& a, const Tile& b, DType operands) const;
  Tile shifted_exp(const ExpArithmetic& exp, const TensorType& type, const Tile& x, const Tile& shift) const;
  Tile scaled_exp(const ExpArithmetic& exp, const Tile& x) const;

  const KernelForm& form() const { return forms_[kernel_]; }

  const MuGraph& mugraph_;
  const std::vector<KernelForm>& forms_;
  const SumOrder order_;
  size_t kernel_ = 0;
};

}  // namespace quern
