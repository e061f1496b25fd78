// parse_mugraph of text.h: recursive descent over the grammar given there.
#include <optional>
#include <unordered_map>

#include "core/graph/builder.h"
#include "core/graph/literals.h"
#include "core/mugraph/text.h"

namespace quern {

namespace {

struct CombineWord {
  std::string word;
  bool cluster;
  Combine combine;
};

const std::vector<CombineWord>& combine_words() {
  static const std::vector<CombineWord> words = [] {
    std::vector<Combine> combines = {Combine::rescaled_sum, Combine::concat};
    for (const OpInfo& op : all_ops())
      if (op.kind == OpKind::reduction) combines.push_back(combine_of(op.code));
    std::vector<CombineWord> words;
    for (Combine combine : combines) {
      words.push_back({"accumulate_" + combine_text(combine), false, combine});
      if (combine != Combine::concat) words.push_back({"cluster_" + combine_text(combine), true, combine});
    }
    return words;
  }();
  return words;
}

constexpr std::string_view kAxisWords[] = {"x", "y", "z", "cluster"};

using Names = std::unordered_map<std::string_view, int32_t>;

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  Result<MuGraph> run() {
    lexer_.skip_blank_lines();
    if (!lexer_.accept_name("mugraph")) return lexer_.expected("\"mugraph NAME\" as the first statement");
    if (lexer_.peek().kind != Token::Kind::name) return lexer_.expected("the name of the muGraph");
    mugraph_.name = lexer_.take().text;
    if (Status status = lexer_.end_statement(); !status.ok()) return status;
    for (lexer_.skip_blank_lines(); lexer_.peek().kind != Token::Kind::end; lexer_.skip_blank_lines()) {
      Status status = statement();
      if (status.ok()) status = lexer_.end_statement();
      if (!status.ok()) return status;
    }
    if (mugraph_.outputs.empty()) return lexer_.error("the muGraph has no output; expected \"out NAME\"");
    if (Status status = validate(mugraph_); !status.ok()) return status;
    return std::move(mugraph_);
  }

 private:
  Status punctuation(char c) {
    return lexer_.accept(c) ? Status() : lexer_.expected(std::string("\"") + c + "\"");
  }

  // ---- tensors and kernels ----

  Status statement() {
    const Token first = lexer_.peek();
    if (first.kind != Token::Kind::name) return lexer_.expected("a statement");
    lexer_.take();
    if (lexer_.accept('=')) return library_operator(first);
    if (first.text == "in" || first.text == "tensor") return declaration(first.text == "in");
    if (first.text == "kernel") return block_graph();
    if (first.text == "out") return outputs();
    return Lexer::error_at(first, "expected \"in\", \"tensor\", \"kernel\", \"out\", or a name and \"=\"");
  }

  // NAME ":" DTYPE SHAPE [ "dense" ]
  Status declaration(bool input) {
    auto name = new_name(tensors_);
    if (!name) return name.status();
    if (Status status = punctuation(':'); !status.ok()) return status;
    auto dtype = read_dtype(lexer_);
    if (!dtype) return dtype.status();
    auto shape = read_ints(lexer_);
    if (!shape) return shape.status();
    if (Status status = check_shape(*shape); !status.ok()) return locate(*name, status);
    const int32_t id = static_cast<int32_t>(mugraph_.tensors.size());
    mugraph_.tensors.push_back({std::string(name->text), {*dtype, std::move(*shape)}});
    tensors_.emplace(name->text, id);
    if (input) {
      mugraph_.tensors.back().dense = lexer_.accept_name("dense");
      mugraph_.inputs.push_back(id);
    }
    return {};
  }

  Result<Token> new_name(const Names& taken) {
    const Token name = lexer_.peek();
    if (name.kind != Token::Kind::name || !is_valid_name(name.text)) return lexer_.expected("a new name");
    if (taken.count(name.text)) return lexer_.error("\"" + std::string(name.text) + "\" is defined already");
    lexer_.take();
    return name;
  }

