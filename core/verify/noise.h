// The domain of evaluate.h over the values of noisy.h.
#pragma once

#include "core/verify/noisy_steps.h"
#include "core/verify/real_domains.h"

namespace quern {

// Whether its elements are rounded to its dtype.
inline bool rounds(const Node& node) {
  const OpKind kind = op_info(node.code).kind;
  return node.keeps_precision || kind == OpKind::elementwise || kind == OpKind::contraction ||
         kind == OpKind::reduction;
}

// A domain of evaluate.h.
class NoisyDomain {
 public:
  using Value = Noisy;

  // `tf32`: operands of f32 products are rounded to 10 bits of mantissa.
  explicit NoisyDomain(bool tf32) : tf32_(tf32) {}

  static Noisy known(double value) { return noise::known(value); }
  Noisy number(double value, DType dtype) { return known(round_to(dtype, value)); }
  Noisy shared(const Noisy& value) { return noise::shared(value); }
  Noisy zero(DType) { return {}; }
  Noisy identity(OpCode reduction, DType dtype) { return known(reduction_identity(reduction, dtype)); }
  Noisy apply(OpCode code, DType compute, const Noisy* operands);
  Noisy convert(const Noisy& x, DType from, DType to) { return from == to ? x : noise::convert_class(x, to); }
  Noisy cast(const Noisy& x, DType, DType to) { return sourced(noise::cast(x, to, sources_ + 1)); }
  Noisy combine(OpCode reduction, const Noisy& a, const Noisy& b, DType dtype) {
    const uint32_t laws = op_info(reduction).laws;
    if (laws & kLinear) return add(a, b, dtype);
    if (is_float(dtype) || laws & kOrdered) return apply_combine(reduction, a, b);
    return noise::combine_integers(
        a, b, [&](const Int* values) { return apply_combine(reduction, values[0], values[1]); });
  }
  Noisy finish(Noisy value, const Node& node);

  void begin_sums(int64_t terms, bool of_products) {
    rates_ = noise::sum_rates(static_cast<double>(terms), of_products);
  }
  Noisy add(const Noisy& a, const Noisy& b, DType dtype) { return noise::add_term(a, b, dtype, rates_); }
  Noisy multiply(const Noisy& a, const Noisy& b, DType dtype) {
    return noise::multiply_terms(a, b, dtype, tf32_);
  }

 private:
  // Of a value that was offered the next source.
  Noisy sourced(const Noisy& value) {
    if (value.source == sources_ + 1) ++sources_;
    return value;
  }

  const bool tf32_;
  noise::SumRates rates_;
  uint32_t sources_ = 0;
};

}  // namespace quern
