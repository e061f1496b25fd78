// What conditions and indices are made of, for the rules and the solver alike.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/kernel/ranges.h"

namespace quern::proof {

inline bool is_comparison(ir::Operator op) {
  return op == ir::Operator::less || op == ir::Operator::less_equal || op == ir::Operator::equal ||
         op == ir::Operator::not_equal;
}
inline bool is_integer(ir::Scalar type) { return ir::is_index(type) || type == ir::Scalar::boolean; }
bool has_index_operands(const ir::ExprNode& node);

// Where the value of an operation lies before it wraps to its type, if its operands have not wrapped.
ir::Interval math_range(const ir::Expr& expr, const ir::Ranges& ranges);
bool fits(ir::Interval range, ir::Scalar type);
// Whether nothing in it wraps: what Ranges says of it is then what the machine does.
bool never_wraps(const ir::Expr& expr, const ir::Ranges& ranges);

ir::Expr opposite(const ir::Expr& condition);
ir::Expr add(const ir::Expr& a, const ir::Expr& b);

// In the names of variables that stand for what is not known.
inline constexpr char kUnknown[] = "?";

// The same with other operands; what is neutral in them disappears.
ir::Expr with_operands(const ir::Expr& expr, std::vector<ir::Expr> operands);

// A sum of products with numbers: what is multiplied, by what, and a number that is added.
struct Linear {
  std::vector<std::pair<ir::Expr, int64_t>> terms;
  int64_t constant = 0;
};
Linear linear_form(const ir::Expr& expr);
ir::Expr sum_of(const Linear& form);

// Whether it is a multiple of a power of two, as far as its form shows.
bool is_multiple(const ir::Expr& expr, int64_t of);

using Values = std::map<const ir::SymbolData*, int64_t>;
// What it comes to; nothing if it depends on what is not among the values.
std::optional<int64_t> evaluate(const ir::Expr& expr, const Values& values);

}  // namespace quern::proof
