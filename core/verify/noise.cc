#include "core/verify/noise.h"

namespace quern {

namespace {

// Poles: what is infinite at 0 is so in real arithmetic, not because f64 ends.
bool leaves_f64(OpCode code, const Noisy* operands, size_t arity, double result) {
  if (!std::isinf(result)) return false;
  const bool has_poles = op_info(code).result == ResultRule::floating;
  for (size_t i = 0; i < arity; ++i)
    if (!std::isfinite(operands[i].exact) || (has_poles && operands[i].exact == 0)) return false;
  return true;
}

}  // namespace

Noisy NoisyDomain::apply(OpCode code, DType compute, const Noisy* operands) {
  const size_t arity = static_cast<size_t>(op_info(code).min_arity);
  if (!is_float(compute)) return apply_to_integers(code, operands, arity);
  Noisy result = apply_meaning<Noisy>(code, operands);
  result.overflowed = leaves_f64(code, operands, arity, result.exact);
  if (!std::isfinite(result.exact))
    for (size_t i = 0; i < arity; ++i) result.overflowed |= operands[i].overflowed;
  return result;
}

Noisy NoisyDomain::apply_to_integers(OpCode code, const Noisy* operands, size_t arity) {
  auto evaluate = [&](double Noisy::*run, size_t moved, double at) {
    Int values[3] = {0, 0, 0};
    for (size_t i = 0; i < arity; ++i)
      values[i] = Int(i == moved ? round_to(DType::i32, at) : operands[i].*run);
    return static_cast<double>(apply_meaning<Int>(code, values).v);
  };
  Noisy result;
  result.exact = evaluate(&Noisy::exact, arity, 0);
  result.unfused = evaluate(&Noisy::unfused, arity, 0);
  for (size_t i = 0; i < arity; ++i)
    noise::hand_on(result, operands[i], [&](double at) { return evaluate(&Noisy::exact, i, at); });
  return result;
}

Noisy NoisyDomain::convert_class(const Noisy& x, DType to) {
  if (to == DType::boolean) return noise::truth(x.exact != 0, x.unfused != 0, noise::may_cross(x, known(0)));
  if (!is_float(to)) return x;
  Noisy result = x;  // integers above 2^24 are rounded
  result.unfused = static_cast<float>(x.unfused);
  if (result.unfused != x.unfused) noise::round(result, noise::kRounding);
  return result;
}

Noisy NoisyDomain::cast(const Noisy& x, DType, DType to) {
  if (to == DType::boolean) return convert_class(x, to);
  Noisy result;
  result.exact = round_to(to, x.exact);
  result.unfused = round_to(to, x.unfused);
  noise::hand_on(result, x, [&](double at) { return round_to(to, at); });
  if (!is_float(to)) result.fragile = false;
  if (!std::isfinite(result.exact)) result.overflowed = x.overflowed;
  if (result.unfused == x.unfused) result.source = x.source;
  return result;
}

Noisy NoisyDomain::finish(Noisy value, const Node& node) {
  value.reached = 0;
  const OpKind kind = op_info(node.code).kind;
  if (kind != OpKind::elementwise && kind != OpKind::contraction && kind != OpKind::reduction) return value;
  const DType dtype = node.type.dtype;
  if (!std::isfinite(value.exact)) {
    value.variance = 0;
  } else {
    value.overflowed = false;
    if (std::isnan(value.variance)) value.variance = std::numeric_limits<double>::infinity();
  }
  if (is_float(dtype)) {
    const double rounded = round_to(dtype, value.unfused);
    if (rounded != value.unfused) {
      value.unfused = rounded;
      value.source = 0;
      if (std::isfinite(value.exact)) value.variance += noise::rounding_variance(dtype, value.exact);
    }
    if (value.variance > 0)
      value.fragile |= std::isfinite(round_to(dtype, value.exact + value.reach())) !=
                       std::isfinite(round_to(dtype, value.exact - value.reach()));
  }
  if (value.variance > 0 && value.source == 0) value.source = ++sources_;
  return value;
}

}  // namespace quern
