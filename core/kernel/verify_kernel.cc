#include "core/kernel/verify_kernel.h"

#include <algorithm>
#include <set>

#include "core/kernel/divergence.h"
#include "core/kernel/footprint.h"
#include "core/kernel/ranges.h"

namespace quern::ir {

namespace {

// Names, operands, and who comes to a statement.
class Checker {
 public:
  explicit Checker(const Kernel& kernel)
      : kernel_(kernel), ranges_({kernel.threads, {}, 0}), present_(kernel.threads) {}

  Status run() {
    scopes_.emplace_back();
    for (const Parameter& parameter : kernel_.parameters) define(parameter.symbol);
    body(kernel_.setup);
    body(kernel_.body);
    for (const int agreements : agreements_of_roles_)
      if (agreements != agreements_)
        fail("a role comes to " + std::to_string(agreements) + " agreements of all threads, others to " +
             std::to_string(agreements_));
    return status_;
  }

  void operator()(const Let& let) {
    value(let.value);
    define(let.name);
    if (let.name->space != Space::variable) return;
    ranges_.set(*let.name, ranges_.of(let.value));
    divergence_.set(*let.name, divergence_.of(let.value));
  }
  void operator()(const Declare& declare) {
    if (declare.array->space != Space::registers && declare.array->space != Space::shared)
      fail(declare.array->name + " is declared, but lies in neither registers nor shared memory");
    if (!declare.extent.is_number()) value(declare.extent);
    define(declare.array);
  }
  void operator()(const Assign& assign) {
    value(assign.value);
    const ExprNode& place = assign.place.node();
    if (place.kind != ExprKind::element) return fail("what is assigned to is no element");
    value(assign.place);
    const SymbolData& array = *place.symbol;
    if (array.space == Space::variable || array.space == Space::tensor_map)
      fail(array.name + " is assigned to, but is no memory");
    if (array.space == Space::global && !root_of(array).written)
      fail(array.name + " is assigned to, but may only be read");
    if (assign.value.type() != array.type)
      fail(array.name + " is of type " + cuda_name(array.type) + ", the value of type " +
           cuda_name(assign.value.type()));
  }
  void operator()(const For& loop) {
    for (const Expr& expr : {loop.begin, loop.end, loop.step}) value(expr);
    if (ranges_.of(loop.step).low <= 0) fail("the loop does not come to its end");
    const Varies varies =
        std::max({divergence_.of(loop.begin), divergence_.of(loop.end), divergence_.of(loop.step)});
    const Ranges before = ranges_;
    in_scope(loop.body, varies, [&] {
      define(loop.counter);
      ranges_.set(*loop.counter, {ranges_.of(loop.begin).low, ranges_.of(loop.end).high - 1});
      divergence_.set(*loop.counter, varies);
    });
    ranges_ = before;
  }
  void operator()(const If& branch) {
    value(branch.condition);
    const Ranges before = ranges_;
    const Varies varies = divergence_.of(branch.condition);
    ranges_.assume(branch.condition, true);
    in_scope(branch.then, varies, [] {});
    ranges_ = before;
    if (branch.then.empty() || !leaves(branch.then.back())) return;
    // The others are not there any more: in this trip of the loop, or at all.
    ranges_.assume(branch.condition, false);
    Varies& there = branch.then.back().as<Return>() ? ended_ : come_;
    there = std::max(there, varies);
  }
  void operator()(const Instruction& instruction) {
    const InstrInfo& row = instr_info(instruction.code);
    const auto [least, most] = operand_count(instruction.code);
    const size_t count = instruction.operands.size();
    if (count < least || count > most)
      return fail(std::string(row.id) + " has " + std::to_string(count) + " operands, its row " +
                  row.operands);
    for (size_t i = 0; i < count; ++i) operand(instruction, i);
    // Those that a part of the block comes to say how many threads that are.
    const bool says = row.level == Level::block && !instruction.templates.empty();
    meet(row.level, row.id, says ? instruction.templates[0].number : kernel_.threads);
  }
  void operator()(const WarpRole& role) {
    const int64_t first = int64_t{role.first_warp} * 32, outside = present_;
    if (first <= 0 || first >= present_ || come_ != Varies::by_block)
      return fail("a role begins with warp " + std::to_string(role.first_warp) + ", of " +
                  std::to_string(present_ / 32));
    present_ = outside - first;
    // In front of the first one all come together.
    const int before = agreements_of_roles_.empty() ? 0 : agreements_;
    agreements_ = 0;
    in_scope(role.body, Varies::by_block, [] {});
    agreements_of_roles_.push_back(std::exchange(agreements_, before));
    present_ = first;
  }
  void operator()(const Continue&) {}
  void operator()(const Return&) {}
  void operator()(const Scope& scope) {
    in_scope(scope.body, Varies::by_block, [] {});
  }

 private:
  static bool leaves(const Stmt& stmt) { return stmt.as<Continue>() || stmt.as<Return>(); }

  void body(const Body& statements) {
    for (const Stmt& stmt : statements) {
      if (!status_.ok()) return;
      const Stmt* const outer = now_;
      now_ = &stmt;
      std::visit(*this, stmt.is);
      now_ = outer;
    }
  }

  // A nested body that threads come to as `varies` says.
  template <class Begin>
  void in_scope(const Body& statements, Varies varies, const Begin& begin) {
    const Varies outside = come_;
    come_ = std::max(come_, varies);
    scopes_.emplace_back();
    begin();
    body(statements);
    scopes_.pop_back();
    come_ = outside;
  }

