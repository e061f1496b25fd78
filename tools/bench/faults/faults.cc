#include "tools/bench/faults/faults.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "core/kernel/footprint.h"
#include "core/kernel/verify_kernel.h"

namespace quern {

namespace {

using namespace ir;

// A change at one of the places in a statement where it can be made: it counts them down.
using Change = std::function<std::optional<Stmt>(const Stmt&, int& place)>;

Body changed(const Body& body, const Change& change, int& place, std::string& at);

std::optional<Body> nested(const Body& body, const Change& change, int& place, std::string& at) {
  const int before = static_cast<int>(at.size());
  Body out = changed(body, change, place, at);
  return static_cast<int>(at.size()) == before ? std::nullopt : std::optional(std::move(out));
}

// What is left out becomes an empty scope.
Body changed(const Body& body, const Change& change, int& place, std::string& at) {
  Body out;
  for (const Stmt& stmt : body) {
    if (!at.empty()) {
      out.push_back(stmt);
      continue;
    }
    if (auto other = change(stmt, place)) {
      at = statement_text(stmt);
      out.push_back(std::move(*other));
      continue;
    }
    Stmt copy = stmt;
    std::visit(
        [&](auto& is) {
          using Kind = std::remove_reference_t<decltype(is)>;
          if constexpr (std::is_same_v<Kind, If>) {
            if (auto inner = nested(is.then, change, place, at)) is.then = std::move(*inner);
          } else if constexpr (std::is_same_v<Kind, For> || std::is_same_v<Kind, WarpRole> ||
                               std::is_same_v<Kind, ir::Scope>) {
            if (auto inner = nested(is.body, change, place, at)) is.body = std::move(*inner);
          }
        },
        copy.is);
    out.push_back(std::move(copy));
  }
  return out;
}

Expr rebuilt(const Expr& expr, std::vector<Expr> operands) {
  ExprNode node = expr.node();
  node.operands = std::move(operands);
  return Expr(std::make_shared<const ExprNode>(std::move(node)));
}

// `replace` gives another expression for nodes that it changes; the place is counted down at each.
using Replace = std::function<std::optional<Expr>(const Expr&)>;
std::optional<Expr> replaced_at(const Expr& expr, const Replace& replace, int& place) {
  if (auto other = replace(expr); other && place-- == 0) return other;
  for (size_t i = 0; i < expr->operands.size(); ++i)
    if (auto inner = replaced_at(expr->operands[i], replace, place)) {
      std::vector<Expr> operands = expr->operands;
      operands[i] = std::move(*inner);
      return rebuilt(expr, std::move(operands));
    }
  return {};
}

// In every expression of a statement that `wanted` says (by its number; instructions: of the operand).
std::optional<Stmt> in_expressions(const Stmt& stmt, const Replace& replace, int& place,
                                   const std::function<bool(const Stmt&, size_t)>& wanted) {
  Stmt copy = stmt;
  auto one = [&](Expr& expr, size_t number) {
    if (!wanted(stmt, number)) return false;
    auto other = replaced_at(expr, replace, place);
    if (other) expr = std::move(*other);
    return other.has_value();
  };
  bool found = false;
  std::visit(
      [&](auto& is) {
        using Kind = std::remove_reference_t<decltype(is)>;
        if constexpr (std::is_same_v<Kind, Let>) found = one(is.value, 0);
        if constexpr (std::is_same_v<Kind, If>) found = one(is.condition, 0);
        if constexpr (std::is_same_v<Kind, Assign>) found = one(is.place, 0) || one(is.value, 1);
        if constexpr (std::is_same_v<Kind, Instruction>)
          for (size_t i = 0; i < is.operands.size() && !found; ++i) found = one(is.operands[i], i);
      },
      copy.is);
  return found ? std::optional(std::move(copy)) : std::nullopt;
}

bool everywhere(const Stmt&, size_t) { return true; }

// Not of comparisons with 0, which say what part of a software pipeline an iteration does: that an iteration
// is left out is wrong, but breaks no rule of memory.
std::optional<Expr> bound_off(const Expr& expr) {
  if (expr->kind != ExprKind::operation || (expr->op != Operator::less && expr->op != Operator::less_equal))
    return {};
  if (!is_index(expr->operands[0].type()) || !is_index(expr->operands[1].type())) return {};
  if (expr->operands[0].is_number(0) || expr->operands[1].is_number(0)) return {};
  const bool reversed = expr->op == Operator::less_equal;  // N <= i: leave
  std::vector<Expr> operands = expr->operands;
  operands[1] = reversed ? operands[1] : operands[1] + 1;
  operands[0] = reversed ? operands[0] + 1 : operands[0];
  return rebuilt(expr, std::move(operands));
}

std::optional<Expr> stride_off(const Expr& expr, int64_t by) {
  if (expr->kind != ExprKind::operation || expr->op != Operator::multiply) return {};
  const Expr& factor = expr->operands[1];
  if (!is_index(expr.type()) || !factor.is_number() || factor->number < 2) return {};
  return rebuilt(expr, {expr->operands[0], Expr(factor->number + by)});
}
std::optional<Expr> stride_above(const Expr& expr) { return stride_off(expr, 1); }
std::optional<Expr> stride_below(const Expr& expr) { return stride_off(expr, -1); }
std::optional<Expr> stride_halved(const Expr& expr) {
  if (expr->kind != ExprKind::operation || !expr->operands.back().is_number() || expr->operands.back()->number % 2 != 0) return {};
  return stride_off(expr, -expr->operands.back()->number / 2);
}

// Places of shared and global memory that are written, and the names that they are made of.
bool is_written_place(const Stmt& stmt, size_t number) {
  if (const auto* assign = stmt.as<Assign>())
    return number == 0 && assign->place->symbol->space != Space::registers;
  const auto* instruction = stmt.as<Instruction>();
  if (!instruction) return false;
  const char role = role_of(*instruction, number);
  return role == 'S' || role == 'G';
}

bool is_wait(Instr code) {
  switch (code) {
    case Instr::block_barrier:
    case Instr::named_barrier:
    case Instr::warp_barrier:
    case Instr::cluster_barrier:
    case Instr::cluster_wait:
    case Instr::cp_async_wait:
    case Instr::mbarrier_wait:
      return true;
    default:
      return false;
  }
}

bool writes_memory(const Body& body) {
  for (const Stmt& stmt : body) {
    if (is_written_place(stmt, 0)) return true;
    if (const auto* loop = stmt.as<For>(); loop && writes_memory(loop->body)) return true;
    if (const auto* scope = stmt.as<ir::Scope>(); scope && writes_memory(scope->body)) return true;
    if (const auto* branch = stmt.as<If>(); branch && writes_memory(branch->then)) return true;
  }
  return false;
}

std::optional<Stmt> number_off(const Stmt& stmt, int& place, std::initializer_list<Instr> codes,
                               const std::function<Expr(const Expr&)>& other) {
  const auto* instruction = stmt.as<Instruction>();
  if (!instruction || std::find(codes.begin(), codes.end(), instruction->code) == codes.end() || place-- != 0)
    return {};
  Instruction copy = *instruction;
  copy.operands[1] = other(copy.operands[1]);
  return Stmt(std::move(copy));
}

struct Kind {
  const char* name;
  Change change;
};

const Kind kKinds[] = {
    {"bound off by one",
     [](const Stmt& stmt, int& place) { return in_expressions(stmt, bound_off, place, everywhere); }},
    {"wrong stride", [](const Stmt& stmt,
                        int& place) { return in_expressions(stmt, stride_above, place, is_written_place); }},
    {"wrong stride", [](const Stmt& stmt,
                        int& place) { return in_expressions(stmt, stride_below, place, is_written_place); }},
    {"halved stride",
     [](const Stmt& stmt, int& place) {
       return in_expressions(stmt, stride_halved, place, is_written_place);
     }},
    {"missing barrier",
     [](const Stmt& stmt, int& place) -> std::optional<Stmt> {
       const auto* instruction = stmt.as<Instruction>();
       if (!instruction || !is_wait(instruction->code) || place-- != 0) return {};
       return Stmt(ir::Scope{});
     }},
    {"wrong phase",
     [](const Stmt& stmt, int& place) {
       return number_off(stmt, place, {Instr::mbarrier_wait}, [](const Expr& phase) { return phase ^ 1; });
     }},
    {"wrong arrivals",
     [](const Stmt& stmt, int& place) {
       return number_off(stmt, place, {Instr::mbarrier_init}, [](const Expr& count) { return count + 1; });
     }},
    {"wrong bytes",
     [](const Stmt& stmt, int& place) {
       return number_off(stmt, place, {Instr::mbarrier_arrive_expect},
                         [](const Expr& bytes) { return bytes - 16; });
     }},
    {"wrong block",
     [](const Stmt& stmt, int& place) {
       return number_off(stmt, place, {Instr::mbarrier_arrive_at}, [](const Expr& rank) { return rank / 2; });
     }},
    {"unaligned vector",
     [](const Stmt& stmt, int& place) -> std::optional<Stmt> {
       const auto* instruction = stmt.as<Instruction>();
       if (!instruction) return {};
       for (size_t i = 0; i < instruction->operands.size(); ++i) {
         const Expr& operand = instruction->operands[i];
         const char role = role_of(*instruction, i);
         if (operand->kind != ExprKind::address ||
             !(role == 'g' || role == 's' || role == 'S' || role == 'G'))
           continue;
         if (bytes_touched(*instruction, i) <= bytes_of(operand->symbol->type) || place-- != 0) continue;
         Instruction copy = *instruction;
         copy.operands[i] = rebuilt(operand, {operand->operands[0] + 1});
         return Stmt(std::move(copy));
       }
       return {};
     }},
    {"two writers",
     [](const Stmt& stmt, int& place) -> std::optional<Stmt> {
       const auto* branch = stmt.as<If>();
       if (!branch || !writes_memory(branch->then) || branch->condition->op != Operator::equal ||
           place-- != 0)
         return {};
       return Stmt(ir::Scope{branch->then});
     }},
};

}  // namespace

std::vector<Fault> plant_faults(const ir::Kernel& kernel) {
  std::vector<Fault> out;
  for (const Kind& kind : kKinds)
    for (int number = 0;; ++number) {
      int place = number;
      std::string at;
      Fault fault{kind.name, "", kernel};
      fault.kernel.setup = changed(kernel.setup, kind.change, place, at);
      fault.kernel.body = changed(kernel.body, kind.change, place, at);
      if (at.empty()) break;
      fault.change = at;
      out.push_back(std::move(fault));
    }
  return out;
}

}  // namespace quern
