// The saturated e-graph as a finite structure: if it satisfies the theory, it is a model, and what is false
// in it has no proof.
#pragma once

#include <map>

#include "core/search/z3_theory.h"

namespace quern {

// Elements are the classes in order, and after them one for every term that is not in the e-graph: it results
// from itself and from what no table has, may or may not vary along any label, and is no part of the target.
class Model : public Structure {
 public:
  Model(z3::context& z, const EGraph& egraph, std::span<const ClassId> goals);

  z3::expr apply(const Symbol& symbol, const Exprs& operands) override;
  z3::expr named(ClassId id) override { return element(position(id)); }
  z3::expr absent(Label label, const z3::expr& x) override { return !one_of(along(label), x); }
  z3::expr varies(Label label, const z3::expr& x) override {
    return one_of(along(label), x) || x == element(classes_.size());
  }
  z3::expr part(const z3::expr& x) override { return one_of(parts_, x); }

  size_t size() const { return classes_.size() + 1; }
  z3::expr element(size_t position) const {
    return z_.bv_val(static_cast<uint64_t>(position), sort.bv_size());
  }
  z3::expr is_element(const z3::expr& x) const { return z3::ule(x, element(classes_.size())); }
  // Whether an operator over classes is a part of the target.
  bool is_part(const ENode& op) const;

 private:
  using Row = std::pair<std::vector<size_t>, size_t>;  // operands, result

  size_t position(ClassId id) const { return position_.at(egraph_.find(id)); }
  std::set<size_t> along(Label label) const;
  z3::expr one_of(const std::set<size_t>& positions, const z3::expr& x) const;
  z3::expr choose(std::span<const Row> rows, const Exprs& operands, size_t depth) const;

  z3::context& z_;
  const EGraph& egraph_;
  std::vector<ClassId> classes_;
  std::map<ClassId, size_t> position_;
  std::map<Symbol, std::map<std::vector<size_t>, size_t>> tables_;
  std::set<size_t> parts_;
};

}  // namespace quern