  Result<int32_t> known(const Names& names, const char* what) {
    const Token name = lexer_.peek();
    if (name.kind != Token::Kind::name) return lexer_.expected(std::string("the name of ") + what);
    const auto at = names.find(name.text);
    if (at == names.end())
      return lexer_.error("\"" + std::string(name.text) + "\" is not the name of " + what +
                          " defined above this line");
    lexer_.take();
    return at->second;
  }
  Result<int32_t> known_tensor() { return known(tensors_, "a tensor"); }
  Result<int32_t> known_value() { return known(values_, "a value"); }

  Status outputs() {
    do {
      auto tensor = known_tensor();
      if (!tensor) return tensor.status();
      mugraph_.outputs.push_back(*tensor);
    } while (lexer_.accept(','));
    return {};
  }

  // After "NAME =".
  Status library_operator(const Token& result) {
    const auto at = tensors_.find(result.text);
    if (at == tensors_.end())
      return Lexer::error_at(result, "\"" + std::string(result.text) +
                                         "\" is no tensor; declare it first: tensor NAME: DTYPE SHAPE");
    MuKernel kernel;
    kernel.result = at->second;
    auto op = read_operator(lexer_);
    if (!op) return op.status();
    Status status = arguments(kernel.attrs, [&](const Token& token) -> Status {
      if (is_number(token)) return literal(kernel.operands);
      auto tensor = known_tensor();
      if (tensor) kernel.operands.push_back(*tensor);
      return tensor.status();
    });
    if (!status.ok()) return status;
    auto info = operator_taking(*op, kernel.operands.size());
    if (!info) return info.status();
    kernel.code = (*info)->code;
    mugraph_.kernels.push_back(std::move(kernel));
    return {};
  }

  // A number becomes a tensor of its own.
  Status literal(std::vector<int32_t>& operands) {
    const auto number = parse_number(lexer_.peek().text);
    if (!number) return lexer_.expected("a number that f64 can hold");
    lexer_.take();
    operands.push_back(static_cast<int32_t>(mugraph_.tensors.size()));
    mugraph_.tensors.push_back(
        {"", {number->integral ? DType::i32 : DType::f32, {}, true}, number->value});
    return {};
  }

  // "(" { argument } ")", operands before attributes. `operand` reads one at the token it gets.
  template <class F>
  Status arguments(Attrs& attrs, F operand) {
    if (Status status = punctuation('('); !status.ok()) return status;
    if (lexer_.accept(')')) return {};
    do {
      const Token token = lexer_.peek();
      Lexer ahead = lexer_;
      ahead.take();
      Status status;
      if (token.kind == Token::Kind::name && ahead.accept('=')) {
        lexer_ = ahead;
        status = read_attribute(lexer_, token, attrs);
      } else if (attrs.present()) {
        status = Lexer::error_at(token, "operands come before attributes");
      } else {
        status = operand(token);
      }
      if (!status.ok()) return status;
    } while (lexer_.accept(','));
    return punctuation(')');
  }

  // ---- block graphs ----

  // After "kernel".
  Status block_graph() {
    MuKernel kernel;
    kernel.custom = true;
    values_.clear();
    while (!lexer_.at('{'))
      if (Status status = option(kernel); !status.ok()) return status;
    lexer_.take();
    for (lexer_.skip_blank_lines(); !lexer_.accept('}'); lexer_.skip_blank_lines()) {
      Status status = block_statement(kernel);
      if (status.ok()) status = lexer_.end_statement();
      if (!status.ok()) return status;
    }
    mugraph_.kernels.push_back(std::move(kernel));
    return {};
  }

