#include "core/graph/lexer.h"

#include <cctype>

namespace quern {

namespace {

bool is_name_start(unsigned char c) { return c < 128 && (std::isalpha(c) || c == '_'); }
bool is_name_part(unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_' || c == '.'); }

// Bytes of the number at the front: an optional sign, then digits, points and letters (inf, nan, exponents
// with their signs).
size_t number_length(std::string_view text) {
  size_t length = text[0] == '-' || text[0] == '+' ? 1 : 0;
  while (length < text.size()) {
    const bool exponent_sign = (text[length] == '-' || text[length] == '+') &&
                               (text[length - 1] | 32) == 'e' && length >= 2 &&
                               std::isdigit(static_cast<unsigned char>(text[length - 2]) | 0);
    if (!is_name_part(text[length]) && !exponent_sign) break;
    ++length;
  }
  return length;
}

bool starts_number(std::string_view text) {
  const unsigned char c = text[0], next = text.size() > 1 ? text[1] : 0;
  if (std::isdigit(c)) return true;
  if (c == '.') return std::isdigit(next);
  return (c == '-' || c == '+') && (std::isdigit(next) || next == '.' || is_name_start(next));
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the text";
    case Token::Kind::end_of_line:
      return "the end of the line";
    default:
      break;
  }
  std::string text;
  for (unsigned char c : token.text.substr(0, 40)) text += c >= 32 && c < 127 ? static_cast<char>(c) : '?';
  return "\"" + text + (token.text.size() > 40 ? "...\"" : "\"");
}

}  // namespace

void Lexer::advance() {
  size_t skipped = 0;
  while (skipped < rest_.size() &&
         (rest_[skipped] == ' ' || rest_[skipped] == '\t' || rest_[skipped] == '\r'))
    ++skipped;
  if (skipped < rest_.size() && rest_[skipped] == '#')
    while (skipped < rest_.size() && rest_[skipped] != '\n') ++skipped;
  rest_.remove_prefix(skipped);
  column_ += static_cast<int>(skipped);
  token_ = {Token::Kind::end, rest_.substr(0, 1), line_, column_};
  if (rest_.empty()) return;
  size_t length = 1;
  if (rest_[0] == '\n') {
    token_.kind = Token::Kind::end_of_line;
  } else if (is_name_start(rest_[0])) {
    token_.kind = Token::Kind::name;
    while (length < rest_.size() && is_name_part(rest_[length])) ++length;
  } else if (starts_number(rest_)) {
    token_.kind = Token::Kind::number;
    length = number_length(rest_);
  } else {
    token_.kind = Token::Kind::punctuation;
  }
  token_.text = rest_.substr(0, length);
  rest_.remove_prefix(length);
  column_ += static_cast<int>(length);
  if (token_.kind == Token::Kind::end_of_line) {
    ++line_;
    column_ = 1;
  }
}

Token Lexer::take() {
  const Token token = token_;
  advance();
  return token;
}

bool Lexer::at(char punctuation) const {
  return token_.kind == Token::Kind::punctuation && token_.text[0] == punctuation;
}

bool Lexer::at_name(std::string_view name) const {
  return token_.kind == Token::Kind::name && token_.text == name;
}

bool Lexer::accept(char punctuation) {
  if (!at(punctuation)) return false;
  advance();
  return true;
}

bool Lexer::accept_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}

void Lexer::skip_blank_lines() {
  while (token_.kind == Token::Kind::end_of_line) advance();
}

Status Lexer::end_statement() const {
  if (token_.kind == Token::Kind::end_of_line || token_.kind == Token::Kind::end) return {};
  return expected("the end of the line");
}

Status Lexer::error_at(const Token& token, const std::string& message) {
  return Status(ErrorCode::INVALID_GRAPH,
                std::to_string(token.line) + ":" + std::to_string(token.column) + ": " + message);
}

Status Lexer::expected(const std::string& what) const {
  return error("expected " + what + ", found " + describe(token_));
}

}  // namespace quern
