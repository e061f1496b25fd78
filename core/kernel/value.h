// The value domain of code generation: an operator's meaning (core/lang/ops.def) becomes an expression over
// the functions of the device prelude.
#pragma once

#include "core/kernel/expr.h"

namespace quern::ir {

// An expression of type f32, i32 or boolean, or a number whose type is that of what it meets.
class Value {
 public:
  static constexpr bool kFloating = true;
  Value(double number) : number_(number), expr_(0) {}
  Value(Expr expr) : expr_(std::move(expr)), is_number_(false) {}

  // As an expression of `type`; a number is a literal of it.
  Expr as(DType type) const;
  DType type() const;
  bool is_number() const { return is_number_; }
  // The same; exponentials, square roots and quotients that are made of it need only be exact to some 2^-21.
  Value approximate() const;
  // The same; many values are divided by it.
  Value shared_divisor() const;
  // The same; sums with it are seen by nobody else, so that a product may become one fma with them.
  Value accumulator() const;
  static Value made_of(const Value& a, const Value& b, Expr expr);

  friend Value operator-(const Value& a);
  friend Value operator+(const Value& a, const Value& b);
  friend Value operator-(const Value& a, const Value& b);
  friend Value operator*(const Value& a, const Value& b);
  friend Value operator/(const Value& a, const Value& b);
  friend Value exp(const Value& a);
  friend Value log(const Value& a);
  friend Value sqrt(const Value& a);
  friend Value tanh(const Value& a);
  friend Value erf(const Value& a);
  friend Value pow(const Value& a, const Value& b);
  friend Value abs(const Value& a);
  friend Value max(const Value& a, const Value& b);
  friend Value min(const Value& a, const Value& b);
  friend Value less(const Value& a, const Value& b);
  friend Value less_equal(const Value& a, const Value& b);
  friend Value equal(const Value& a, const Value& b);
  friend Value select(const Value& condition, const Value& a, const Value& b);

 private:
  double number_ = 0;
  Expr expr_;
  bool is_number_ = true, approximate_ = false, shared_ = false, accumulates_ = false;
};

// The dtype of registers that hold a value of an expression of this type: f32, i32 or boolean.
DType register_dtype(Scalar type);
// Between f32, i32 and boolean.
Expr converted(const Expr& value, DType to);
Expr converted(const Value& value, DType to);
// A register as an element of memory.
Expr rounded(const Expr& value, DType dtype);
// A reduction of f32 or i32: what it starts from, and what it makes of two values.
Expr identity(OpCode reduction, DType type);
Expr combine(OpCode reduction, const Value& x, const Value& y, DType type);

}  // namespace quern::ir
