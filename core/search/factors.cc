#include "core/search/factors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

// What a class is, if it is a number; of counts the least.
std::optional<double> number_of(const EGraph& egraph, ClassId id) {
  for (const ENode& node : egraph.nodes(id)) {
    if (node.code == OpCode::constant) return node.index > 0 ? 1 : node.number;
    if (node.code != OpCode::reciprocal) continue;
    for (const ENode& of : egraph.nodes(node.children[0]))
      if (of.code == OpCode::constant && of.index == 0) return 1 / of.number;
  }
  return std::nullopt;
}

bool is_sum(const DagOp& op) {
  return op.term.label >= 0 && (op_info(op.term.code).laws & kLinear || op.term.code == OpCode::matmul);
}

bool is_addition(OpCode code) { return code == OpCode::add || code == OpCode::sub; }

// How many operands, from the first on, are factors of a product, or of the products that a sum adds up.
size_t factor_count(OpCode code) {
  if (code == OpCode::mul || code == OpCode::matmul) return 2;
  return code == OpCode::div || code == OpCode::reduce_sum ? 1 : 0;
}

bool is_factor(const Dag& dag, int factor, int at) {
  const DagOp& op = dag.ops[static_cast<size_t>(at)];
  if (factor == at) return true;
  if (op.term.kind == BlockKind::concat_matmul) return false;
  const auto last = op.operands.begin() + static_cast<std::ptrdiff_t>(factor_count(op.term.code));
  return std::any_of(op.operands.begin(), last, [&](int operand) { return is_factor(dag, factor, operand); });
}

}  // namespace

Factors::Factors(const Terms& terms) : terms_(terms) {
  const std::vector<ClassId> classes = terms.egraph.classes();
  for (std::vector<char>* flags : {&of_graph_, &is_small_, &of_definitions_, &is_larger_})
    flags->resize(classes.empty() ? 0 : static_cast<size_t>(classes.back()) + 1);
  for (size_t value = 0; value < terms.of_value.size(); ++value) {
    if (terms.of_value[value] < 0) continue;
    const auto id = static_cast<size_t>(terms.egraph.find(terms.of_value[value]));
    of_graph_[id] = true;
    const auto& dtype = terms.dtype_of_value[value];
    is_small_[id] |= dtype && has_finite_products(*dtype);
  }
  for (ClassId id : terms.of_definitions)
    if (id >= 0) of_definitions_[static_cast<size_t>(terms.egraph.find(id))] = true;
  for (ClassId id : classes)
    if (is_of_graph(id) && is_sum_of_graph(id)) {
      std::vector<char> seen(of_graph_.size());
      note_larger_sums(id, false, seen);
    }
}

bool Factors::is_of_graph(ClassId id) const { return of_graph_[static_cast<size_t>(terms_.egraph.find(id))]; }

// Whether a class is a sum of products both of whose operands are that.
template <class Is>
bool Factors::adds_products_of(ClassId sum, Is is) const {
  for (const ENode& node : terms_.egraph.nodes(sum)) {
    if (node.code != OpCode::reduce_sum) continue;
    for (const ENode& product : terms_.egraph.nodes(node.children[0]))
      if (product.code == OpCode::mul && std::all_of(product.children.begin(), product.children.end(), is))
        return true;
  }
  return false;
}

// Of values that the graph has, or of their products.
bool Factors::is_sum_of_graph(ClassId id) const {
  auto is_there = [&](ClassId part) { return is_of_graph(part); };
  const std::vector<ENode>& nodes = terms_.egraph.nodes(id);
  return adds_products_of(id, is_there) || std::any_of(nodes.begin(), nodes.end(), [&](const ENode& node) {
           return node.code == OpCode::reduce_sum && is_there(node.children[0]);
         });
}

