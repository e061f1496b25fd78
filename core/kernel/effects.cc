#include "core/kernel/effects.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/kernel/branches.h"
#include "core/kernel/divergence.h"
#include "core/kernel/footprint.h"

namespace quern::ir {

namespace {

using Visit = std::function<void(const Effect&)>;

Effect effect_of(const SymbolData& symbol, Access access) {
  return {&root_of(symbol), access, false, &symbol};
}

// Addresses are no accesses unless a function takes them: then it reads there.
void visit_expr(const Expr& expr, const Visit& visit) {
  visit_nodes(expr, [&](const ExprNode& node) {
    if (node.kind == ExprKind::call)
      for (const Expr& operand : node.operands)
        if (operand->kind == ExprKind::address) visit(effect_of(*operand->symbol, Access::read));
    const bool names = node.kind == ExprKind::element ||
                       (node.kind == ExprKind::symbol && node.symbol->space == Space::variable) ||
                       (node.kind == ExprKind::symbol && node.symbol->space == Space::registers);
    if (names) visit(effect_of(*node.symbol, Access::read));
  });
}

// The memory or registers that an operand points into.
const SymbolData* pointed(const Expr& expr) {
  const SymbolData* found = nullptr;
  visit_nodes(expr, [&](const ExprNode& node) {
    const bool pointer = node.kind == ExprKind::address ||
                         (node.kind == ExprKind::symbol && node.symbol->space != Space::variable);
    if (pointer) found = node.symbol.get();
  });
  return found;
}

void visit_operand(const Expr& operand, char role, const Visit& visit) {
  // What it points to is touched as its role says; how it gets there is read.
  const bool points = operand->kind == ExprKind::address || operand->kind == ExprKind::symbol;
  if (!points || is_number_role(role)) visit_expr(operand, visit);
  if (points)
    for (const Expr& part : operand->operands) visit_expr(part, visit);
  const SymbolData* at = pointed(operand);
  if (is_number_role(role)) return;
  check(at != nullptr, "an operand that points to what the instruction touches");
  switch (role) {
    case 'd':
    case 'S':
    case 'G':
    case 'M':
      return visit(effect_of(*at, Access::write));
    case 'u':
      return visit(effect_of(*at, Access::update));
    case 'b':
      return visit(effect_of(*at, Access::barrier));
    case 'c':
      return visit({&root_of(*at), Access::read, true, at});
    default:
      return visit(effect_of(*at, Access::read));
  }
}

struct Visitor {
  const Visit& visit;

