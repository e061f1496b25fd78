// The domain of the reference: evaluate.h over f64.
#pragma once

#include <cmath>
#include <limits>

#include "core/graph/graph.h"
#include "core/lang/meaning.h"
#include "core/lang/value_real.h"

namespace quern {

// Every value is held as f64; i32 values are integers in it.
struct RealDomain {
  using Value = double;

  // Numbers that are written in the program are rounded to the dtype of what they are combined with.
  double number(double value, DType dtype) { return round_to(dtype, value); }
  double zero(DType) { return 0; }
  double identity(OpCode reduction, DType dtype) { return reduction_identity(reduction, dtype); }
  double combine(OpCode reduction, double a, double b, DType dtype) {
    return is_float(dtype) ? apply_combine(reduction, Real(a), Real(b)).v
                           : apply_combine(reduction, Int(a), Int(b)).v;
  }
  double apply(OpCode code, DType compute, const double* operands) {
    if (!is_float(compute)) return with<Int>(code, operands);
    return with<Real>(code, operands);
  }
  double convert(double value, DType, DType to) { return to == DType::boolean ? value != 0 : value; }
  double cast(double value, DType, DType to) { return round_to(to, value); }
  double add(double a, double b, DType dtype) { return is_float(dtype) ? a + b : (Int(a) + Int(b)).v; }
  double multiply(double a, double b, DType dtype) { return is_float(dtype) ? a * b : (Int(a) * Int(b)).v; }
  double finish(double value, const Node&) { return value; }
  double frame(double shift) { return std::isinf(shift) && shift < 0 ? 0 : shift; }
  double store(double value, DType from, DType to) {
    return is_float(from) && is_float(to) ? value : cast(value, from, to);
  }
  double rescale(double sum, double old_shift, double new_shift) {
    return old_shift == new_shift ? sum : sum * std::exp(old_shift - new_shift);
  }

 protected:
  template <class V>
  static double with(OpCode code, const double* operands) {
    const V values[3] = {operands[0], operands[1], operands[2]};
    return apply_meaning<V>(code, values).v;
  }
};

}  // namespace quern