bool Factors::adds_exponentials(ClassId id, Label label, std::vector<char>& seen) const {
  char& here = seen[static_cast<size_t>(terms_.egraph.find(id))];
  if (std::exchange(here, true)) return false;
  for (const ENode& node : terms_.egraph.nodes(id)) {
    if (node.code == OpCode::reduce_sum && node.index == label) {
      const std::vector<ENode>& added = terms_.egraph.nodes(node.children[0]);
      if (std::any_of(added.begin(), added.end(), [](const ENode& of) { return of.code == OpCode::exp; }))
        return true;
    }
    for (ClassId child : node.children)
      if (adds_exponentials(child, label, seen)) return true;
  }
  return false;
}

bool Factors::keeps_terms_small(ClassId factor, bool divides, ClassId sum) const {
  if (const std::optional<double> number = number_of(terms_.egraph, factor))
    return divides ? std::fabs(*number) > 1 : std::fabs(*number) < 1;
  for (const ENode& node : terms_.egraph.nodes(sum)) {
    if (node.code != OpCode::reduce_sum) continue;
    std::vector<char> seen(of_graph_.size());
    if (!adds_exponentials(factor, node.index, seen)) return true;
  }
  return false;
}

// Sums that this one of the graph is a multiple of, whatever factors are between. Those of products that are finite anyway
// fit into f32 with any factor.
void Factors::note_larger_sums(ClassId id, bool is_larger, std::vector<char>& seen) {
  char& here = seen[static_cast<size_t>(terms_.egraph.find(id))];
  const char bit = is_larger ? 2 : 1;
  if (here & bit) return;
  here |= bit;
  auto is_small = [&](ClassId part) { return is_small_[static_cast<size_t>(terms_.egraph.find(part))]; };
  for (const ENode& node : terms_.egraph.nodes(id)) {
    const bool divides = node.code == OpCode::div;
    if (node.code != OpCode::mul && !divides) continue;
    for (size_t side = 0; side < (divides ? 1 : 2); ++side) {
      const ClassId sum = terms_.egraph.find(node.children[side]);
      if (is_of_graph(sum)) continue;
      const bool larger = is_larger || keeps_terms_small(node.children[1 - side], divides, sum);
      if (larger && !adds_products_of(sum, is_small)) is_larger_[static_cast<size_t>(sum)] = true;
      note_larger_sums(sum, larger, seen);
    }
  }
}

bool Factors::is_multiple(ClassId a, ClassId b) const {
  const std::vector<ENode>& nodes = terms_.egraph.nodes(a);
  return std::any_of(nodes.begin(), nodes.end(), [&](const ENode& node) {
    auto is_b = [&](size_t side) { return terms_.egraph.find(node.children[side]) == terms_.egraph.find(b); };
    return (node.code == OpCode::mul && (is_b(0) || is_b(1))) || (node.code == OpCode::div && is_b(0));
  });
}

bool Factors::is_made_twice(const Dag& dag) const {
  std::vector<ClassId> sums;
  for (const DagOp& op : dag.ops) {
    if (!is_sum(op)) continue;
    for (ClassId other : sums)
      if (is_multiple(op.id, other) || is_multiple(other, op.id)) return true;
    sums.push_back(op.id);
  }
  return false;
}

// Whether the graph adds two of its own values there.
bool Factors::adds_values_of_graph(ClassId id) const {
  const std::vector<ENode>& nodes = terms_.egraph.nodes(id);
  return std::any_of(nodes.begin(), nodes.end(), [&](const ENode& node) {
    return is_addition(node.code) && is_of_graph(node.children[0]) && is_of_graph(node.children[1]);
  });
}

// Whether a class is this factor times something, or a sum of such products.
bool Factors::is_product_with(ClassId factor, ClassId id, std::vector<char>& seen) const {
  if (id == factor) return true;
  if (std::exchange(seen[static_cast<size_t>(id)], true)) return false;
  for (const ENode& node : terms_.egraph.nodes(id))
    for (size_t i = 0; i < factor_count(node.code); ++i)
      if (is_product_with(factor, terms_.egraph.find(node.children[i]), seen)) return true;
  return false;
}

