// Splits the text of a graph into tokens that know where they stand.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace quern {

struct Token {
  enum class Kind { name, number, punctuation, end_of_line, end };
  Kind kind = Kind::end;
  std::string_view text;
  int line = 1, column = 1;  // from 1; columns count bytes
};

// Walks through a text with one token of look-ahead.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : rest_(text) { advance(); }

  const Token& peek() const { return token_; }
  Token take();
  bool at(char punctuation) const;
  bool at_name(std::string_view name) const;
  // Takes the token if it is this one.
  bool accept(char punctuation);
  bool accept_name(std::string_view name);
  void skip_blank_lines();
  // An error unless the line ends here; the end itself is not taken.
  Status end_statement() const;
  // INVALID_GRAPH "LINE:COLUMN: message", at the next token or at a given one.
  Status error(const std::string& message) const { return error_at(token_, message); }
  static Status error_at(const Token& token, const std::string& message);
  // The same with "expected ..., found ..." for the next token.
  Status expected(const std::string& what) const;

 private:
  void advance();

  std::string_view rest_;
  Token token_;
  int line_ = 1, column_ = 1;
};

}  // namespace quern
