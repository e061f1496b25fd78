// Turns the items of a trace into statements, each in the outermost scope where it can stand.
//
// A kernel's body has three scopes, one inside the other: `kernel` (what depends on the row alone), `loop` (a
// step of the loop over the points of a row) and `element` (one of the `vector` neighbouring elements that a
// thread does at once). Loads of whole vectors stand in the loop, or in the kernel.
#pragma once

#include <array>

#include "core/codegen/launch_work.h"
#include "core/codegen/storage.h"

namespace quern {

enum class Scope : uint8_t { kernel, loop, element };

std::string cuda_type(DType dtype);                                // "f16", "bf16", "float", "int", "bool"
std::string convert_text(std::string text, DType from, DType to);  // between f32, i32 and bool
std::string round_text(const std::string& text, DType dtype);      // a register as an element of memory
std::string indent(const std::string& lines, int spaces);

class KernelWriter {
 public:
  // Index arithmetic is done in 32 bits unless `wide`; needs_wide() says afterwards whether that was wrong.
  KernelWriter(const Graph& graph, IndexSpace& space, const Storage& storage, bool wide)
      : graph_(graph), space_(space), storage_(storage), wide_(wide) {}

  // `element` counts the elements of a vector; the constant 0 if there is one.
  void set_scopes(const Index& loop, const Index& element, int vector);
  void set_items(const std::vector<Item>& items) { items_ = &items; }
  // The variable that stands for a reduction or product of this kernel.
  void hold(ValueId value, std::string name) { held_[value] = std::move(name); }

  // Forgets what stands in the loop and in the elements, and the text of all scopes.
  void begin_pass();
  // The item as an expression of this register type, safe as an operand; writes the statements it needs.
  std::string value(int item, DType type);
  std::string index(const Index& index);
  // Notes whether computing it takes 64 bits.
  void measure(const Index& index);
  // Stores an item at `position` of a slot; in vectors where position allows. `after` gets what follows the
  // element scope. `condition` stands before a store that is no vector's.
  void store(int item, const Slot& slot, const Index& position, const std::string& condition = "");
  std::string& text(Scope scope) { return texts_[static_cast<size_t>(scope)]; }
  const std::string& after() const { return after_; }
  // What the statements of a scope do.
  const ScopeWork& work(Scope scope) const { return works_[static_cast<size_t>(scope)]; }
  Scope scope_of(VariableSet uses) const;

  // The kernel's parameters, in the order of their first use.
  std::string pointer(const Slot& slot, bool written);
  std::string parameter_list() const;
  std::vector<LaunchArg> arguments() const;

  const char* index_type() const { return wide_ ? "unsigned long long" : "unsigned"; }
  bool needs_wide() const { return needs_wide_ && !wide_; }

 private:
  struct Parameter {
    Slot slot;
    bool written;
  };
  const Item& item_at(int i) const { return (*items_)[static_cast<size_t>(i)]; }
  std::string name(int item);
  std::string make(int item);
  std::string load(const Item& item);
  std::string compute(const Item& item);
  std::string cast(const Item& item);
  std::string choose(const Item& item);
  std::string declare(const std::string& type, char prefix, const std::string& expression, Scope scope);
  std::string atom(AtomId id);
  bool fits_vector(const Index& position, DType dtype) const;
  Index vector_base(const Index& position) { return space_.add(position, space_.scale(element_, -1)); }

  const Graph& graph_;
  IndexSpace& space_;
  const Storage& storage_;
  bool wide_, needs_wide_ = false;
  const std::vector<Item>* items_ = nullptr;
  VariableSet loop_uses_ = 0, element_uses_ = 0;
  Index element_;
  int vector_ = 1;
  void count(Scope scope, double issue, double special = 0);
  void count_access(Scope scope, const Slot& slot, const Index& index, int width, bool written);

  std::array<std::string, 3> texts_;
  std::array<ScopeWork, 3> works_;
  std::string after_;
  std::array<std::map<int, std::string>, 3> item_names_;  // names, by the scope they stand in
  std::array<std::map<AtomId, std::string>, 3> atoms_;
  std::map<ValueId, std::string> held_;
  std::vector<Parameter> parameters_;
  std::map<char, int> counters_;
};

}  // namespace quern
