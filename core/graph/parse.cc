// parse_graph of text.h: recursive descent over the grammar given there.
#include <cctype>
#include <optional>
#include <unordered_map>

#include "core/graph/builder.h"
#include "core/graph/lexer.h"
#include "core/graph/literals.h"
#include "core/graph/text.h"

namespace quern {

namespace {

class Parser {
 public:
  Parser(std::string_view text, bool unfinished) : lexer_(text), unfinished_(unfinished) {}

  Result<Graph> run() {
    lexer_.skip_blank_lines();
    if (!lexer_.accept_name("graph")) return lexer_.expected("\"graph NAME\" as the first statement");
    if (lexer_.peek().kind != Token::Kind::name) return lexer_.expected("the name of the graph");
    builder_.emplace(std::string(lexer_.take().text));
    if (Status status = lexer_.end_statement(); !status.ok()) return status;
    for (lexer_.skip_blank_lines(); lexer_.peek().kind != Token::Kind::end; lexer_.skip_blank_lines()) {
      Status status = statement();
      if (status.ok()) status = lexer_.end_statement();
      if (!status.ok()) return status;
    }
    if (unfinished_) return builder_->graph();
    if (builder_->graph().outputs.empty())
      return lexer_.error("the graph has no output; expected \"out NAME\"");
    return builder_->finish();
  }

 private:
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
    auto dtype = read_dtype(lexer_);
    if (!dtype) return dtype.status();
    auto shape = read_ints(lexer_);
    if (!shape) return shape.status();
    Ints strides;
    bool is_const = false;
    while (lexer_.peek().kind == Token::Kind::name) {
      const Token word = lexer_.peek();
      if (lexer_.accept_name("strides") && strides.empty()) {
        auto given = read_ints(lexer_);
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
    auto op = read_operator(lexer_);
    if (!op) return op.status();
    if (!lexer_.accept('(')) return lexer_.expected("\"(\"");
    std::vector<ValueId> operands;
    Attrs attrs;
    if (!lexer_.at(')')) {
      do {
        if (Status status = argument(operands, attrs); !status.ok()) return status;
      } while (lexer_.accept(','));
    }
    if (!lexer_.accept(')')) return lexer_.expected("\",\" or \")\"");
    return apply(name, *op, operands, std::move(attrs));
  }

  Status apply(const Token& name, const Token& op, const std::vector<ValueId>& operands, Attrs attrs) {
    auto info = operator_taking(op, operands.size());
    if (!info) return info.status();
    auto id = builder_->add_op((*info)->code, operands, std::move(attrs), std::string(name.text));
    return id ? define(name, *id) : locate(op, id.status());
  }

  // name | number | attribute "=" value
  Status argument(std::vector<ValueId>& operands, Attrs& attrs) {
    const Token token = lexer_.peek();
    const bool number = is_number(token);
    if (!number && token.kind != Token::Kind::name)
      return lexer_.expected("a name, a number or an attribute");
    lexer_.take();
    if (!number && lexer_.accept('=')) return read_attribute(lexer_, token, attrs);
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
    if (!number && token.text.size() > 1 && token.text[0] == '-' &&
        std::isalpha(static_cast<unsigned char>(token.text[1])))
      return Lexer::error_at(token, "\"" + std::string(token.text) + "\" is no operand; neg(x) is -x");
    if (!number)
      return Lexer::error_at(token, "\"" + std::string(token.text) + "\" is not a number that f64 can hold");
    auto id = builder_->add_constant(number->value, number->integral);
    if (!id) return locate(token, id.status());
    return id;
  }

  Lexer lexer_;
  const bool unfinished_;
  std::optional<GraphBuilder> builder_;
  std::unordered_map<std::string_view, ValueId> values_;
};

}  // namespace

namespace {

// What some editors put in front of UTF-8.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

Result<Graph> parse(std::string_view text, bool unfinished) {
  if (text.size() > kMaxGraphText)
    return Status(ErrorCode::LIMIT, "the graph text has " + std::to_string(text.size()) +
                                        " bytes; the limit is " + std::to_string(kMaxGraphText));
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return Parser(text, unfinished).run();
}

}  // namespace

Result<Graph> parse_graph(std::string_view text) { return parse(text, false); }
Result<Graph> parse_unfinished_graph(std::string_view text) { return parse(text, true); }

}  // namespace quern
