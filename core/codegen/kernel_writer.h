// Turns the items of a trace into statements of the kernel IR, each in the outermost scope where it can
// stand.
//
// A kernel's body has three scopes, one inside the other: `kernel` (what depends on the row alone), `loop` (a
// step of the loop over the points of a row) and `element` (one of the `vector` neighbouring elements that a
// thread does at once). Loads of whole vectors stand in the loop, or in the kernel.
#pragma once

#include <array>

#include "core/codegen/launch_work.h"
#include "core/codegen/storage.h"
#include "core/kernel/builder.h"
#include "core/kernel/value.h"

namespace quern {

enum class Scope : uint8_t { kernel, loop, element };

class KernelWriter {
 public:
  // Index arithmetic is done in 32 bits unless `wide`; needs_wide() says afterwards whether that was wrong.
  // Exponentials and the functions made of them are exact to some 2^-21 only where approximate_functions(outputs) says so.
  KernelWriter(const Graph& graph, IndexSpace& space, const Storage& storage, bool wide);

  // `element` counts the elements of a vector; the constant 0 if there is one.
  void set_scopes(const Index& loop, const Index& element, int vector);
  // Vectors are aligned in memory, not to rows that lie one behind the other. The element's variable is its place in the row
  // then; `position` is where it lies, and `vector` where the first one of its vector does.
  void set_aligned(const Index& position, const Index& vector) { aligned_ = {true, position, vector}; }
  // The last vector has `elements` elements: that of the thread for which `here` holds; for all others
  // `elsewhere` does.
  void set_last_vector(int elements, const ir::Expr& here, const ir::Expr& elsewhere) {
    last_ = {elements, here, elsewhere};
  }
  void set_items(const std::vector<Item>& items) { items_ = &items; }
  // What stands for a reduction or product of this kernel.
  void hold(ValueId value, const ir::Expr& expr) { held_.insert_or_assign(value, expr); }
  const ir::Expr& held(ValueId value) const { return held_.at(value); }
  // A variable of the index space.
  const ir::Symbol& variable(const std::string& name);

  // From now on this item, a load of a vector, is found at element `at` of shared memory, a vector at a time.
  void keep(int item, const ir::Symbol& shared, const ir::Expr& at) {
    kept_.insert_or_assign(item, Kept{shared, at});
  }
  // Whether the item is a load of whole vectors that the loop goes through.
  bool loads_vectors(int item) const;
  // Whether a load is one access a vector, under a condition if need be; and one of this place.
  bool is_vector_load(const Item& item) const;
  bool fits_vector(const Index& position, DType dtype) const;
  // Writes the copy of the vector of such an item to shared memory.
  void copy(int item, const ir::Symbol& shared, const ir::Expr& at);

  // Forgets what stands in the loop and in the elements, and the statements of all scopes.
  void begin_pass();
  // This item of the pass may be exact to some 2^-21 only (exp_fast of the prelude).
  void approximate(int item) { approximated_ = item; }
  // The item as an expression of this register type; writes the statements it needs.
  ir::Expr value(int item, DType type);
  ir::Expr index(const Index& index);
  // Notes whether computing it takes 64 bits.
  void measure(const Index& index);
  // Stores an item at `position` of a slot; in vectors where position allows. `after` gets what follows the
  // element scope. `condition` guards a store that is no vector's.
  void store(int item, const Slot& slot, const Index& position, const ir::Expr& condition = ir::truth(true));
  ir::Body& body(Scope scope) { return bodies_[static_cast<size_t>(scope)]; }
  const ir::Body& after() const { return after_; }
  // Of vectors of which the row has only a part, what follows each element instead.
  const ir::Body& after_element() const { return after_element_; }
  // What the statements of a scope do.
  const ScopeWork& work(Scope scope) const { return works_[static_cast<size_t>(scope)]; }
  Scope scope_of(VariableSet uses) const;

  // The kernel's parameters, in the order of their first use.
  const ir::Symbol& pointer(const Slot& slot, bool written);
  // What an earlier kernel of the program wrote is not restricted if `overlapped`: this one may have begun
  // before that one ended.
  std::vector<ir::Parameter> parameters(bool overlapped) const;
  std::vector<LaunchArg> arguments() const;

  ir::Scalar index_type() const { return wide_ ? ir::Scalar::u64 : ir::Scalar::u32; }
  bool needs_wide() const { return needs_wide_ && !wide_; }

 private:
  struct Parameter {
    Slot slot;
    ir::Symbol symbol;
  };
  const Item& item_at(int i) const { return (*items_)[static_cast<size_t>(i)]; }
  ir::Expr made(int item);
  ir::Expr make(int item);
  ir::Expr load(int item);
  ir::Expr load_kept(int item);
  // The vector that holds the item's element; nothing is read where a guard does not hold.
  ir::Symbol load_vector(const Item& item);
  ir::Expr guard(int item);
  ir::Expr compute(int item);
  ir::Expr cast(const Item& item);
  ir::Expr choose(const Item& item);
  ir::Expr let(char prefix, const ir::Expr& expression, Scope scope);
  ir::Expr atom(AtomId id);
  // Whether the elements of a vector agree on a guard, an item; none always holds.
  bool is_whole(int guard) const;
  // Whether a position is of neighbours for the elements of a vector, and where it is of the first.
  bool splits(const Index& position) const;
  Index vector_base(const Index& position);
  // Element by element what the last vector has.
  void copy_last(ir::Builder& to, const ir::Symbol& into, const ir::Expr& into_at, const ir::Symbol& from,
                 const ir::Expr& from_at) const;

  const Graph& graph_;
  IndexSpace& space_;
  const Storage& storage_;
  bool wide_, needs_wide_ = false;
  const bool approximate_;
  int approximated_ = -1;  // the item of this pass that approximate() named
  const std::vector<Item>* items_ = nullptr;
  VariableSet loop_uses_ = 0, element_uses_ = 0;
  Index element_;
  int vector_ = 1;
  struct {
    bool is = false;
    Index position, vector;
  } aligned_;
  struct {
    int elements = 0;  // 0: all vectors are whole
    ir::Expr here = ir::truth(false), elsewhere = ir::truth(true);
  } last_;
  void count(Scope scope, double issue, double special = 0);
  void count_access(Scope scope, const Slot& slot, const Index& index, int width, bool written);

  std::array<ir::Body, 3> bodies_;
  std::array<ScopeWork, 3> works_;
  ir::Body after_, after_element_;
  std::array<std::map<int, ir::Expr>, 3> made_;  // by the scope they stand in
  std::array<std::map<AtomId, ir::Expr>, 3> atoms_;
  std::map<std::string, ir::Symbol> variables_;
  std::map<ValueId, ir::Expr> held_;
  struct Kept {
    ir::Symbol shared;
    ir::Expr at;
  };
  std::map<int, Kept> kept_;  // by item
  std::vector<Parameter> parameters_;
  std::map<char, int> counters_;
};

}  // namespace quern
