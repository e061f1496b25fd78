#include "core/kernel/expr.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/base/dtype_info.h"
#include "core/base/status.h"
#include "core/kernel/value.h"

namespace quern::ir {

namespace {

struct ScalarInfo {
  const char* name;
  int64_t bytes;
};
constexpr ScalarInfo kScalars[] = {
    {"void", 0},
#define QUERN_SCALAR(id, name, bytes) {name, bytes},
#include "core/kernel/scalars.def"
};

constexpr FunctionInfo kFunctions[] = {
#define QUERN_FUNCTION(id, name, cost) {name, FunctionCost::cost},
#include "core/kernel/functions.def"
};

// As in C++: a larger number binds tighter.
struct OperatorInfo {
  const char* text;
  int precedence;
  bool associative;
};
constexpr OperatorInfo kOperators[] = {
    {"*", 10, false}, {"/", 10, false}, {"%", 10, false}, {"+", 9, false},  {"-", 9, false},
    {"<<", 8, false}, {">>", 8, false}, {"<", 7, false},  {"<=", 7, false}, {"==", 6, false},
    {"!=", 6, false}, {"&", 5, true},   {"^", 4, true},   {"|", 3, true},   {"&&", 2, true},
    {"||", 1, true},  {"-", 11, false},
};
constexpr int kTernary = 0, kPrimary = 12;

const OperatorInfo& info(Operator op) { return kOperators[static_cast<size_t>(op)]; }
bool is_comparison(Operator op) {
  return op == Operator::less || op == Operator::less_equal || op == Operator::equal ||
         op == Operator::not_equal;
}
bool is_truth(Operator op) { return is_comparison(op) || op == Operator::both || op == Operator::either; }

Expr make(ExprNode node) { return Expr(std::make_shared<const ExprNode>(std::move(node))); }

Expr number_of(int64_t number, Scalar type) {
  ExprNode node;
  node.number = number;
  node.type = type;
  return make(std::move(node));
}

// What is neutral disappears; null if nothing does.
const Expr* neutral(Operator op, const Expr& a, const Expr& b) {
  switch (op) {
    case Operator::add:
    case Operator::bit_xor:
    case Operator::bit_or:
      return a.is_number(0) ? &b : b.is_number(0) ? &a : nullptr;
    case Operator::subtract:
    case Operator::shift_left:
    case Operator::shift_right:
      return b.is_number(0) ? &a : nullptr;
    case Operator::multiply:
      return a.is_number(1) ? &b : b.is_number(1) ? &a : a.is_number(0) ? &a : b.is_number(0) ? &b : nullptr;
    case Operator::divide:
      return b.is_number(1) ? &a : nullptr;
    case Operator::both:
      return a.is_number() ? (a->number ? &b : &a) : b.is_number() ? (b->number ? &a : &b) : nullptr;
    case Operator::either:
      return a.is_number() ? (a->number ? &a : &b) : b.is_number() ? (b->number ? &b : &a) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

const char* cuda_name(Scalar type) { return kScalars[static_cast<size_t>(type)].name; }
int64_t bytes_of(Scalar type) { return kScalars[static_cast<size_t>(type)].bytes; }
bool is_index(Scalar type) {
  return type == Scalar::i32 || type == Scalar::u32 || type == Scalar::i64 || type == Scalar::u64;
}

static_assert(static_cast<Scalar>(DType::boolean) == Scalar::boolean, "the first are dtypes, by their numbers");
Scalar scalar_of(DType dtype) { return static_cast<Scalar>(dtype); }

const FunctionInfo& function_info(Function function) { return kFunctions[static_cast<size_t>(function)]; }

const SymbolData& root_of(const SymbolData& symbol) { return symbol.into ? root_of(*symbol.into) : symbol; }

Expr::Expr(int64_t number)
    : Expr(number_of(number, number >= std::numeric_limits<int32_t>::min() &&
                                     number <= std::numeric_limits<int32_t>::max()
                                 ? Scalar::i32
                                 : Scalar::i64)) {}

Expr::Expr(const Symbol& symbol) {
  ExprNode node;
  node.kind = ExprKind::symbol;
  node.type = symbol->type;
  node.symbol = symbol;
  *this = make(std::move(node));
}

bool Expr::is_number() const { return node_->kind == ExprKind::number; }
bool Expr::is_number(int64_t value) const { return is_number() && node_->number == value; }

bool Expr::operator==(const Expr& other) const {
  if (node_ == other.node_) return true;
  const ExprNode &a = *node_, &b = *other.node_;
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.function == b.function &&
         a.number == b.number && (a.value == b.value || (std::isnan(a.value) && std::isnan(b.value))) &&
         std::signbit(a.value) == std::signbit(b.value) && a.symbol == b.symbol &&
         a.templates == b.templates && a.operands == b.operands;
}

Expr truth(bool value) { return number_of(value, Scalar::boolean); }

std::string literal_text(double value, Scalar type) {
  char text[64];
  if (type == Scalar::boolean) return value != 0 ? "true" : "false";
  if (type == Scalar::i32) {
    const int32_t integer = static_cast<int32_t>(value);
    if (integer == INT32_MIN) return "(-2147483647 - 1)";
    std::snprintf(text, sizeof text, integer < 0 ? "(%d)" : "%d", integer);
    return text;
  }
  const float single = static_cast<float>(value);
  if (std::isnan(single)) return "quiet_nan()";
  if (std::isinf(single)) return single > 0 ? "infinity()" : "(-infinity())";
  std::snprintf(text, sizeof text, std::signbit(single) ? "(%.9ef)" : "%.9ef", single);
  return text;
}

Expr literal(double value, Scalar type) {
  ExprNode node;
  node.kind = ExprKind::literal;
  node.type = type;
  node.value = value;
  return make(std::move(node));
}

Expr zero(Scalar type) {
  ExprNode node;
  node.kind = ExprKind::zero;
  node.type = type;
  return make(std::move(node));
}

Expr element(const Symbol& array, const Expr& index) {
  ExprNode node;
  node.kind = ExprKind::element;
  node.type = array->type;
  node.symbol = array;
  node.operands = {index};
  return make(std::move(node));
}

Expr address(const Symbol& array, const Expr& index) {
  ExprNode node;
  node.kind = ExprKind::address;
  node.type = array->type;
  node.symbol = array;
  node.operands = {index};
  return make(std::move(node));
}

Expr select(const Expr& condition, const Expr& then, const Expr& otherwise) {
  check(then.type() == otherwise.type(), "both branches of a selection have one type");
  if (condition.is_number()) return condition->number ? then : otherwise;
  ExprNode node;
  node.kind = ExprKind::select;
  node.type = then.type();
  node.operands = {condition, then, otherwise};
  return make(std::move(node));
}

Expr cast(const Expr& value, Scalar type) {
  if (value.type() == type) return value;
  if (value.is_number() && is_index(type)) return number_of(value->number, type);
  ExprNode node;
  node.kind = ExprKind::cast;
  node.type = type;
  node.operands = {value};
  return make(std::move(node));
}

Expr call(Function function, Scalar type, std::vector<Expr> operands, TemplateArgs templates) {
  ExprNode node;
  node.kind = ExprKind::call;
  node.type = type;
  node.function = function;
  node.operands = std::move(operands);
  node.templates = std::move(templates);
  return make(std::move(node));
}

Expr thread_index(Scalar type) {
  ExprNode node;
  node.kind = ExprKind::thread_index;
  node.type = type;
  return make(std::move(node));
}

Expr block_index(int axis, Scalar type) {
  ExprNode node;
  node.kind = ExprKind::block_index;
  node.number = axis;
  node.type = type;
  return make(std::move(node));
}

Expr combiner(OpCode reduction, Scalar type) {
  ExprNode node;
  node.kind = ExprKind::combiner;
  node.type = type;
  node.number = static_cast<int64_t>(reduction);
  return make(std::move(node));
}

int64_t convert_index(int64_t value, Scalar type) {
  switch (type) {
    case Scalar::boolean:
      return value != 0;
    case Scalar::i32:
      return static_cast<int32_t>(value);
    case Scalar::u32:
      return static_cast<uint32_t>(value);
    default:
      return value;
  }
}

std::optional<int64_t> compute(Operator op, int64_t a, int64_t b) {
  switch (op) {
    case Operator::multiply:
      return a * b;
    case Operator::divide:
      return b == 0 ? std::nullopt : std::optional(a / b);
    case Operator::modulo:
      return b == 0 ? std::nullopt : std::optional(a % b);
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::shift_left:
      return a << b;
    case Operator::shift_right:
      return a >> b;
    case Operator::less:
      return a < b;
    case Operator::less_equal:
      return a <= b;
    case Operator::equal:
      return a == b;
    case Operator::not_equal:
      return a != b;
    case Operator::bit_and:
      return a & b;
    case Operator::bit_xor:
      return a ^ b;
    case Operator::bit_or:
      return a | b;
    case Operator::both:
      return a && b;
    case Operator::either:
      return a || b;
    case Operator::negate:
      break;
  }
  return std::nullopt;
}

std::optional<int64_t> compute(Function function, int64_t a, int64_t b) {
  if (function == Function::min_index) return std::min(a, b);
  if (function == Function::max_index) return std::max(a, b);
  return std::nullopt;
}

Expr operation(Operator op, const Expr& a, const Expr& b) {
  const bool indices = is_index(a.type()) && is_index(b.type());
  check(indices || a.type() == b.type() || is_truth(op), "an operator's operands have one type");
  const Scalar type = is_truth(op)                               ? Scalar::boolean
                      : bytes_of(a.type()) >= bytes_of(b.type()) ? a.type()
                                                                 : b.type();
  if (a.is_number() && b.is_number()) {
    const auto value = compute(op, a->number, b->number);
    check(value.has_value(), "an operator of two operands, and no division by zero");
    return number_of(*value, type);
  }
  if (indices || type == Scalar::boolean)
    if (const Expr* left = neutral(op, a, b)) return *left;
  ExprNode node;
  node.kind = ExprKind::operation;
  node.type = type;
  node.op = op;
  node.operands = {a, b};
  return make(std::move(node));
}

Expr negate(const Expr& a) {
  ExprNode node;
  node.kind = ExprKind::operation;
  node.type = a.type();
  node.op = Operator::negate;
  node.operands = {a};
  return make(std::move(node));
}

namespace {

Expr chosen(Function function, const Expr& a, const Expr& b) {
  check(a.type() == b.type(), "two indices of one type");
  if (!a.is_number() || !b.is_number()) return call(function, a.type(), {a, b});
  return number_of(*compute(function, a->number, b->number), a.type());
}

}  // namespace

Expr min_of(const Expr& a, const Expr& b) { return chosen(Function::min_index, a, b); }
Expr max_of(const Expr& a, const Expr& b) { return chosen(Function::max_index, a, b); }

Expr replaced(const Expr& expr, const Symbol& variable, const Expr& by) {
  return replaced(expr, [&](const ExprNode& node) {
    return node.kind == ExprKind::symbol && node.symbol == variable ? std::optional(by) : std::nullopt;
  });
}

Expr replaced(const Expr& expr, const Replacement& by) {
  if (std::optional<Expr> other = by(expr.node())) return std::move(*other);
  if (expr->operands.empty()) return expr;
  ExprNode node = expr.node();
  bool changed = false;
  for (Expr& operand : node.operands) {
    Expr next = replaced(operand, by);
    changed |= &next.node() != &operand.node();
    operand = std::move(next);
  }
  if (!changed) return expr;
  if (node.kind == ExprKind::operation && node.operands.size() == 2)
    return operation(node.op, node.operands[0], node.operands[1]);
  if (node.kind == ExprKind::select) return select(node.operands[0], node.operands[1], node.operands[2]);
  return make(std::move(node));
}

namespace {

std::string built_in(const char* name, Scalar type) {
  return type == Scalar::u32 ? name : std::string(cuda_name(type)) + "(" + name + ")";
}

std::string print_combiner(OpCode reduction, Scalar type) {
  auto operand = [&](const char* name) {
    return Expr(std::make_shared<const SymbolData>(
        SymbolData{name, Space::variable, type, 1, false, false, nullptr}));
  };
  const std::string name = cuda_name(type);
  return "[](" + name + " x, " + name + " y) { return " +
         print(combine(reduction, operand("x"), operand("y"), register_dtype(type))) + "; }";
}

std::string print_at(const Expr& expr, int around);

std::string print_list(const std::vector<Expr>& operands) {
  std::string out;
  for (const Expr& operand : operands) out += (out.empty() ? "" : ", ") + print(operand);
  return out;
}

std::string print_operation(const ExprNode& node) {
  const OperatorInfo& row = info(node.op);
  if (node.operands.size() == 1) return row.text + print_at(node.operands[0], row.precedence);
  auto side = [&](const Expr& operand, bool right) {
    const bool same = operand->kind == ExprKind::operation && operand->op == node.op;
    // Sums of indices lose their parentheses: a pointer then moves by each part, which compilers fold best.
    const bool sum = node.op == Operator::add && is_index(node.type);
    const bool loose = right && !(same && (row.associative || sum));
    return print_at(operand, loose ? row.precedence + 1 : row.precedence);
  };
  return side(node.operands[0], false) + " " + row.text + " " + side(node.operands[1], true);
}

int precedence(const ExprNode& node) {
  switch (node.kind) {
    case ExprKind::operation:
      return info(node.op).precedence;
    case ExprKind::select:
      return kTernary;
    case ExprKind::address:
      return node.symbol->space == Space::registers ? kPrimary - 1
             : node.operands[0].is_number(0)        ? kPrimary
                                                    : info(Operator::add).precedence;
    case ExprKind::number:
      return node.number < 0 ? kPrimary - 1 : kPrimary;
    default:
      return kPrimary;
  }
}

std::string print_node(const ExprNode& node) {
  static constexpr const char* kAxes[] = {"blockIdx.x", "blockIdx.y", "blockIdx.z"};
  switch (node.kind) {
    case ExprKind::number:
      if (node.type == Scalar::boolean) return node.number ? "true" : "false";
      return std::to_string(node.number) + (node.type == Scalar::i64   ? "ll"
                                            : node.type == Scalar::u64 ? "ull"
                                                                       : "");
    case ExprKind::literal:
      return literal_text(node.value, node.type);
    case ExprKind::symbol:
      return node.symbol->name;
    case ExprKind::element:
      return node.symbol->name + "[" + print(node.operands[0]) + "]";
    case ExprKind::address:
      if (node.symbol->space == Space::registers)
        return "&" + node.symbol->name + "[" + print(node.operands[0]) + "]";
      if (node.operands[0].is_number(0)) return node.symbol->name;
      return node.symbol->name + " + " + print_at(node.operands[0], info(Operator::add).precedence);
    case ExprKind::operation:
      return print_operation(node);
    case ExprKind::select:
      return print_at(node.operands[0], kTernary + 1) + " ? " + print_at(node.operands[1], kTernary + 1) +
             " : " + print_at(node.operands[2], kTernary);
    case ExprKind::cast: {
      const bool words = bytes_of(node.type) == 8;  // a type of several words is no name of a function
      return (words ? "static_cast<" + std::string(cuda_name(node.type)) + ">("
                    : cuda_name(node.type) + std::string("(")) +
             print(node.operands[0]) + ")";
    }
    case ExprKind::call: {
      const bool braces =
          node.function == Function::shared_operand || node.function == Function::strided_matrix;
      // The tile and the place in it, of which compilers then make what all operands of the tile share.
      if (node.function == Function::shared_operand && node.operands[0]->kind == ExprKind::address)
        return function_info(node.function).name + print(node.templates) + "{" +
               node.operands[0]->symbol->name + ", " + print(node.operands[0]->operands[0]) + "}";
      return function_info(node.function).name + print(node.templates) + (braces ? "{" : "(") +
             print_list(node.operands) + (braces ? "}" : ")");
    }
    case ExprKind::thread_index:
      return built_in("threadIdx.x", node.type);
    case ExprKind::block_index:
      return built_in(kAxes[node.number], node.type);
    case ExprKind::zero:
      return std::string(cuda_name(node.type)) + "{}";
    case ExprKind::combiner:
      return print_combiner(static_cast<OpCode>(node.number), node.type);
  }
  check(false, "a kind of expression");
  return "";
}

std::string print_at(const Expr& expr, int around) {
  const std::string text = print_node(expr.node());
  return precedence(expr.node()) < around ? "(" + text + ")" : text;
}

}  // namespace

std::string print(const Expr& expr) { return print_at(expr, 0); }

std::string print(const TemplateArgs& args) {
  std::string out;
  for (const TemplateArg& arg : args) {
    out += out.empty() ? "<" : ", ";
    switch (arg.kind) {
      case TemplateArg::Kind::type:
        out += cuda_name(arg.type);
        break;
      case TemplateArg::Kind::flag:
        out += arg.number ? "true" : "false";
        break;
      case TemplateArg::Kind::number:
        out += std::to_string(arg.number);
        break;
      case TemplateArg::Kind::templated:
        out += arg.name + print(arg.of);
        break;
    }
  }
  return out.empty() ? out : out + ">";
}

}  // namespace quern::ir