  Status option(MuKernel& kernel) {
    const Token word = lexer_.peek();
    auto number = [&](auto& member) -> Status {
      auto value = read_integer(lexer_);
      if (!value) return value.status();
      if (*value < 1 || *value > INT32_MAX)
        return Lexer::error_at(word, std::string(word.text) + " must be from 1 to 2147483647");
      member = static_cast<std::decay_t<decltype(member)>>(*value);
      return {};
    };
    if (word.kind != Token::Kind::name) return lexer_.expected("an option of the kernel, or \"{\"");
    lexer_.take();
    if (Status status = punctuation('='); !status.ok()) return status;
    if (word.text == "cluster") return number(kernel.grid[3]);
    if (word.text == "loop") return number(kernel.trip_count);
    if (word.text == "threads") return number(kernel.threads);
    if (word.text != "grid" && word.text != "tiles")
      return Lexer::error_at(word, "expected \"grid\", \"cluster\", \"loop\", \"tiles\" or \"threads\"");
    auto numbers = read_ints(lexer_);
    if (!numbers) return numbers.status();
    if (word.text == "grid") {
      if (numbers->size() > 3) return Lexer::error_at(word, "a grid has at most 3 extents");
      std::copy(numbers->begin(), numbers->end(), kernel.grid.begin());
      return {};
    }
    if (numbers->size() != kernel.tiles.size())
      return Lexer::error_at(word, "tiles are those of x, y, z, cluster and loop");
    for (int64_t tile : *numbers)
      if (tile < 0 || tile > INT32_MAX) return Lexer::error_at(word, "a tile has 0 to 2147483647 elements");
    std::copy(numbers->begin(), numbers->end(), kernel.tiles.begin());
    return {};
  }

  Status block_statement(MuKernel& kernel) {
    if (lexer_.at_name("store")) {
      Lexer ahead = lexer_;
      ahead.take();
      if (ahead.at('(')) return store(kernel);
    }
    auto name = new_name(values_);
    if (!name) return name.status();
    if (Status status = punctuation('='); !status.ok()) return status;
    auto op = definition(kernel);
    if (!op) return op.status();
    op->name = name->text;
    values_.emplace(name->text, static_cast<BlockValue>(kernel.ops.size()));
    kernel.ops.push_back(std::move(*op));
    return {};
  }

  Result<BlockOp> definition(MuKernel& kernel) {
    const Token word = lexer_.peek();
    for (const CombineWord& row : combine_words())
      if (lexer_.accept_name(row.word)) return combination(row);
    if (lexer_.accept_name("load")) return load();
    if (lexer_.accept_name("extent")) return extents();
    if (lexer_.accept_name("number")) return number();
    if (auto info = read_operator(lexer_); !info) return info.status();
    return compute(kernel, word);
  }

  Result<BlockOp> load() {
    if (Status status = punctuation('('); !status.ok()) return status;
    auto tensor = known_tensor();
    if (!tensor) return tensor.status();
    BlockOp::Access access{*tensor};
    if (Status status = cuts(access); !status.ok()) return status;
    return BlockOp(BlockOp::Load{access});
  }

  Status store(MuKernel& kernel) {
    lexer_.take();
    if (Status status = punctuation('('); !status.ok()) return status;
    auto value = known_value();
    if (!value) return value.status();
    if (Status status = punctuation(','); !status.ok()) return status;
    auto tensor = known_tensor();
    if (!tensor) return tensor.status();
    BlockOp::Access access{*tensor};
    if (Status status = cuts(access); !status.ok()) return status;
    kernel.ops.push_back(BlockOp(BlockOp::Store{access}, {*value}));
    return {};
  }

  // { "," AXIS "=" DIM } ")"
  Status cuts(BlockOp::Access& access) {
    while (lexer_.accept(',')) {
      const Token word = lexer_.peek();
      int* place = word.text == "loop" ? &access.loop_dim : nullptr;
      for (size_t axis = 0; axis < kGridAxes; ++axis)
        if (word.text == kAxisWords[axis]) place = &access.map[axis];
      if (!place) return lexer_.expected("x, y, z, cluster or loop");
      if (*place >= 0) return lexer_.error("this axis is given twice");
      lexer_.take();
      if (Status status = punctuation('='); !status.ok()) return status;
      auto dim = read_integer(lexer_);
      if (!dim) return dim.status();
      if (*dim < 0 || *dim >= static_cast<int64_t>(kMaxRank))
        return Lexer::error_at(word, "there is no dimension " + std::to_string(*dim));
      *place = static_cast<int>(*dim);
    }
    return punctuation(')');
  }

