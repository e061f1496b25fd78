// Expressions of the kernel IR: what one thread computes of registers and numbers, typed, immutable and
// shared.
//
// Arithmetic on integers that are known is done at once, and what is neutral disappears: `at + 0` is `at`, so
// lowering may write sums without looking. Nothing else is rewritten; floats never are.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/lang/op.h"

namespace quern::ir {

enum class Scalar : uint8_t {
  none,
#define QUERN_SCALAR(id, ...) id,
#include "core/kernel/scalars.def"
};
const char* cuda_name(Scalar type);
int64_t bytes_of(Scalar type);
Scalar scalar_of(DType dtype);  // as memory holds it
bool is_index(Scalar type);     // i32, u32, i64, u64

// Where what a name stands for lives.
enum class Space : uint8_t {
  variable,    // a value of each thread, defined once; or a pointer
  registers,   // an array of each thread
  shared,      // memory of the block
  global,      // memory of the device
  tensor_map,  // a parameter that describes a tensor to TMA
};

// A name in a kernel. Two symbols are the same if they are the same object.
struct SymbolData {
  std::string name;
  Space space = Space::variable;
  Scalar type = Scalar::i32;  // of an element
  int64_t count = 1;          // elements of registers and of shared memory
  bool vector = false;        // registers that move as one access
  bool written = false;       // of global memory: through this pointer
  // What a pointer points into: a stage of a ring, a tile of a tensor. Whoever touches one touches the other.
  std::shared_ptr<const SymbolData> into;
  bool own = false;  // of shared memory: a thread touches nothing but what it has written or copied itself
};
using Symbol = std::shared_ptr<const SymbolData>;
// The memory or registers that a name stands for in the end.
const SymbolData& root_of(const SymbolData& symbol);

enum class Operator : uint8_t {
  multiply,
  divide,
  modulo,
  add,
  subtract,
  shift_left,
  shift_right,
  less,
  less_equal,
  equal,
  not_equal,
  bit_and,
  bit_xor,
  bit_or,
  both,
  either,
  negate,
};

enum class Function : uint8_t {
#define QUERN_FUNCTION(id, ...) id,
#include "core/kernel/functions.def"
};
enum class FunctionCost : uint8_t { free, simple, special, slow, shuffle };
struct FunctionInfo {
  const char* name;
  FunctionCost cost;
};
const FunctionInfo& function_info(Function function);

// An argument in angle brackets.
struct TemplateArg {
  enum class Kind : uint8_t { number, flag, type, templated } kind;
  int64_t number = 0;
  Scalar type = Scalar::none;
  std::string name;             // of a class template of the prelude
  std::vector<TemplateArg> of;  // and its arguments
  TemplateArg(int64_t value) : kind(Kind::number), number(value) {}
  TemplateArg(int value) : kind(Kind::number), number(value) {}
  TemplateArg(bool value) : kind(Kind::flag), number(value) {}
  TemplateArg(Scalar value) : kind(Kind::type), type(value) {}
  TemplateArg(std::string class_name, std::vector<TemplateArg> args)
      : kind(Kind::templated), name(std::move(class_name)), of(std::move(args)) {}
  bool operator==(const TemplateArg&) const = default;
};
using TemplateArgs = std::vector<TemplateArg>;

enum class ExprKind : uint8_t {
  number,     // of an index type or boolean
  literal,    // of f32, i32 or boolean: a number of the program
  symbol,     // a variable, or a pointer itself
  element,    // symbol[operand]
  address,    // of that element
  operation,  // one or two operands
  select,     // condition, then, otherwise
  cast,
  call,
  thread_index,  // threadIdx.x
  block_index,   // blockIdx, axis `number`
  zero,          // of any type
  combiner,      // what the reduction `number` makes of two values, as a function
};

struct ExprNode;

class Expr {
 public:
  Expr(int number) : Expr(int64_t{number}) {}
  Expr(int64_t number);
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}
  Expr(const Symbol& symbol);

  const ExprNode& node() const { return *node_; }
  const ExprNode* operator->() const { return node_.get(); }
  Scalar type() const;
  bool is_number() const;
  bool is_number(int64_t value) const;
  // The same tree.
  bool operator==(const Expr& other) const;

