// Domains of evaluate.h over f64: exact for the reference, and perturbed for the error of the unfused
// program.
#pragma once

#include <cmath>
#include <limits>
#include <random>

#include "core/graph/graph.h"
#include "core/lang/meaning.h"
#include "core/lang/value_real.h"

namespace quern {

// Every value is held as f64; i32 values are integers in it.
struct RealDomain {
  using Value = double;

  // What is written in the program is a real number; indices are rounded to the dtype they have.
  double number(double value, DType dtype) { return dtype == DType::f32 ? value : round_to(dtype, value); }
  double zero(DType) { return 0; }
  double lowest(DType dtype) {
    return is_float(dtype) ? -std::numeric_limits<double>::infinity() : std::numeric_limits<int32_t>::min();
  }
  double apply(OpCode code, DType compute, const double* operands) {
    if (!is_float(compute)) return with<Int>(code, operands);
    return with<Real>(code, operands);
  }
  double convert(double value, DType, DType to) { return to == DType::boolean ? value != 0 : value; }
  double cast(double value, DType, DType to) { return round_to(to, value); }
  double add(double a, double b, DType dtype) { return is_float(dtype) ? a + b : (Int(a) + Int(b)).v; }
  double multiply(double a, double b, DType dtype) { return is_float(dtype) ? a * b : (Int(a) * Int(b)).v; }
  double maximum(double a, double b, DType) { return max(Real(a), Real(b)).v; }
  double finish(double value, const Node&) { return value; }
  double rescale(double sum, double old_shift, double new_shift) {
    return std::isinf(old_shift) && old_shift < 0 ? 0 : sum * std::exp(old_shift - new_shift);
  }

 protected:
  template <class V>
  static double with(OpCode code, const double* operands) {
    const V values[3] = {operands[0], operands[1], operands[2]};
    return apply_meaning<V>(code, values).v;
  }
};

// Numbers are constants as they are written; see unfused_tolerance.
class PerturbedDomain : public RealDomain {
 public:
  // `tf32`: operands of f32 products have 10 bits of mantissa.
  PerturbedDomain(uint64_t seed, bool tf32) : random_(seed), tf32_(tf32) {}

  double multiply(double a, double b, DType dtype) {
    if (!tf32_ || dtype != DType::f32) return RealDomain::multiply(a, b, dtype);
    return move(a, 0x1p-11) * move(b, 0x1p-11);
  }
  // Accumulation in f32, not exact.
  double add(double a, double b, DType dtype) {
    const double sum = RealDomain::add(a, b, dtype);
    return is_float(dtype) ? static_cast<float>(sum) : sum;
  }
  double apply(OpCode code, DType compute, const double* operands) {
    if (!is_float(compute)) return RealDomain::apply(code, compute, operands);
    // Functions of the GPU are good to about two units in the last place of f32 (CUDA C++ Programming Guide,
    // mathematical functions).
    return move(with<Single>(code, operands), 2 * 0x1p-23);
  }
  double finish(double value, const Node& node) {
    switch (op_info(node.code).kind) {
      case OpKind::elementwise:
      case OpKind::contraction:
      case OpKind::reduction:
        break;
      default:
        return value;  // moved or rounded already
    }
    switch (node.type.dtype) {
      case DType::f16:
        return move(value, 0x1p-11, 0x1p-25);
      case DType::bf16:
        return move(value, 0x1p-8);
      case DType::f32:
        return move(value, 0x1p-24);
      default:
        return value;
    }
  }

 private:
  // By up to `relative` of the value (at least `absolute`), up or down.
  double move(double value, double relative, double absolute = 0) {
    if (value == 0 || !std::isfinite(value)) return value;
    const double unit = std::max(std::fabs(value) * relative, absolute);
    return value + (random_() & 1 ? unit : -unit);
  }

  std::mt19937_64 random_;
  const bool tf32_;
};

}  // namespace quern
