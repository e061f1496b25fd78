// Factors of sums. That a factor which does not vary along an index commutes with the sum over it is true of numbers, not
// of floats: terms with the factor may overflow, or lose bits, where those without it do not, and the other way round.
#pragma once

#include <vector>

#include "core/search/dag.h"

namespace quern {

class Factors {
 public:
  // `terms` is saturated; it must outlive this.
  explicit Factors(const Terms& terms);

  // Whether a sum or contraction of the DAG has terms that may leave the range of the program's: with a factor that does
  // not vary along its index, where no value of the graph has it; or without the factor that the graph's have. That may
  // go behind the sum where it is a number that makes the terms larger, where f32 holds them anyway (products of f16), and
  // where it divides by a sum of exponentials over the index, as softmax does: they are at most 1 each.
  // Or whether it makes a sum and a multiple of it, which round in their own ways: x sigmoid(x) of two different x is
  // wrong where the rounding of one x would cancel. Or whether it makes a sum, and of its terms one by one what the graph
  // makes of the sum, as (a + b) sigmoid(a + b) by a s + b s: wrong where the terms cancel. Or whether it contracts the terms
  // of a sum of the graph one by one.
  bool are_moved(const Dag& dag) const;
  // How many products, quotients, sums and differences of two values, neither a number, the DAG has and neither the graph nor
  // the definition of one of its composites has: g r where the graph has (d r) g, which may overflow where d r is small; b + c where the graph has (a + b) + c, which loses bits
  // where a cancels b.
  int operators_not_of_graph(const Dag& dag) const;

 private:
  bool is_of_graph(ClassId id) const;
  bool is_sum_of_graph(ClassId id) const;
  template <class Is>
  bool adds_products_of(ClassId sum, Is is) const;
  bool adds_exponentials(ClassId id, Label label, std::vector<char>& seen) const;
  bool keeps_terms_small(ClassId factor, bool divides, ClassId sum) const;
  void note_larger_sums(ClassId id, bool is_larger, std::vector<char>& seen);
  bool is_multiple(ClassId a, ClassId b) const;
  bool is_made_twice(const Dag& dag) const;
  bool adds_values_of_graph(ClassId id) const;
  bool is_product_with(ClassId factor, ClassId id, std::vector<char>& seen) const;
  bool is_multiplied_out(const Dag& dag, const DagOp& sum) const;
  bool adds_parts_of_product(const DagOp& op) const;
  bool adds_along(ClassId id, Label label) const;
  bool has_factor(const Dag& dag, int at, Label label) const;

  const Terms& terms_;
  // By class: whether the graph has the value, and has it in a dtype with has_finite_products.
  std::vector<char> of_graph_, is_small_;
  std::vector<char> of_definitions_;  // by class: whether the decomposed graph has it
  std::vector<char> is_larger_;       // by class: a sum that the graph has with smaller terms
};

}  // namespace quern
