// The theory behind the question of an oracle (z3_oracle.h says what it is), written in the words of a
// structure: as free symbols for a proof, or as tables for a model.
#pragma once

#include <z3++.h>

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/search/axiom.h"

namespace quern {

using Exprs = std::vector<z3::expr>;

// A function symbol: an operator with its attributes.
struct Symbol {
  OpCode code;
  int32_t index;  // of reductions the label
  double number;
  size_t arity;
  auto operator<=>(const Symbol&) const = default;

  std::string name() const;
  bool binds(Label label) const { return is_reduction(code) && index == label; }
};
Symbol symbol_of(const ENode& node);

// What the symbols mean.
class Structure {
 public:
  explicit Structure(z3::sort its_sort) : sort(std::move(its_sort)) {}
  virtual ~Structure() = default;
  virtual z3::expr apply(const Symbol& symbol, const Exprs& operands) = 0;
  // A class of the program.
  virtual z3::expr named(ClassId id) = 0;
  // "x does not vary along the label", "x varies along it".
  virtual z3::expr absent(Label label, const z3::expr& x) = 0;
  virtual z3::expr varies(Label label, const z3::expr& x) = 0;
  virtual z3::expr part(const z3::expr& x) = 0;
  const z3::sort sort;
};

// Symbols that mean nothing: what holds of them holds of all terms.
std::unique_ptr<Structure> free_structure(z3::context& z);

// A sentence holds for all its variables. It is instantiated where a trigger matches.
struct Sentence {
  std::string name;
  Exprs variables;
  z3::expr body;
  Exprs triggers;
};

class Theory {
 public:
  // The e-graph before saturation, and a saturated copy, whose symbols and labels are those of the theory.
  Theory(const EGraph& program, const EGraph& saturated, std::span<const ClassId> goals,
         std::span<const Axiom> axioms);
  std::vector<Sentence> write(Structure& in) const;

 private:
  z3::expr term(Structure& in, const Pattern& pattern, const Label* labels) const;
  z3::expr condition(Structure& in, const Axiom& axiom, const Label* labels, size_t variables) const;
  void write_axiom(Structure& in, const Axiom& axiom, std::vector<Sentence>& sentences) const;
  void write_symbol(Structure& in, const Symbol& symbol, std::vector<Sentence>& sentences) const;
  void write_program(Structure& in, std::vector<Sentence>& sentences) const;
  template <class F>
  void for_each_choice(const Axiom& axiom, F f) const;

  const EGraph& program_;
  const std::span<const ClassId> goals_;
  const std::span<const Axiom> axioms_;
  std::vector<Label> labels_;
  std::set<Symbol> symbols_;
};

}  // namespace quern
