// The value domain of code generation: an operator's meaning becomes CUDA C++ text over the functions of the
// device prelude.
#pragma once

#include <string>

#include "core/base/dtype.h"
#include "core/lang/op.h"

namespace quern {

// An expression of type float (DType::f32), int (i32) or bool (boolean), or a number whose type is that of
// what it meets.
class CudaText {
 public:
  static constexpr bool kFloating = true;
  CudaText(double number) : number_(number) {}
  // `text` must be safe as an operand of any operator: a name, a call, or parenthesised.
  CudaText(std::string text, DType type) : text_(std::move(text)), type_(type), is_number_(false) {}

  // The text as an expression of `type`; a number is written as a literal of it.
  std::string as(DType type) const;
  DType type() const { return type_; }
  bool is_number() const { return is_number_; }
  // The same; exponentials, square roots and quotients that are made of it need only be exact to some 2^-21.
  CudaText approximate() const;
  // The same; sums with it are seen by nobody else, so that a product may become one fma with them.
  CudaText accumulator() const;
  static CudaText made_of(const CudaText& a, const CudaText& b, std::string text, DType type);

  friend CudaText operator-(const CudaText& a);
  friend CudaText operator+(const CudaText& a, const CudaText& b);
  friend CudaText operator-(const CudaText& a, const CudaText& b);
  friend CudaText operator*(const CudaText& a, const CudaText& b);
  friend CudaText operator/(const CudaText& a, const CudaText& b);
  friend CudaText exp(const CudaText& a);
  friend CudaText log(const CudaText& a);
  friend CudaText sqrt(const CudaText& a);
  friend CudaText tanh(const CudaText& a);
  friend CudaText erf(const CudaText& a);
  friend CudaText pow(const CudaText& a, const CudaText& b);
  friend CudaText abs(const CudaText& a);
  friend CudaText max(const CudaText& a, const CudaText& b);
  friend CudaText min(const CudaText& a, const CudaText& b);
  friend CudaText less(const CudaText& a, const CudaText& b);
  friend CudaText less_equal(const CudaText& a, const CudaText& b);
  friend CudaText equal(const CudaText& a, const CudaText& b);
  friend CudaText select(const CudaText& condition, const CudaText& a, const CudaText& b);

 private:
  std::string text_;
  double number_ = 0;
  DType type_ = DType::f32;
  bool is_number_ = true, approximate_ = false, accumulates_ = false;
};

// A literal of CUDA C++ that has exactly this value after rounding to `type` (f32, i32 or bool).
std::string cuda_literal(double value, DType type);

// A reduction of f32 or i32: what it starts from; what it makes of two values; and the same as a function,
// "[](float x, float y) { return max_nan(x, y); }".
std::string cuda_identity(OpCode reduction, DType type);
std::string cuda_combine(OpCode reduction, const CudaText& x, const CudaText& y, DType type);
std::string cuda_combiner(OpCode reduction, DType type);

}  // namespace quern