  void operator()(const Let& let) const {
    visit_expr(let.value, visit);
    if (let.name->space == Space::variable || let.name->space == Space::registers)
      visit(effect_of(*let.name, Access::write));
  }
  void operator()(const Declare& declare) const { visit(effect_of(*declare.array, Access::write)); }
  void operator()(const Assign& assign) const {
    visit_expr(assign.value, visit);
    for (const Expr& operand : assign.place->operands) visit_expr(operand, visit);
    visit(effect_of(*assign.place->symbol, Access::write));
  }
  void operator()(const For& loop) const {
    visit_expr(loop.begin, visit);
    visit_expr(loop.end, visit);
    visit_expr(loop.step, visit);
    visit_effects(loop.body, visit);
  }
  void operator()(const If& branch) const {
    visit_expr(branch.condition, visit);
    visit_effects(branch.then, visit);
  }
  void operator()(const Instruction& instruction) const {
    const char* role = instr_info(instruction.code).operands;
    for (const Expr& operand : instruction.operands) {
      if (*role == '?') ++role;
      check(*role != 0, "an instruction has the operands of its row");
      visit_operand(operand, *role, visit);
      if (*role != 'x') ++role;
    }
    check(*role == 0 || *role == '?' || *role == 'x', "an instruction has all operands of its row");
  }
  void operator()(const WarpRole& role) const { visit_effects(role.body, visit); }
  void operator()(const Scope& scope) const { visit_effects(scope.body, visit); }
  void operator()(const Continue&) const {}
  void operator()(const Return&) const {}
};

}  // namespace

void visit_effects(const Stmt& stmt, const Visit& visit) { std::visit(Visitor{visit}, stmt.is); }

void visit_effects(const Body& body, const Visit& visit) {
  for (const Stmt& stmt : body) visit_effects(stmt, visit);
}

namespace {

bool meets(const Expr& expr) {
  bool found = false;
  visit_nodes(expr, [&](const ExprNode& node) {
    found |= node.kind == ExprKind::call && level_of(node.function) == Level::block;
  });
  return found;
}

bool calls(const Expr& expr) {
  bool found = false;
  visit_nodes(expr, [&](const ExprNode& node) {
    found |= (node.kind == ExprKind::operation && node.op == Operator::divide && node.type == Scalar::f32) ||
             (node.kind == ExprKind::call &&
              (node.function == Function::sqrtf || node.function == Function::powf));
  });
  return found;
}

constexpr int64_t kTileRegisters = 16;  // as many as a tile has at least; fewer are those of rows, or flags

// Registers of a tile that live on behind the statements.
bool writes_outer_tiles(const Body& body) {
  std::set<const SymbolData*> own;
  for (const Stmt& stmt : body)
    if (const auto* declare = stmt.as<Declare>()) own.insert(declare->array.get());
  const std::set<const SymbolData*> written = written_symbols(body, Space::registers);
  return std::any_of(written.begin(), written.end(), [&](const SymbolData* each) {
    return !own.contains(each) && each->count >= kTileRegisters;
  });
}

struct Found {
  std::set<const SymbolData*> left;  // operands of wgmma in registers
  bool wgmma = false, disturbs = false, confused = false;
};

void look(const Body& body, Found& found) {
  for (const Stmt& stmt : body) {
    if (const auto* loop = stmt.as<For>()) {
      Found within;
      look(loop->body, within);
      const std::set<const SymbolData*> written = written_symbols(loop->body, Space::registers);
      const bool lives_through = std::any_of(within.left.begin(), within.left.end(),
                                             [&](const SymbolData* each) { return !written.contains(each); });
      found.confused |= within.confused || (loop->unroll != Unroll::full && lives_through && within.disturbs);
      found.left.merge(within.left);
      found.wgmma |= within.wgmma;
      found.disturbs |= within.disturbs;
    } else if (const auto* branch = stmt.as<If>()) {
      Found within;
      look(branch->then, within);
      found.confused |= within.confused;
      found.disturbs |= within.disturbs || (!within.wgmma && writes_outer_tiles(branch->then));
      found.left.merge(within.left);
      found.wgmma |= within.wgmma;
    } else if (const Body* inner = body_of(stmt)) {
      look(*inner, found);
    } else if (const auto* assign = stmt.as<Assign>()) {
      found.disturbs |=
          assign->place->symbol->count >= kTileRegisters && (calls(assign->value) || branches(assign->value));
    } else if (const auto* instruction = stmt.as<Instruction>()) {
      found.wgmma |= instruction->code == Instr::wgmma || instruction->code == Instr::wgmma_shared;
      if (instruction->code == Instr::wgmma)
        found.left.insert(pointer_of(instruction->operands[1])->symbol.get());
    }
  }
}

}  // namespace

const Body* body_of(const Stmt& stmt) {
  if (const auto* loop = stmt.as<For>()) return &loop->body;
  if (const auto* branch = stmt.as<If>()) return &branch->then;
  if (const auto* scope = stmt.as<Scope>()) return &scope->body;
  if (const auto* role = stmt.as<WarpRole>()) return &role->body;
  return nullptr;
}

bool confuses_wgmma(const Body& body) {
  Found found;
  look(body, found);
  return found.confused;
}

bool has_barriers(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) {
    if (const Body* inner = body_of(stmt)) return has_barriers(*inner);
    if (const auto* assign = stmt.as<Assign>()) return meets(assign->value);
    if (const auto* let = stmt.as<Let>()) return meets(let->value);
    const auto* instruction = stmt.as<Instruction>();
    if (!instruction) return false;
    const InstrInfo& row = instr_info(instruction->code);
    return row.level == Level::block || row.level == Level::cluster || row.has('b');
  });
}

bool signals_blocks(const Stmt& stmt) {
  const auto* instruction = stmt.as<Instruction>();
  if (!instruction) return false;
  const InstrInfo& row = instr_info(instruction->code);
  return row.has('b') && (row.has('n') || row.has('k'));
}

std::set<const SymbolData*> read_symbols(const Body& body, Space space) {
  std::set<const SymbolData*> out;
  visit_effects(body, [&](const Effect& effect) {
    if (effect.symbol->space == space && effect.access != Access::write) out.insert(effect.symbol);
  });
  return out;
}

std::set<const SymbolData*> written_symbols(const Body& body, Space space) {
  std::set<const SymbolData*> out;
  visit_effects(body, [&](const Effect& effect) {
    if (effect.symbol->space == space && (effect.access == Access::write || effect.access == Access::update))
      out.insert(effect.symbol);
  });
  return out;
}

std::set<const SymbolData*> named_registers(const Body& body) {
  std::set<const SymbolData*> out;
  visit_effects(body, [&](const Effect& effect) {
    if (effect.symbol->space == Space::registers) out.insert(effect.symbol);
  });
  return out;
}

}  // namespace quern::ir
