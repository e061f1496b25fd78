#include "core/codegen/kernel_domain.h"

#include <bit>
#include <cmath>

#include "core/lang/meaning.h"
#include "core/lang/value_real.h"

namespace quern {

namespace {

// The host's twins of functions of the device prelude.
float to_tf32(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (!std::isfinite(value)) return value;
  bits = (bits + 0x1000u) & 0xffffe000u;
  return std::bit_cast<float>(bits);
}
float exp2_fast(float value) {
  const float power = std::exp2(value);
  return power < 0x1p-126f ? 0.0f : power;
}
// Without a scale (down = 0) the inner fma rounds as the product does.
float exp_fast(float value, float down = 0) { return exp2_fast(std::fma(value, 1.44269504f, -down)); }
float exp_shifted(float value, float scale, float shift, float down) {
  return exp2_fast(std::fma(value, scale * 1.44269504f, std::fma(shift, -1.44269504f, -down)));
}
float exp_shifted_bounded(float value, float scale, float shift, float down) {
  const uint32_t exponent = std::bit_cast<uint32_t>(shift) >> 23 & 255;
  const float bound =
      (exponent > 145 && exponent < 255 ? std::bit_cast<float>((272 - exponent) << 23) : 1.0f) * 1.44269504f;
  return exp2_fast(std::fma(value, scale * bound, std::fma(-shift, bound, -down)));
}
float shift_factor(float before, float now) { return before == now ? 1.0f : exp_fast(before - now); }

// f32 by the functions of the device prelude; approximate ones where the emitter takes them.
template <bool kApproximate>
struct DeviceFloat {
  static constexpr bool kFloating = true;
  float v;
  DeviceFloat(double value) : v(static_cast<float>(value)) {}
  using F = DeviceFloat;

  friend F operator-(F a) { return -a.v; }
  friend F operator+(F a, F b) { return a.v + b.v; }
  friend F operator-(F a, F b) { return a.v - b.v; }
  friend F operator*(F a, F b) { return a.v * b.v; }
  friend F operator/(F a, F b) { return a.v / b.v; }
  friend F exp(F a) { return kApproximate ? exp_fast(a.v) : std::exp(a.v); }
  friend F log(F a) { return std::log(a.v); }
  friend F sqrt(F a) { return std::sqrt(a.v); }
  friend F tanh(F a) { return std::tanh(a.v); }
  friend F erf(F a) { return std::erf(a.v); }
  friend F pow(F a, F b) { return std::pow(a.v, b.v); }
  friend F abs(F a) { return std::fabs(a.v); }
  friend F max(F a, F b) { return a.v > b.v || std::isnan(a.v) ? a : b; }
  friend F min(F a, F b) { return a.v < b.v || std::isnan(a.v) ? a : b; }
  friend F less(F a, F b) { return a.v < b.v; }
  friend F less_equal(F a, F b) { return a.v <= b.v; }
  friend F equal(F a, F b) { return a.v == b.v; }
  friend F select(F condition, F a, F b) { return condition.v != 0 ? a : b; }
};

template <class V>
double meaning(OpCode code, const KernelValue* operands) {
  const V values[3] = {operands[0].v, operands[1].v, operands[2].v};
  return apply_meaning<V>(code, values).v;
}

// What tensor cores read of an operand.
double operand_value(double value, DType dtype) {
  return dtype == DType::f32 ? static_cast<double>(to_tf32(static_cast<float>(value)))
                             : round_to(dtype, value);
}

// The terms of `value`, or it as a term, beside those of `sum`.
void add_terms(KernelValue& sum, const KernelValue& value) {
  sum.above += value.above;
  sum.below += value.below;
  if (value.above != 0 || value.below != 0 || !std::isfinite(value.v)) return;
  (value.v > 0 ? sum.above : sum.below) += static_cast<float>(value.v);
}

}  // namespace

double KernelDomain::read(const Value& value) const {
  if (order_ == SumOrder::elements || (std::isfinite(value.above) && std::isfinite(value.below)))
    return value.v;
  return value.v + (std::isinf(value.above) ? value.above : 0) + (std::isinf(value.below) ? value.below : 0);
}

std::optional<KernelDomain::Tile> KernelDomain::compute(
    size_t i, const std::vector<std::optional<Tile>>& values) const {
  const BlockOp& op = mugraph_.kernels[kernel_].ops[i];
  const BlockValue value = static_cast<BlockValue>(i);
  if (const auto at = form().products.find(value); at != form().products.end())
    return product(op, *values[static_cast<size_t>(op.operands[0])],
                   *values[static_cast<size_t>(op.operands[1])], at->second);
  if (const auto at = form().exponentials.find(value); at != form().exponentials.end()) {
    const Tile& operand = *values[static_cast<size_t>(op.operands[0])];
    if (at->second.x < 0) return scaled_exp(at->second, operand);
    return shifted_exp(at->second, operand.type, *values[static_cast<size_t>(at->second.x)],
                       *values[static_cast<size_t>(at->second.shift)]);
  }
  return std::nullopt;
}

// Matrices of at least rank 2, as lower_block leaves them.
KernelDomain::Tile KernelDomain::product(const BlockOp& op, const Tile& a, const Tile& b,
                                         DType operands) const {
  Attrs attrs = op.attrs();
  const auto type = infer_type(op.code(), std::vector<TensorType>{a.type, b.type}, attrs);
  check(type.ok(), "a product of tiles that do not fit together");
  Elements<double> left, right;
  for (const Value& value : a.elements) left.push_back(operand_value(read(value), operands));
  for (const Value& value : b.elements) right.push_back(operand_value(read(value), operands));
  const Ints& shape = type->shape;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back(), inner = a.type.shape.back(),
                step = operands == DType::f32 ? 8 : 16;
  const Ints batch(shape.begin(), shape.end() - 2);
  auto matrices = [&](const Ints& own, int64_t size) {
    std::vector<int64_t> at;
    for_each_offset(batch, internal::broadcast_strides(Ints(own.begin(), own.end() - 2), batch), 0,
                    [&](int64_t offset) { at.push_back(offset * size); });
    return at;
  };
  const std::vector<int64_t> at_a = matrices(a.type.shape, rows * inner),
                             at_b = matrices(b.type.shape, inner * columns);
  Tile out{*type, Elements<Value>(static_cast<size_t>(type->element_count()))};
  size_t next = 0;
  for (size_t z = 0; z < at_a.size(); ++z)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const double* x = left.data() + (at_a[z] + row * inner);
        const double* y = right.data() + (at_b[z] + column);
        Value& sum = out.elements[next++];
        double part = 0;
        for (int64_t k = 0; k < inner; ++k) {
          const double term = x[k] * y[k * columns];
          add_terms(sum, term);
          part += term;
          if ((k + 1) % step != 0 && k + 1 != inner) continue;
          sum.v = single(sum.v + part);
          part = 0;
        }
      }
  return out;
}