  void fail(const std::string& what) {
    if (status_.ok())
      status_ = Status(ErrorCode::INTERNAL, what + ": " + (now_ ? statement_text(*now_) : "parameters"));
  }

  void define(const Symbol& symbol) {
    Names& scope = scopes_.back();
    if (!scope.texts.insert(symbol->name).second) fail(symbol->name + " is defined twice in a scope");
    scope.symbols.insert(symbol.get());
  }

  bool is_defined(const SymbolData& symbol) const {
    return std::any_of(scopes_.begin(), scopes_.end(),
                       [&](const Names& scope) { return scope.symbols.contains(&symbol); });
  }

  void value(const Expr& expr) {
    visit_nodes(expr, [&](const ExprNode& node) {
      if (node.symbol && !is_defined(*node.symbol)) fail(node.symbol->name + " is used before it is defined");
      if (node.kind == ExprKind::element || node.kind == ExprKind::address)
        registers(*node.symbol, node.operands[0], node.kind == ExprKind::element ? bytes_of(node.type) : 0);
      if (node.kind != ExprKind::call) return;
      if (node.function == Function::broadcast && divergence_.of(node.operands[0]) > Varies::by_warp)
        fail("lanes differ in what is broadcast");
      const bool agreement = node.function == Function::all_agree;
      const int64_t threads = agreement ? node.templates[0].number : kernel_.threads;
      if (agreement && threads == kernel_.threads) ++agreements_;
      meet(level_of(node.function), function_info(node.function).name,
           agreement && threads == kernel_.threads ? present_ : threads);
    });
  }

  // Element `index` of an array of registers, and `bytes` from there on.
  void registers(const SymbolData& array, const Expr& index, int64_t bytes) {
    if (array.space != Space::registers) return;
    const Interval at = ranges_.of(index);
    const int64_t size = bytes_of(array.type), last = at.high + (bytes + size - 1) / size;
    if (at.low < 0 || last > array.count)
      fail(array.name + " has " + std::to_string(array.count) + " registers, and " + std::to_string(at.low) +
           " to " + std::to_string(last - 1) + " are named");
  }

  static bool fits(char role, const SymbolData& symbol) {
    switch (role) {
      case 'd':
      case 'u':
      case 'r':
        return symbol.space == Space::registers;
      case 'S':
      case 's':
      case 'c':
        return symbol.space == Space::shared && symbol.type != Scalar::mbarrier;
      case 'b':
        return symbol.space == Space::shared && symbol.type == Scalar::mbarrier;
      case 'G':
        return symbol.space == Space::global && root_of(symbol).written;
      case 'g':
        return symbol.space == Space::global;
      case 'M':
        return symbol.space == Space::tensor_map && symbol.written;
      default:
        return symbol.space == Space::tensor_map;
    }
  }

  void operand(const Instruction& instruction, size_t i) {
    const Expr& expr = instruction.operands[i];
    const char role = role_of(instruction, i);
    value(expr);
    const ExprNode* at = pointer_of(expr);
    if (is_number_role(role)) {
      if (at) fail("operand " + std::to_string(i) + " is a pointer, not a number");
      return;
    }
    if (!at || !fits(role, *at->symbol))
      return fail("operand " + std::to_string(i) + " is not what its row says: " + role);
    const int64_t bytes = bytes_touched(instruction, i);
    if (at->symbol->space != Space::registers) {
      const InstrInfo& row = instr_info(instruction.code);
      const bool whole = row.issues() && async_info(*row.async).proxy
                             ? bytes % 16 == 0
                             : bytes <= 16 && (bytes & (bytes - 1)) == 0;
      if (!whole) fail("an access has " + std::to_string(bytes) + " bytes");
    } else if (bytes > 0) {
      registers(*at->symbol, at->kind == ExprKind::address ? at->operands[0] : Expr(0), bytes);
    }
  }

  // All that are to take part come here; `threads` to what a whole block does. What a cluster does, its
  // threads do that have not ended.
  void meet(Level level, const char* who, int64_t threads) {
    if (level == Level::thread || level == Level::grid) return;
    const Varies varies = std::max(come_, ended_);
    if (varies == Varies::by_thread || (varies == Varies::by_warp && level != Level::warp))
      return fail(std::string("only some threads come to ") + who);
    if (level == Level::block && present_ != threads)
      fail(std::string(who) + " is of " + std::to_string(threads) + " threads, and " +
           std::to_string(present_) + " come");
  }

  struct Names {
    std::set<const SymbolData*> symbols;
    std::set<std::string> texts;
  };

  const Kernel& kernel_;
  Ranges ranges_;
  Divergence divergence_;
  std::vector<Names> scopes_;
  int64_t present_;                  // threads that are still there
  // Of all threads of the block, to which each role comes by itself: in the body, and in that of each role.
  int agreements_ = 0;
  std::vector<int> agreements_of_roles_;
  Varies come_ = Varies::by_block;   // by what it differs who comes to a statement,
  Varies ended_ = Varies::by_block;  // and who has ended before it
  const Stmt* now_ = nullptr;
  Status status_;
};

}  // namespace

std::string statement_text(const Stmt& stmt) {
  std::string text = print_cuda(Body{stmt});
  while (text.starts_with("#")) text.erase(0, text.find('\n') + 1);
  return text.substr(0, text.find('\n'));
}

Status verify_names(const Kernel& kernel) { return Checker(kernel).run(); }

Status verify_kernel(const Kernel& kernel) {
  Status status = verify_names(kernel);
  if (status.ok()) status = verify_order(kernel);
  return status.ok() ? status : status.with_context(kernel.name);
}

}  // namespace quern::ir