  Result<BlockOp> combination(const CombineWord& row) {
    Attrs attrs;
    std::vector<BlockValue> operands;
    const Token at = lexer_.peek();
    Status status = arguments(attrs, [&](const Token&) -> Status {
      auto value = known_value();
      if (value) operands.push_back(*value);
      return value.status();
    });
    if (!status.ok()) return status;
    const bool concat = row.combine == Combine::concat;
    if (attrs.present() != (concat ? attr_bit(AttrId::axis) : 0) || (concat && attrs.axis->size() != 1))
      return Lexer::error_at(at, concat ? "accumulate_concat needs one axis" : "no attribute belongs here");
    if (row.cluster) return BlockOp(BlockOp::ReduceCluster{row.combine}, std::move(operands));
    const int dim = concat ? static_cast<int>(attrs.axis->front()) : -1;
    return BlockOp(BlockOp::Accumulate{row.combine, dim}, std::move(operands));
  }

  // "(" TENSOR "[" DIM "]" { "," ... } ")"
  Result<BlockOp> extents() {
    BlockOp::Compute constant;
    if (Status status = punctuation('('); !status.ok()) return status;
    do {
      auto tensor = known_tensor();
      if (!tensor) return tensor.status();
      const Token at = lexer_.peek();
      auto dim = read_ints(lexer_);
      if (!dim) return dim.status();
      if (dim->size() != 1 || dim->front() < 0 || dim->front() >= static_cast<int64_t>(kMaxRank))
        return Lexer::error_at(at, "expected one dimension");
      constant.extents.push_back({*tensor, static_cast<int>(dim->front())});
    } while (lexer_.accept(','));
    if (Status status = punctuation(')'); !status.ok()) return status;
    return BlockOp(std::move(constant));
  }

  Result<BlockOp> number() {
    if (Status status = punctuation('('); !status.ok()) return status;
    const Token token = lexer_.peek();
    const auto value = is_number(token) ? parse_number(token.text) : std::nullopt;
    if (!value) return lexer_.expected("a number that f64 can hold");
    lexer_.take();
    if (Status status = punctuation(')'); !status.ok()) return status;
    return BlockOp::constant(value->value);
  }

  // An operator of ops.def; a number among its operands becomes a constant before it.
  Result<BlockOp> compute(MuKernel& kernel, const Token& word) {
    Attrs attrs;
    std::vector<BlockValue> operands;
    Status status = arguments(attrs, [&](const Token& token) -> Status {
      if (is_number(token)) {
        const auto number = parse_number(token.text);
        if (!number) return lexer_.expected("a number that f64 can hold");
        lexer_.take();
        operands.push_back(static_cast<BlockValue>(kernel.ops.size()));
        kernel.ops.push_back(BlockOp::constant(number->value));
        return {};
      }
      auto value = known_value();
      if (value) operands.push_back(*value);
      return value.status();
    });
    if (!status.ok()) return status;
    auto info = operator_taking(word, operands.size());
    if (!info) return info.status();
    return BlockOp(BlockOp::Compute{(*info)->code, std::move(attrs)}, std::move(operands));
  }

  Lexer lexer_;
  MuGraph mugraph_;
  Names tensors_, values_;
};

}  // namespace

Result<MuGraph> parse_mugraph(std::string_view text) {
  if (text.size() > kMaxGraphText)
    return Status(ErrorCode::LIMIT, "the muGraph text has " + std::to_string(text.size()) +
                                        " bytes; the limit is " + std::to_string(kMaxGraphText));
  return Parser(text).run();
}

}  // namespace quern
