#include "core/verify/ordered.h"

#include <algorithm>
#include <cmath>

#include "core/lang/meaning.h"
#include "core/lang/value_real.h"
#include "core/verify/evaluate.h"

namespace quern {

namespace {

using Value = OrderedValue;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kUnit = 0x1p-52;     // of an f64 operation, with room
constexpr double kLibrary = 0x1p-50;  // of a function of the C library
constexpr double kTiny = std::numeric_limits<double>::min();

Value unknown(uint64_t trace) { return {kNaN, kInfinity, {}, true, trace}; }
Value special(double real, uint64_t trace, bool open = false) { return {real, 0, {}, open, trace}; }

// A finite result; unknown if it is too large for f64.
Value finite(double real, double error, FieldValue field, uint64_t trace) {
  if (!std::isfinite(real) || !std::isfinite(error)) return unknown(trace);
  if (field.p == 0 && std::fabs(real) <= error && (field.q == 0 || !field.has_q)) real = error = 0;
  return {real, error, field, false, trace};
}

Value integer(int32_t value, uint64_t trace) {
  return {static_cast<double>(value), 0, FieldDomain::integer(value), false, trace};
}

bool is_infinite(const Value& a) { return std::isinf(a.real); }
// Whether it is larger than zero, smaller, or zero: 2 when that is unknown. Not of NaN.
int sign_of(const Value& a) {
  if (a.is_zero()) return 0;
  if (a.open || std::fabs(a.real) <= a.error) return 2;
  return a.real < 0 ? -1 : 1;
}

// The value type over which the meanings of ops.def are instantiated.
struct InOrdered {
  static constexpr bool kFloating = true;
  Value v;
  OrderedDomain* domain = nullptr;

  InOrdered(const Value& value, OrderedDomain* trial) : v(value), domain(trial) {}
  InOrdered(double number) { v.real = number; }
  Value in(const OrderedDomain* trial) const { return domain ? v : trial->number(v.real, DType::f32); }

  template <class F>
  static InOrdered combine(const InOrdered& a, const InOrdered& b, F f) {
    OrderedDomain* domain = a.domain ? a.domain : b.domain;
    return {f(*domain, a.in(domain), b.in(domain)), domain};
  }
  InOrdered function(OpCode code) const { return {domain->function(code, v), domain}; }
  static InOrdered truth(OpCode code, const InOrdered& a, const InOrdered& b) {
    return combine(
        a, b, [&](OrderedDomain& d, const Value& x, const Value& y) { return d.compare(code, x, y); });
  }