 private:
  std::shared_ptr<const ExprNode> node_;
};

struct ExprNode {
  ExprKind kind = ExprKind::number;
  Scalar type = Scalar::i32;
  Operator op = Operator::add;
  Function function = Function::infinity;
  int64_t number = 0;
  double value = 0;  // of a literal
  Symbol symbol;
  TemplateArgs templates;
  std::vector<Expr> operands;
};

inline Scalar Expr::type() const { return node_->type; }

Expr truth(bool value);
// As CUDA C++ writes a number that has exactly this value after rounding to `type`.
std::string literal_text(double value, Scalar type);
// A number of the program, exact after rounding to `type` (f32, i32 or boolean).
Expr literal(double value, Scalar type);
// Zero bits of any type: TYPE{}.
Expr zero(Scalar type);
Expr element(const Symbol& array, const Expr& index);
Expr address(const Symbol& array, const Expr& index);
Expr select(const Expr& condition, const Expr& then, const Expr& otherwise);
Expr cast(const Expr& value, Scalar type);
Expr call(Function function, Scalar type, std::vector<Expr> operands, TemplateArgs templates = {});
Expr thread_index(Scalar type = Scalar::i32);
Expr block_index(int axis, Scalar type = Scalar::i32);
Expr combiner(OpCode reduction, Scalar type);
Expr operation(Operator op, const Expr& a, const Expr& b);
// What an operator makes of two numbers; nothing for one of a single operand, and for quotients and
// remainders by zero.
std::optional<int64_t> compute(Operator op, int64_t a, int64_t b);
// What min_index and max_index make of two numbers; nothing for other functions.
std::optional<int64_t> compute(Function function, int64_t a, int64_t b);
// What a number becomes in an index or a truth value of this type.
int64_t convert_index(int64_t value, Scalar type);

inline Expr operator+(const Expr& a, const Expr& b) { return operation(Operator::add, a, b); }
inline Expr operator-(const Expr& a, const Expr& b) { return operation(Operator::subtract, a, b); }
inline Expr operator*(const Expr& a, const Expr& b) { return operation(Operator::multiply, a, b); }
inline Expr operator/(const Expr& a, const Expr& b) { return operation(Operator::divide, a, b); }
inline Expr operator%(const Expr& a, const Expr& b) { return operation(Operator::modulo, a, b); }
inline Expr operator&(const Expr& a, const Expr& b) { return operation(Operator::bit_and, a, b); }
inline Expr operator^(const Expr& a, const Expr& b) { return operation(Operator::bit_xor, a, b); }
inline Expr operator>>(const Expr& a, const Expr& b) { return operation(Operator::shift_right, a, b); }
inline Expr less(const Expr& a, const Expr& b) { return operation(Operator::less, a, b); }
inline Expr equal(const Expr& a, const Expr& b) { return operation(Operator::equal, a, b); }
inline Expr both(const Expr& a, const Expr& b) { return operation(Operator::both, a, b); }
inline Expr either(const Expr& a, const Expr& b) { return operation(Operator::either, a, b); }
inline Expr less_equal(const Expr& a, const Expr& b) { return operation(Operator::less_equal, a, b); }
Expr negate(const Expr& a);
// The smaller and the larger one of two indices of one type.
Expr min_of(const Expr& a, const Expr& b);
Expr max_of(const Expr& a, const Expr& b);

// Calls `visit` with every node of the tree, operands first.
template <class Visit>
void visit_nodes(const Expr& expr, const Visit& visit) {
  for (const Expr& operand : expr->operands) visit_nodes(operand, visit);
  visit(expr.node());
}
// The same tree with what `by` has for a node in its place, or with an expression in place of a variable.
using Replacement = std::function<std::optional<Expr>(const ExprNode&)>;
Expr replaced(const Expr& expr, const Replacement& by);
Expr replaced(const Expr& expr, const Symbol& variable, const Expr& by);

// CUDA C++ text.
std::string print(const Expr& expr);
std::string print(const TemplateArgs& args);  // with the brackets; nothing if there are none

}  // namespace quern::ir
