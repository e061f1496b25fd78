// Reads the small parts that texts of graphs and muGraphs share: numbers, lists, dtypes, attributes.
#pragma once

#include <optional>

#include "core/graph/lexer.h"
#include "core/lang/attrs.h"

namespace quern {

struct Number {
  double value;
  bool integral;  // written without a point or an exponent
};
// Nothing unless the whole text is a number that f64 can hold.
std::optional<Number> parse_number(std::string_view text);
// Reads back as a number of that kind.
std::string print_literal(double number, DType dtype);
// Whether the token begins a number: digits, a sign, inf, nan.
bool is_number(const Token& token);

// Each takes what it reads, or gives an error that says where and what was expected.
Result<int64_t> read_integer(Lexer& lexer);
Result<Ints> read_ints(Lexer& lexer);  // "[1, 2]"
Result<double> read_number(Lexer& lexer);
Result<DType> read_dtype(Lexer& lexer);
// The value after "name=", into the member of this name.
Status read_attribute(Lexer& lexer, const Token& name, Attrs& attrs);
// The name of an operator; the error suggests what a mistyped one was meant to be.
Result<Token> read_operator(Lexer& lexer);
// The row of this operator with this many operands.
Result<const OpInfo*> operator_taking(const Token& op, size_t operands);

// Gives an error that knows no place the place of `token`.
Status locate(const Token& token, const Status& status);

}  // namespace quern
