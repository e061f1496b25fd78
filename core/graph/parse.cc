// parse_graph of text.h: recursive descent over the grammar given there.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "core/graph/builder.h"
#include "core/graph/lexer.h"
#include "core/graph/text.h"

namespace quern {

namespace {

struct Number {
  double value;
  bool integral;  // written without a point or an exponent
};

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

std::string suggest_op(std::string_view name) {
  const OpInfo* best = nullptr;
  size_t distance = 3;  // further away is no suggestion
  if (name.size() < 64)
    for (const OpInfo& op : all_ops())
      if (const size_t d = edit_distance(name, op.text); d < distance) best = &op, distance = d;
  return best ? std::string("; did you mean \"") + best->text + "\"?" : "";
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  Result<Graph> run() {
    skip_blank_lines();
    if (!lexer_.accept_name("graph")) return lexer_.expected("\"graph NAME\" as the first statement");
    if (lexer_.peek().kind != Token::Kind::name) return lexer_.expected("the name of the graph");
    builder_.emplace(std::string(lexer_.take().text));
    if (Status status = end_statement(); !status.ok()) return status;
    for (skip_blank_lines(); lexer_.peek().kind != Token::Kind::end; skip_blank_lines()) {
      Status status = statement();
      if (status.ok()) status = end_statement();
      if (!status.ok()) return status;
    }
    if (builder_->graph().outputs.empty())
      return lexer_.error("the graph has no output; expected \"out NAME\"");
    return builder_->finish();
  }

 private:
  void skip_blank_lines() {
    while (lexer_.peek().kind == Token::Kind::end_of_line) lexer_.take();
  }

  Status end_statement() {
    const Token::Kind kind = lexer_.peek().kind;
    if (kind != Token::Kind::end_of_line && kind != Token::Kind::end)
      return lexer_.expected("the end of the line");
    return {};
  }

  Status statement() {
    const Token first = lexer_.peek();
    if (first.kind != Token::Kind::name) return lexer_.expected("\"in\", \"out\", or a name and \"=\"");
    lexer_.take();
    if (lexer_.accept('=')) return operation(first);
    if (first.text == "in") return input();
    if (first.text == "out") return output();
    if (first.text == "graph") return Lexer::error_at(first, "a second \"graph\"; a text holds one graph");
    if (first.text == "dim")
      return Lexer::error_at(first, "symbolic dimensions are not supported; write numbers");
    return lexer_.expected("\"=\" after \"" + std::string(first.text) + "\"");
  }

  Status define(const Token& name, ValueId id) {
    values_.emplace(name.text, id);
    return {};
  }

  Status check_new_name(const Token& name) {
    if (name.kind != Token::Kind::name) return Lexer::error_at(name, "expected a name");
    if (!is_valid_name(name.text))
      return Lexer::error_at(name, "\"" + std::string(name.text) +
                                       "\" cannot be a name: it is a word of the language or too long");
    if (values_.count(name.text))
      return Lexer::error_at(name, "\"" + std::string(name.text) + "\" is defined already");
    return {};
  }

  Result<ValueId> known(const Token& name) {
    const auto at = values_.find(name.text);
    if (at != values_.end()) return at->second;
    return Lexer::error_at(name, "\"" + std::string(name.text) + "\" is not defined above this line");
  }

  // in NAME: DTYPE SHAPE [strides INTS] [const]
  Status input() {
    const Token name = lexer_.peek();
    if (name.kind != Token::Kind::name) return lexer_.expected("the name of an input");
    lexer_.take();
    if (Status status = check_new_name(name); !status.ok()) return status;
    if (!lexer_.accept(':')) return lexer_.expected("\":\"");
    const Token type = lexer_.peek();
    auto dtype = dtype_value();
    if (!dtype) return dtype.status();
    auto shape = ints();
    if (!shape) return shape.status();
    Ints strides;
    bool is_const = false;
    while (lexer_.peek().kind == Token::Kind::name) {
      const Token word = lexer_.peek();
      if (lexer_.accept_name("strides") && strides.empty()) {
        auto given = ints();
        if (!given) return given.status();
        if (given->size() != shape->size())
          return Lexer::error_at(
              word, "expected one stride for each of the " + std::to_string(shape->size()) + " dimensions");
        strides = std::move(*given);
      } else if (!is_const && lexer_.accept_name("const")) {
        is_const = true;
      } else {
        return Lexer::error_at(word, "expected \"strides\", \"const\" or the end of the line, each once");
      }
    }
    auto id =
        builder_->add_input(std::string(name.text), *dtype, std::move(*shape), std::move(strides), is_const);
    return id ? define(name, *id) : locate(type, id.status());
  }

  // out NAME {, NAME}
  Status output() {
    do {
      const Token name = lexer_.peek();
      if (name.kind != Token::Kind::name) return lexer_.expected("the name of an output");
      lexer_.take();
      auto id = known(name);
      if (!id) return id.status();
      if (Status status = builder_->add_output(*id); !status.ok()) return locate(name, status);
    } while (lexer_.accept(','));
    return {};
  }

  // NAME = OPERATOR(...), after the "="
  Status operation(const Token& name) {
    if (Status status = check_new_name(name); !status.ok()) return status;
    const Token op = lexer_.peek();
    if (op.kind != Token::Kind::name) return lexer_.expected("an operator");
    lexer_.take();
    if (!is_op_name(op.text))
      return Lexer::error_at(op,
                             "there is no operator \"" + std::string(op.text) + "\"" + suggest_op(op.text));
    if (!lexer_.accept('(')) return lexer_.expected("\"(\"");
    std::vector<ValueId> operands;
    Attrs attrs;
    if (!lexer_.at(')')) {
      do {
        if (Status status = argument(operands, attrs); !status.ok()) return status;
      } while (lexer_.accept(','));
    }
    if (!lexer_.accept(')')) return lexer_.expected("\",\" or \")\"");
    return apply(name, op, operands, std::move(attrs));
  }

  Status apply(const Token& name, const Token& op, const std::vector<ValueId>& operands, Attrs attrs) {
    const OpInfo* info = find_op(op.text, static_cast<int>(operands.size()));
    if (!info) {
      std::string takes;
      for (const OpInfo& row : all_ops())
        if (op.text == row.text)
          takes += (takes.empty() ? "" : " or ") + std::to_string(row.min_arity) +
                   (row.max_arity > row.min_arity ? " to " + std::to_string(row.max_arity) : "");
      return Lexer::error_at(op, "\"" + std::string(op.text) + "\" takes " + takes + " operands, not " +
                                     std::to_string(operands.size()));
    }
    auto id = builder_->add_op(info->code, operands, std::move(attrs), std::string(name.text));
    return id ? define(name, *id) : locate(op, id.status());
  }

  // name | number | attribute "=" value
  Status argument(std::vector<ValueId>& operands, Attrs& attrs) {
    const Token token = lexer_.peek();
    const bool number = token.kind == Token::Kind::number || token.text == "inf" || token.text == "nan";
    if (!number && token.kind != Token::Kind::name)
      return lexer_.expected("a name, a number or an attribute");
    lexer_.take();
    if (!number && lexer_.accept('=')) return attribute(token, attrs);
    if (attrs.present()) return Lexer::error_at(token, "operands come before attributes");
    if (!number && lexer_.at('('))
      return Lexer::error_at(token,
                             "an argument is a name or a number; give the inner call a line of its own");
    auto operand = number ? constant(token) : known(token);
    if (!operand) return operand.status();
    operands.push_back(*operand);
    return {};
  }

  Result<ValueId> constant(const Token& token) {
    const auto number = parse_number(token.text);
    if (!number)
      return Lexer::error_at(token, "\"" + std::string(token.text) + "\" is not a number that f64 can hold");
    auto id = builder_->add_constant(number->value, number->integral);
    if (!id) return locate(token, id.status());
    return id;
  }

  Status attribute(const Token& name, Attrs& attrs) {
    const AttrInfo* wanted = find_attr(name.text);
    if (!wanted) return Lexer::error_at(name, "there is no attribute \"" + std::string(name.text) + "\"");
    Status status;
    for_each_attr(attrs, [&](const AttrInfo& info, auto& member) {
      if (info.id != wanted->id) return;
      if (member)
        status = Lexer::error_at(name, "the attribute \"" + std::string(name.text) + "\" is given twice");
      else
        status = value_of(member);
    });
    return status;
  }

  template <class T>
  Status store(std::optional<T>& member, Result<T> value) {
    if (value) member = std::move(*value);
    return value.status();
  }
  Status value_of(std::optional<Ints>& member) { return store(member, lexer_.at('[') ? ints() : one_int()); }
  Status value_of(std::optional<double>& member) { return store(member, number_value()); }
  Status value_of(std::optional<DType>& member) { return store(member, dtype_value()); }
  Status value_of(std::optional<bool>& member) { return store(member, flag_value()); }

  Result<int64_t> integer() {
    const Token token = lexer_.peek();
    int64_t value = 0;
    const char* last = token.text.data() + token.text.size();
    if (token.kind != Token::Kind::number) return lexer_.expected("an integer");
    const auto [end, error] = std::from_chars(token.text.data(), last, value);
    if (end != last || error != std::errc()) return lexer_.expected("an integer");
    lexer_.take();
    return value;
  }

  Result<Ints> one_int() {
    auto value = integer();
    if (!value) return value.status();
    return Ints{*value};
  }

  Result<Ints> ints() {
    if (!lexer_.accept('[')) return lexer_.expected("\"[\"");
    Ints list;
    if (lexer_.accept(']')) return list;
    do {
      auto value = integer();
      if (!value) return value.status();
      list.push_back(*value);
    } while (lexer_.accept(','));
    if (!lexer_.accept(']')) return lexer_.expected("\",\" or \"]\"");
    return list;
  }

  Result<double> number_value() {
    const auto number =
        lexer_.peek().kind == Token::Kind::number ? parse_number(lexer_.peek().text) : std::nullopt;
    if (!number) return lexer_.expected("a number");
    lexer_.take();
    return number->value;
  }

  Result<DType> dtype_value() {
    const auto dtype = parse_dtype(lexer_.peek().text);
    if (!dtype) return lexer_.expected("a dtype (f16, bf16, f32, i32, bool)");
    lexer_.take();
    return *dtype;
  }

  Result<bool> flag_value() {
    if (lexer_.accept_name("true")) return true;
    if (lexer_.accept_name("false")) return false;
    return lexer_.expected("true or false");
  }

  // Gives an error of the builder its place.
  static Status locate(const Token& token, const Status& status) {
    return Status(status.code(), Lexer::error_at(token, status.message()).message());
  }

  Lexer lexer_;
  std::optional<GraphBuilder> builder_;
  std::unordered_map<std::string_view, ValueId> values_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text) {
  if (text.size() > kMaxGraphText)
    return Status(ErrorCode::LIMIT, "the graph text has " + std::to_string(text.size()) +
                                        " bytes; the limit is " + std::to_string(kMaxGraphText));
  return Parser(text).run();
}

}  // namespace quern
