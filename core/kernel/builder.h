// Writes statements one after the other into a body.
#pragma once

#include "core/kernel/ir.h"

namespace quern::ir {

// New names; those of one kernel come from one source, so that no two are the same.
Symbol make_variable(std::string name, Scalar type);
Symbol make_registers(std::string name, Scalar type, int64_t count);
Symbol make_vector(std::string name, Scalar type, int64_t count);
// Shared memory that the kernel declares itself.
Symbol make_shared(std::string name, Scalar type, int64_t count);
// Shared or global memory, or a tensor map; `written` of global memory.
Symbol make_memory(std::string name, Space space, Scalar type, bool written = false);
Symbol make_own_memory(std::string name, Scalar type);  // shared memory of which each thread has its part
// A pointer of elements of `type` into what `into` is or points into.
Symbol make_pointer(std::string name, const Symbol& into, Scalar type);

class Builder {
 public:
  explicit Builder(Body& body) : body_(body) {}

  void add(Stmt stmt) { body_.push_back(std::move(stmt)); }
  void add(Body body);
  void declare(const Symbol& registers, bool zero = false) { add(Declare{registers, zero}); }
  Expr let(const Symbol& name, const Expr& value);
  // The value under a name of its own, unless it is a name or a number already.
  Expr named(const std::string& name, const Expr& value);
  void assign(const Expr& place, const Expr& value) { add(Assign{place, value}); }
  // place = what the reduction makes of it and the value.
  void combine(OpCode reduction, const Expr& place, const Expr& value);
  void emit(Instr code, std::vector<Expr> operands = {}, TemplateArgs templates = {});

  // `write(builder, i)` for i from 0 to `count`: a loop that the compiler unrolls, none for a single trip.
  template <class Write>
  void unrolled(const std::string& counter, int64_t count, const Write& write) {
    if (count == 1) return once(write);
    For loop{make_variable(counter, Scalar::i32), 0, count, Unroll::full, {}};
    Builder inner(loop.body);
    write(inner, Expr(loop.counter));
    add(std::move(loop));
  }
  // `write(builder)` for each value of the counter, in a loop that stays one.
  template <class Write>
  void rolled(const Symbol& counter, const Expr& begin, const Expr& end, const Write& write) {
    For loop{counter, begin, end, Unroll::none, {}};
    Builder inner(loop.body);
    write(inner);
    add(std::move(loop));
  }
  // Stores `count` neighbours from `to` on in one access; `value(builder, j)` is that of number j.
  template <class Value>
  void store(Instr code, const Expr& to, Scalar type, int64_t count, const Value& value) {
    const Symbol v = make_vector("v", type, count);
    declare(v);
    unrolled("j", count, [&](Builder& one, const Expr& j) { one.assign(element(v, j), value(one, j)); });
    emit(code, {to, v}, {type, count});
  }
  // Names that `write(builder)` defines are not seen outside.
  template <class Write>
  void scope(const Write& write) {
    Scope scope;
    Builder inner(scope.body);
    write(inner);
    add_scope(std::move(scope));
  }
  // `write(builder)` where the condition holds; nothing is tested if it always does, or never.
  template <class Write>
  void when(const Expr& condition, const Write& write) {
    if (condition.is_number(0)) return;
    if (condition.is_number(1)) return this->scope(write);
    If branch{condition, {}};
    Builder inner(branch.then);
    write(inner);
    add(std::move(branch));
  }

 private:
  template <class Write>
  void once(const Write& write) {
    Scope scope;
    Builder inner(scope.body);
    write(inner, Expr(0));
    add_scope(std::move(scope));
  }
  // Without braces if nothing is named in it.
  void add_scope(Scope scope);

  Body& body_;
};

}  // namespace quern::ir
