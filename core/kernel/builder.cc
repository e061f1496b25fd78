#include "core/kernel/builder.h"

#include <algorithm>
#include <iterator>

#include "core/kernel/value.h"

namespace quern::ir {

namespace {

Symbol make(SymbolData data) { return std::make_shared<const SymbolData>(std::move(data)); }

}  // namespace

Symbol make_variable(std::string name, Scalar type) {
  return make({std::move(name), Space::variable, type, 1, false, false, nullptr});
}
Symbol make_registers(std::string name, Scalar type, int64_t count) {
  return make({std::move(name), Space::registers, type, count, false, false, nullptr});
}
Symbol make_vector(std::string name, Scalar type, int64_t count) {
  return make({std::move(name), Space::registers, type, count, true, false, nullptr});
}
Symbol make_shared(std::string name, Scalar type, int64_t count) {
  return make({std::move(name), Space::shared, type, count, false, false, nullptr});
}
Symbol make_memory(std::string name, Space space, Scalar type, bool written) {
  return make({std::move(name), space, type, 0, false, written, nullptr});
}
Symbol make_own_memory(std::string name, Scalar type) {
  return make({std::move(name), Space::shared, type, 0, false, false, nullptr, true});
}
Symbol make_pointer(std::string name, const Symbol& into, Scalar type) {
  return make({std::move(name), into->space, type, 0, false, into->written, into, into->own});
}

void Builder::add(Body body) {
  body_.insert(body_.end(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
}

Expr Builder::let(const Symbol& name, const Expr& value) {
  add(Let{name, value});
  return Expr(name);
}

void Builder::combine(OpCode reduction, const Expr& place, const Expr& value) {
  assign(place, ir::combine(reduction, place, value, register_dtype(place.type())));
}

Expr Builder::named(const std::string& name, const Expr& value) {
  if (value.is_number() || value->kind == ExprKind::symbol) return value;
  return let(make_variable(name, value.type()), value);
}

void Builder::add_scope(Scope scope) {
  const bool names = std::any_of(scope.body.begin(), scope.body.end(),
                                 [](const Stmt& stmt) { return stmt.as<Let>() || stmt.as<Declare>(); });
  if (names)
    add(std::move(scope));
  else
    add(std::move(scope.body));
}

void Builder::emit(Instr code, std::vector<Expr> operands, TemplateArgs templates) {
  add(Instruction{code, std::move(operands), std::move(templates)});
}

}  // namespace quern::ir