  friend InOrdered operator-(const InOrdered& a) {
    if (!a.domain) return -a.v.real;
    return {a.domain->negate(a.v), a.domain};
  }
  friend InOrdered operator+(const InOrdered& a, const InOrdered& b) {
    return combine(
        a, b, [](OrderedDomain& d, const Value& x, const Value& y) { return d.add(x, y, DType::f32); });
  }
  friend InOrdered operator-(const InOrdered& a, const InOrdered& b) {
    return combine(a, b, [](OrderedDomain& d, const Value& x, const Value& y) {
      return d.add(x, d.negate(y), DType::f32);
    });
  }
  friend InOrdered operator*(const InOrdered& a, const InOrdered& b) {
    return combine(
        a, b, [](OrderedDomain& d, const Value& x, const Value& y) { return d.multiply(x, y, DType::f32); });
  }
  friend InOrdered operator/(const InOrdered& a, const InOrdered& b) {
    return combine(a, b, [](OrderedDomain& d, const Value& x, const Value& y) { return d.divide(x, y); });
  }
  friend InOrdered exp(const InOrdered& a) { return {a.domain->exponential(a.v), a.domain}; }
  friend InOrdered log(const InOrdered& a) { return a.function(OpCode::log); }
  friend InOrdered sqrt(const InOrdered& a) { return a.function(OpCode::sqrt); }
  friend InOrdered tanh(const InOrdered& a) { return a.function(OpCode::tanh); }
  friend InOrdered erf(const InOrdered& a) { return a.function(OpCode::erf); }
  friend InOrdered abs(const InOrdered& a) { return {a.domain->absolute(a.v), a.domain}; }
  friend InOrdered pow(const InOrdered& a, const InOrdered& b) {
    return combine(a, b, [](OrderedDomain& d, const Value& x, const Value& y) { return d.power(x, y); });
  }
  friend InOrdered max(const InOrdered& a, const InOrdered& b) {
    return combine(a, b, [](OrderedDomain& d, const Value& x, const Value& y) { return d.larger(x, y); });
  }
  friend InOrdered min(const InOrdered& a, const InOrdered& b) { return -max(-a, -b); }
  friend InOrdered less(const InOrdered& a, const InOrdered& b) { return truth(OpCode::lt, a, b); }
  friend InOrdered less_equal(const InOrdered& a, const InOrdered& b) { return truth(OpCode::le, a, b); }
  friend InOrdered equal(const InOrdered& a, const InOrdered& b) { return truth(OpCode::eq, a, b); }
  friend InOrdered select(const InOrdered& condition, const InOrdered& a, const InOrdered& b) {
    OrderedDomain* domain = condition.domain;
    return {domain->select(condition.v, a.in(domain), b.in(domain)), domain};
  }
};

}  // namespace

Value OrderedDomain::number(double value, DType dtype) const {
  if (!is_float(dtype)) return integer(static_cast<int32_t>(round_to(dtype, value)), 0);
  if (dtype != DType::f32) value = round_to(dtype, value);
  if (!std::isfinite(value)) return special(value, 0);
  return {value, 0, field_.number(value, DType::f32), false, 0};
}

Value OrderedDomain::combine(OpCode reduction, const Value& a, const Value& b, DType dtype) {
  if (is_float(dtype)) return apply_combine<InOrdered>(reduction, {a, this}, {b, this}).v;
  if (a.open || b.open) return unknown(a.trace | b.trace);
  return integer(apply_combine(reduction, Int(a.real), Int(b.real)).v, a.trace | b.trace);
}

void OrderedDomain::at(const std::string& name) {
  const auto known =
      std::find_if(sites_.begin(), sites_.end(), [&](const Site& site) { return site.name == name; });
  site_ = static_cast<size_t>(known - sites_.begin());
  if (known == sites_.end()) sites_.push_back({name});
}

Value OrderedDomain::apply(OpCode code, DType compute, const Value* operands) {
  if (is_float(compute) || code == OpCode::where) {
    const InOrdered values[3] = {{operands[0], this}, {operands[1], this}, {operands[2], this}};
    return apply_meaning<InOrdered>(code, values).in(this);
  }
  uint64_t trace = 0;
  for (int i = 0; i < op_info(code).max_arity; ++i) trace |= operands[i].trace;
  for (int i = 0; i < op_info(code).max_arity; ++i)
    if (operands[i].open) return unknown(trace);
  const Int values[3] = {operands[0].real, operands[1].real, operands[2].real};
  return integer(apply_meaning<Int>(code, values).v, trace);
}

Value OrderedDomain::convert(const Value& value, DType from, DType to) const {
  if (from == to || (!is_float(from) && to == DType::i32)) return value;
  if (to == DType::boolean) {
    if (std::isnan(value.real)) return value.open ? unknown(value.trace) : integer(1, value.trace);
    const int sign = is_infinite(value) ? 1 : sign_of(value);
    return sign == 2 ? unknown(value.trace) : integer(sign != 0, value.trace);
  }
  if (value.open) return unknown(value.trace);
  Value result = is_float(to) ? number(value.real, DType::f32)
                              : integer(static_cast<int32_t>(round_to(to, value.real)), 0);
  result.trace = value.trace;
  return result;
}

Value OrderedDomain::cast(const Value& value, DType from, DType to) const {
  if (from == to) return value;
  if (to == DType::boolean || !is_float(from)) {
    const Value exact = convert(value, compute_class(from), is_float(to) ? DType::f32 : to);
    if (!is_float(to) || to == DType::f32 || exact.open) return exact;
    return cast(exact, DType::f32, to);
  }
  if (to == DType::f32 || !value.is_finite()) {
    if (is_float(to)) return value;
    if (value.open) return unknown(value.trace);
    return integer(static_cast<int32_t>(round_to(to, value.real)), value.trace);
  }
  // A step within the error makes the result unknown.
  const double below = round_to(to, value.real - value.error), above = round_to(to, value.real + value.error);
  if (below != above) return unknown(value.trace);
  if (!is_float(to)) return integer(static_cast<int32_t>(below), value.trace);
  Value result = number(below, DType::f32);
  result.trace = value.trace;
  return result;
}

// ---- arithmetic ----

Value OrderedDomain::add(const Value& a, const Value& b, DType dtype) const {
  const uint64_t trace = a.trace | b.trace;
  if (!is_float(dtype)) {
    if (a.open || b.open) return unknown(trace);
    return integer((Int(a.real) + Int(b.real)).v, trace);
  }
  const double sum = a.real + b.real;
  if (!a.is_finite() || !b.is_finite()) {
    // An infinity of unknown sign and another one may cancel.
    if (a.is_unknown() || b.is_unknown() || ((a.open || b.open) && is_infinite(a) && is_infinite(b)))
      return unknown(trace);
    return special(sum, trace, !std::isnan(sum) && (a.open || b.open));
  }
  return finite(sum, a.error + b.error + kUnit * std::fabs(sum), field_.add(a.field, b.field, dtype), trace);
}

Value OrderedDomain::negate(const Value& a) const {
  Value result = a;
  result.real = -a.real;
  if (a.is_finite()) result.field = field_.negate(a.field);
  return result;
}

Value OrderedDomain::multiply(const Value& a, const Value& b, DType dtype) const {
  const uint64_t trace = a.trace | b.trace;
  if (!is_float(dtype)) {
    if (a.open || b.open) return unknown(trace);
    return integer((Int(a.real) * Int(b.real)).v, trace);
  }
  const double product = a.real * b.real;
  if (!a.is_finite() || !b.is_finite()) {
    if (a.is_unknown() || b.is_unknown()) return unknown(trace);
    if ((is_infinite(a) && b.is_finite() && sign_of(b) == 2) ||
        (is_infinite(b) && a.is_finite() && sign_of(a) == 2))
      return unknown(trace);
    return special(product, trace, !std::isnan(product) && (a.open || b.open));
  }
  const double error = std::fabs(a.real) * b.error + std::fabs(b.real) * a.error + a.error * b.error +
                       kUnit * std::fabs(product) + (product == 0 ? kTiny : 0);
  return finite(product, a.is_zero() || b.is_zero() ? 0 : error, field_.multiply(a.field, b.field, dtype),
                trace);
}

Value OrderedDomain::divide(const Value& a, const Value& b) {
  const uint64_t trace = a.trace | b.trace;
  if (a.is_unknown() || b.is_unknown()) return unknown(trace);
  if (std::isnan(a.real) || std::isnan(b.real)) return special(kNaN, trace);
  if (is_infinite(b)) {
    if (is_infinite(a)) return special(kNaN, trace);
    return finite(0, 0, field_.multiply(a.field, {}, DType::f32), trace);
  }
  const int sign = sign_of(b);
  if (sign == 2) return unknown(trace);
  if (is_infinite(a)) return special(sign < 0 ? -a.real : a.real, trace, a.open || sign == 0);
  if (sign == 0) {
    if (a.is_zero()) return special(kNaN, trace);
    return sign_of(a) == 2 ? unknown(trace) : special(kInfinity, trace, true);
  }
  if (b.field.p == 0 || (b.field.has_q && b.field.q == 0)) return unknown(trace);  // a multiple of p or q
  const double quotient = a.real / b.real;
  const double error =
      a.is_zero() ? 0
                  : (a.error + std::fabs(quotient) * b.error) / (std::fabs(b.real) - b.error) +
                        kUnit * std::fabs(quotient) + kTiny;
  return finite(quotient, error, field_.divide(a.field, b.field), trace);
}

Value OrderedDomain::rescale(const Value& sum, const Value& old_shift, const Value& new_shift) const {
  if (old_shift == new_shift && old_shift.real == new_shift.real) return sum;
  return multiply(sum, exponential(add(old_shift, negate(new_shift), DType::f32)), DType::f32);
}

// ---- functions ----

Value OrderedDomain::exponential(const Value& a) const {
  if (std::isnan(a.real) || a.open) return a.open ? unknown(a.trace) : a;
  if (is_infinite(a)) {
    if (a.real > 0) return a;
    Value none = special(0, a.trace);
    none.field.has_q = false;
    return none;
  }
  const double value = std::exp(a.real), above = std::exp(a.real + a.error);
  return finite(value, above - value + kLibrary * above + kTiny, field_.exponential(a.field), a.trace);
}

Value OrderedDomain::function(OpCode code, const Value& a) const {
  if (a.is_unknown()) return a;
  if (std::isnan(a.real)) return a;
  const bool root = code == OpCode::sqrt, bounded = code == OpCode::tanh || code == OpCode::erf;
  if (a.open) return unknown(a.trace);
  if (is_infinite(a)) {
    if (!bounded) return special(a.real > 0 ? kInfinity : kNaN, a.trace);
    Value one = number(a.real > 0 ? 1 : -1, DType::f32);
    one.trace = a.trace;
    return one;
  }
  const int sign = sign_of(a);
  if (sign == 0) return code == OpCode::log ? special(-kInfinity, a.trace) : a;
  const FieldValue field = field_.opaque(static_cast<uint64_t>(code), &a.field, 1);
  if (bounded) {
    const double value = code == OpCode::tanh ? std::tanh(a.real) : std::erf(a.real);
    return finite(value, 1.13 * a.error + kLibrary, field, a.trace);
  }
  if (sign == 2) return unknown(a.trace);
  if (sign < 0) return special(kNaN, a.trace);
  const double value = root ? std::sqrt(a.real) : std::log(a.real), least = a.real - a.error;
  const double error = root ? a.error / std::sqrt(least) : a.error / least;
  return finite(value, error + kLibrary * std::fabs(value) + (root ? 0 : kTiny), field, a.trace);
}

Value OrderedDomain::absolute(const Value& a) const {
  if (!a.is_finite()) return a.is_unknown() ? a : special(std::fabs(a.real), a.trace);
  const int sign = sign_of(a);
  return sign == 2 ? unknown(a.trace) : sign < 0 ? negate(a) : a;
}

Value OrderedDomain::power(const Value& a, const Value& b) const {
  const uint64_t trace = a.trace | b.trace;
  if (!a.is_finite() || !b.is_finite() || std::fabs(a.real) <= a.error) return unknown(trace);
  const bool whole = b.error == 0 && b.real == std::floor(b.real);
  if (a.real < 0 && !whole) return b.error == 0 ? special(kNaN, trace) : unknown(trace);
  const double magnitude = std::fabs(a.real), value = std::pow(a.real, b.real);
  const double change = std::fabs(b.real) * a.error / (magnitude - a.error) +
                        (std::fabs(std::log(magnitude)) + a.error / (magnitude - a.error)) * b.error;
  const FieldValue operands[] = {a.field, b.field};
  return finite(value, std::fabs(value) * (std::expm1(change) + kLibrary) + kTiny,
                field_.opaque(static_cast<uint64_t>(OpCode::pow), operands, 2), trace);
}

// ---- order ----

namespace {

// Whether a is less than b (-1), equal (0) or more (1); 2 when unknown. Not of NaN.
int order(const Value& a, const Value& b) {
  if (a.open || b.open) return 2;
  if (a.is_finite() && b.is_finite() && std::fabs(a.real - b.real) <= a.error + b.error)
    return a.field.agrees(b.field) ? 0 : 2;
  return a.real < b.real ? -1 : a.real > b.real;
}

}  // namespace

Value OrderedDomain::larger(const Value& a, const Value& b) const {
  const uint64_t varies = (a.trace | b.trace) & Value::kVaries;
  if (a.is_unknown() || b.is_unknown()) return unknown(a.trace | b.trace);
  if (std::isnan(a.real) || std::isnan(b.real)) return special(kNaN, a.trace | b.trace);
  const int sign = order(a, b);
  if (sign == 2) return unknown(a.trace | b.trace);
  Value result = sign > 0 ? a : b;
  result.trace |= sign == 0 ? a.trace : varies;
  return result;
}

Value OrderedDomain::compare(OpCode code, const Value& a, const Value& b) const {
  const uint64_t trace = a.trace | b.trace;
  if (a.is_unknown() || b.is_unknown()) return unknown(trace);
  if (std::isnan(a.real) || std::isnan(b.real)) return integer(0, trace);
  const int sign = order(a, b);
  if (sign == 2) return unknown(trace);
  return integer(code == OpCode::lt ? sign < 0 : code == OpCode::le ? sign <= 0 : sign == 0, trace);
}

Value OrderedDomain::select(const Value& condition, const Value& a, const Value& b) {
  const bool varies = condition.trace & Value::kVaries;
  if (condition.open) return unknown(condition.trace | a.trace | b.trace);
  Value result = condition.real != 0 ? a : b;
  result.trace |= condition.trace;
  if (varies && site_ < sites_.size()) {
    sites_[site_].varies = true;
    result.trace |= branch(site_, condition.real != 0);
  }
  return result;
}

Agreement agreement(const OrderedValue& expected, const OrderedValue& actual, bool special) {
  if (expected.is_unknown() || actual.is_unknown()) return Agreement::unknown;
  if (!expected.is_finite()) {
    if (actual.is_finite()) return Agreement::different;
    if (expected.open || actual.open) return Agreement::equal;
    const bool nan = std::isnan(expected.real), other = std::isnan(actual.real);
    const bool same = nan ? other : expected.real == actual.real;
    return same || (special && nan != other) ? Agreement::equal : Agreement::different;
  }
  if (!actual.is_finite()) return Agreement::different;
  if (std::fabs(expected.real - actual.real) > expected.error + actual.error) return Agreement::different;
  return expected.field.agrees(actual.field) ? Agreement::equal : Agreement::by_field;
}

}  // namespace quern