KernelDomain::Tile KernelDomain::scaled_exp(const ExpArithmetic& exp, const Tile& x) const {
  Tile out{x.type, {}};
  const float down = static_cast<float>(exp.down), factor = std::ldexp(1.0f, -exp.down);
  for (const Value& element : x.elements) {
    const float value = static_cast<float>(read(element));
    out.elements.push_back(exp.form == ExpForm::fast ? exp_fast(value, down) : std::exp(value) * factor);
  }
  return out;
}

KernelDomain::Tile KernelDomain::shifted_exp(const ExpArithmetic& exp, const TensorType& type, const Tile& x,
                                             const Tile& shift) const {
  Tile out{type, {}};
  out.elements.reserve(static_cast<size_t>(type.element_count()));
  std::vector<int64_t> at_shift;
  for_each_offset(type.shape, internal::broadcast_strides(shift.type.shape, type.shape), 0,
                  [&](int64_t at) { at_shift.push_back(at); });
  const auto function = exp.form == ExpForm::shifted ? exp_shifted : exp_shifted_bounded;
  size_t next = 0;
  for_each_offset(type.shape, internal::broadcast_strides(x.type.shape, type.shape), 0, [&](int64_t at) {
    const double top = read(shift.elements[static_cast<size_t>(at_shift[next++])]);
    out.elements.push_back(function(static_cast<float>(read(x.elements[static_cast<size_t>(at)])),
                                    static_cast<float>(exp.scale), static_cast<float>(top),
                                    static_cast<float>(exp.down)));
  });
  return out;
}

KernelValue KernelDomain::combine(OpCode reduction, Value a, Value b, DType dtype) const {
  if (is_float(dtype) && (op_info(reduction).laws & kLinear)) return add(a, b, dtype);
  const double x = read(a), y = read(b);
  return is_float(dtype) ? single(apply_combine(reduction, Real(x), Real(y)).v)
                         : static_cast<double>(apply_combine(reduction, Int(x), Int(y)).v);
}

KernelValue KernelDomain::apply(OpCode code, DType compute, const Value* operands) const {
  if (!is_float(compute)) return meaning<Int>(code, operands);
  return form().approximate ? meaning<DeviceFloat<true>>(code, operands)
                            : meaning<DeviceFloat<false>>(code, operands);
}

KernelValue KernelDomain::convert(Value value, DType, DType to) const {
  if (to == DType::boolean) return read(value) != 0;
  return is_float(to) ? single(read(value)) : value;
}

KernelValue KernelDomain::add(Value a, Value b, DType dtype) const {
  if (!is_float(dtype)) return static_cast<double>((Int(a.v) + Int(b.v)).v);
  Value sum = single(a.v + b.v);
  add_terms(sum, a);
  add_terms(sum, b);
  return sum;
}

KernelValue KernelDomain::multiply(Value a, Value b, DType dtype) const {
  return is_float(dtype) ? a.v * b.v : static_cast<double>((Int(a.v) * Int(b.v)).v);
}

KernelValue KernelDomain::rescale(Value sum, Value old_shift, Value new_shift) const {
  const float factor = shift_factor(static_cast<float>(read(old_shift)), static_cast<float>(read(new_shift)));
  Value scaled = single(sum.v * static_cast<double>(factor));
  scaled.above = sum.above * factor;
  scaled.below = sum.below * factor;
  return scaled;
}

}  // namespace quern
