#include "core/graph/literals.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <vector>

namespace quern {

namespace {

// Edits (insert, delete, replace) between two short words: finds what a mistyped name was meant to be.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// What other languages call what is another operator here, with other operands.
using Hint = std::pair<std::string_view, const char*>;
constexpr Hint kOthers[] = {
    {"gt", "a > b is lt(b, a)"},
    {"ge", "a >= b is le(b, a)"},
    {"ne", "it is eq(a, b) with the values of a where exchanged"},
    {"clamp", "it is min(max(x, low), high), in two lines"},
    {"permute", "it is transpose(x, perm=[...])"},
    {"cat", "it is concat(a, b, axis=...)"},
    {"view", "it is reshape(x, shape=[...])"},
    {"squeeze", "it is reshape(x, shape=[...])"},
    {"unsqueeze", "it is reshape(x, shape=[...])"},
    {"split", "a part is slice(x, start=[...], stop=[...])"},
    {"linear", "it is matmul(x, wt) with wt = transpose(w), plus a bias"},
    {"and", "it is where(a, b, 0)"},
    {"or", "it is where(a, 1, b)"},
    {"not", "it is eq(a, 0)"},
    {"floor", "cast(x, dtype=i32) rounds towards zero"},
    {"round", "cast(x, dtype=i32) rounds towards zero"},
    {"cumsum", "it is a product with le(i, j) of two iotas as numbers"},
    {"gather", "a row chosen by number is a product with one-hot rows, eq(iota(...), number)"}};
constexpr Hint kOtherAttrs[] = {{"dim", "it is axis"}, {"keepdim", "it is keepdims"}};

std::string hint_for(std::string_view name, std::span<const Hint> others) {
  for (const auto& [other, hint] : others)
    if (name == other) return std::string("; ") + hint;
  return "";
}

std::string suggest_op(std::string_view name) {
  if (std::string hint = hint_for(name, kOthers); !hint.empty()) return hint;
  const OpInfo* best = nullptr;
  size_t distance = std::min<size_t>(3, name.size() / 2);  // as far away is no suggestion
  if (name.size() < 64)
    for (const OpInfo& op : all_ops())
      if (const size_t d = edit_distance(name, op.text); d < distance) best = &op, distance = d;
  return best ? std::string("; did you mean \"") + best->text + "\"?" : "";
}

Result<bool> read_flag(Lexer& lexer) {
  if (lexer.accept_name("true")) return true;
  if (lexer.accept_name("false")) return false;
  return lexer.expected("true or false");
}

template <class T>
Status keep(std::optional<T>& member, Result<T> value) {
  if (value) member = std::move(*value);
  return value.status();
}

Result<Ints> read_one_or_more(Lexer& lexer) {
  if (lexer.at('[')) return read_ints(lexer);
  auto value = read_integer(lexer);
  if (!value) return value.status();
  return Ints{*value};
}

Status read_value(Lexer& lexer, std::optional<Ints>& member) { return keep(member, read_one_or_more(lexer)); }
Status read_value(Lexer& lexer, std::optional<double>& member) { return keep(member, read_number(lexer)); }
Status read_value(Lexer& lexer, std::optional<DType>& member) { return keep(member, read_dtype(lexer)); }
Status read_value(Lexer& lexer, std::optional<bool>& member) { return keep(member, read_flag(lexer)); }

}  // namespace

std::optional<Number> parse_number(std::string_view text) {
  const bool negative = text[0] == '-';
  if (text[0] == '-' || text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text[0] == '-' || text[0] == '+') return std::nullopt;
  Number number{0, text.find_first_not_of("0123456789") == std::string_view::npos};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::nullopt;
  if (negative) number.value = -number.value;
  return number;
}

std::string print_literal(double number, DType dtype) {
  if (!is_float(dtype)) return std::to_string(static_cast<int64_t>(number));
  const std::string text = print_number(number);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

bool is_number(const Token& token) {
  return token.kind == Token::Kind::number || token.text == "inf" || token.text == "nan";
}

Result<int64_t> read_integer(Lexer& lexer) {
  const Token token = lexer.peek();
  int64_t value = 0;
  const char* last = token.text.data() + token.text.size();
  if (token.kind != Token::Kind::number) return lexer.expected("an integer");
  const auto [end, error] = std::from_chars(token.text.data(), last, value);
  if (end != last || error != std::errc()) return lexer.expected("an integer");
  lexer.take();
  return value;
}

Result<Ints> read_ints(Lexer& lexer) {
  if (!lexer.accept('[')) return lexer.expected("\"[\"");
  Ints list;
  if (lexer.accept(']')) return list;
  do {
    auto value = read_integer(lexer);
    if (!value) return value.status();
    list.push_back(*value);
  } while (lexer.accept(','));
  if (!lexer.accept(']')) return lexer.expected("\",\" or \"]\"");
  return list;
}

Result<double> read_number(Lexer& lexer) {
  const auto number =
      lexer.peek().kind == Token::Kind::number ? parse_number(lexer.peek().text) : std::nullopt;
  if (!number) return lexer.expected("a number");
  lexer.take();
  return number->value;
}

Result<DType> read_dtype(Lexer& lexer) {
  const auto dtype = parse_dtype(lexer.peek().text);
  std::string names;
  for (DType each : kAllDTypes) names += (names.empty() ? "" : ", ") + std::string(dtype_name(each));
  if (!dtype) return lexer.expected("a dtype (" + names + ")");
  lexer.take();
  return *dtype;
}

Status read_attribute(Lexer& lexer, const Token& name, Attrs& attrs) {
  const AttrInfo* wanted = find_attr(name.text);
  if (!wanted)
    return Lexer::error_at(
        name, "there is no attribute \"" + std::string(name.text) + "\"" + hint_for(name.text, kOtherAttrs));
  Status status;
  for_each_attr(attrs, [&](const AttrInfo& info, auto& member) {
    if (info.id != wanted->id) return;
    if (member)
      status = Lexer::error_at(name, "the attribute \"" + std::string(name.text) + "\" is given twice");
    else
      status = read_value(lexer, member);
  });
  return status;
}

Result<Token> read_operator(Lexer& lexer) {
  const Token op = lexer.peek();
  if (op.kind != Token::Kind::name) return lexer.expected("an operator");
  if (!is_op_name(op.text))
    return Lexer::error_at(op, "there is no operator \"" + std::string(op.text) + "\"" + suggest_op(op.text));
  lexer.take();
  return op;
}

Result<const OpInfo*> operator_taking(const Token& op, size_t operands) {
  if (const OpInfo* info = find_op(op.text, static_cast<int>(operands))) return info;
  std::string takes;
  for (const OpInfo& row : all_ops())
    if (op.text == row.text)
      takes += (takes.empty() ? "" : " or ") + std::to_string(row.min_arity) +
               (row.max_arity > row.min_arity ? " to " + std::to_string(row.max_arity) : "");
  return Lexer::error_at(
      op, "\"" + std::string(op.text) + "\" takes " + takes + " operands, not " + std::to_string(operands));
}

Status locate(const Token& token, const Status& status) {
  return Status(status.code(), Lexer::error_at(token, status.message()).message());
}

}  // namespace quern