// Whether another sum, or a contraction of two products, has the terms of this one, with factors, where it is a multiple
// of it. What the graph multiplies out itself may stay so.
bool Factors::is_multiplied_out(const Dag& dag, const DagOp& sum) const {
  return std::any_of(dag.ops.begin(), dag.ops.end(), [&](const DagOp& other) {
    const bool is_contraction = other.term.kind == BlockKind::concat_matmul;
    if (!is_contraction && !is_addition(other.term.code)) return false;
    const size_t operands = is_contraction ? 2 : 1;  // of each of its terms
    auto has = [&](size_t term, int factor) {
      for (size_t i = 0; i < operands; ++i)
        if (is_factor(dag, factor, other.operands[term * operands + i])) return true;
      return false;
    };
    auto has_both = [&](size_t first) {
      return has(first, sum.operands[0]) && has(1 - first, sum.operands[1]);
    };
    if (other.id == sum.id || (!has_both(0) && !has_both(1)) || adds_values_of_graph(other.id)) return false;
    std::vector<char> seen(of_graph_.size());
    return is_product_with(sum.id, other.id, seen);
  });
}

// Whether it adds products that the graph has as one, of a sum of its own: a v + b v for (a + b) v, where a v alone may be
// infinite.
bool Factors::adds_parts_of_product(const DagOp& op) const {
  if (!is_addition(op.term.code) && op.term.kind != BlockKind::concat_matmul) return false;
  for (const ENode& sum : terms_.egraph.nodes(op.id)) {
    if (sum.code != OpCode::reduce_sum) continue;
    for (const ENode& product : terms_.egraph.nodes(sum.children[0])) {
      if (product.code != OpCode::mul) continue;
      for (ClassId factor : product.children)
        if (is_of_graph(factor) && adds_along(factor, sum.index)) return true;
    }
  }
  return false;
}

// Whether a class is a sum of two that vary along the label.
bool Factors::adds_along(ClassId id, Label label) const {
  const std::vector<ENode>& nodes = terms_.egraph.nodes(id);
  return std::any_of(nodes.begin(), nodes.end(), [&](const ENode& node) {
    return is_addition(node.code) && has_label(terms_.egraph.labels(node.children[0]), label) &&
           has_label(terms_.egraph.labels(node.children[1]), label);
  });
}

bool Factors::are_moved(const Dag& dag) const {
  if (is_made_twice(dag)) return true;
  return std::any_of(dag.ops.begin(), dag.ops.end(), [&](const DagOp& sum) {
    const BlockTerm& term = sum.term;
    if (is_addition(term.code) && is_multiplied_out(dag, sum)) return true;
    if (adds_parts_of_product(sum)) return true;
    if (!is_sum(sum)) return false;
    if (is_larger_[static_cast<size_t>(sum.id)]) return true;
    for (size_t i = 0; i < sum.operands.size(); ++i)
      if (has_factor(dag, sum.operands[i], i < 2 ? term.label : term.label2)) return true;
    return false;
  });
}

int Factors::operators_not_of_graph(const Dag& dag) const {
  return static_cast<int>(std::count_if(dag.ops.begin(), dag.ops.end(), [&](const DagOp& op) {
    constexpr OpCode kRegrouped[] = {OpCode::mul, OpCode::div, OpCode::add, OpCode::sub};
    if (op.term.kind != BlockKind::elementwise || of_definitions_[static_cast<size_t>(terms_.egraph.find(op.id))] ||
        std::find(std::begin(kRegrouped), std::end(kRegrouped), op.term.code) == std::end(kRegrouped))
      return false;
    return std::none_of(op.operands.begin(), op.operands.end(), [&](int operand) {
      return number_of(terms_.egraph, dag.ops[static_cast<size_t>(operand)].id).has_value();
    });
  }));
}

bool Factors::has_factor(const Dag& dag, int at, Label label) const {
  const DagOp& op = dag.ops[static_cast<size_t>(at)];
  const bool product =
      op.term.kind == BlockKind::elementwise && (op.term.code == OpCode::mul || op.term.code == OpCode::div);
  if (!product || is_of_graph(op.id)) return false;
  return std::any_of(op.operands.begin(), op.operands.end(), [&](int operand) {
    return !has_label(dag.ops[static_cast<size_t>(operand)].labels, label) || has_factor(dag, operand, label);
  });
}

}  // namespace quern
