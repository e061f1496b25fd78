#include "core/search/factors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

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

}  // namespace

Factors::Factors(const Terms& terms) : terms_(terms) {
  const std::vector<ClassId> classes = terms.egraph.classes();
  for (std::vector<char>* flags : {&of_graph_, &is_f16_, &is_larger_})
    flags->resize(classes.empty() ? 0 : static_cast<size_t>(classes.back()) + 1);
  for (size_t value = 0; value < terms.of_value.size(); ++value) {
    if (terms.of_value[value] < 0) continue;
    const auto id = static_cast<size_t>(terms.egraph.find(terms.of_value[value]));
    of_graph_[id] = true;
    is_f16_[id] |= terms.dtype_of_value[value] == DType::f16;
  }
  for (ClassId id : classes)
    if (is_of_graph(id) && is_sum_of_graph(id)) note_larger_sums(id);
}

bool Factors::is_of_graph(ClassId id) const { return of_graph_[static_cast<size_t>(terms_.egraph.find(id))]; }

// Of values that the graph has, or of their products.
bool Factors::is_sum_of_graph(ClassId id) const {
  auto has = [&](ClassId part) { return is_of_graph(part); };
  for (const ENode& sum : terms_.egraph.nodes(id)) {
    if (sum.code != OpCode::reduce_sum) continue;
    if (has(sum.children[0])) return true;
    for (const ENode& product : terms_.egraph.nodes(sum.children[0]))
      if (product.code == OpCode::mul && std::all_of(product.children.begin(), product.children.end(), has))
        return true;
  }
  return false;
}

bool Factors::fits_anyway(ClassId sum) const {
  auto is_f16 = [&](ClassId part) { return is_f16_[static_cast<size_t>(terms_.egraph.find(part))]; };
  for (const ENode& node : terms_.egraph.nodes(sum))
    if (node.code == OpCode::reduce_sum)
      for (const ENode& product : terms_.egraph.nodes(node.children[0]))
        if (product.code == OpCode::mul &&
            std::all_of(product.children.begin(), product.children.end(), is_f16))
          return true;
  return false;
}

bool Factors::has_reduction(ClassId id, Label label, std::vector<char>& seen) const {
  char& here = seen[static_cast<size_t>(terms_.egraph.find(id))];
  if (std::exchange(here, true)) return false;
  for (const ENode& node : terms_.egraph.nodes(id)) {
    const OpKind kind = op_info(node.code).kind;
    if (kind == OpKind::composite || (kind == OpKind::reduction && node.index == label)) return true;
    for (ClassId child : node.children)
      if (has_reduction(child, label, seen)) return true;
  }
  return false;
}

bool Factors::keeps_terms_small(ClassId factor, bool divides, ClassId sum) const {
  if (const std::optional<double> number = number_of(terms_.egraph, factor))
    return divides ? std::fabs(*number) > 1 : std::fabs(*number) < 1;
  for (const ENode& node : terms_.egraph.nodes(sum)) {
    if (node.code != OpCode::reduce_sum) continue;
    std::vector<char> seen(of_graph_.size());
    if (!has_reduction(factor, node.index, seen)) return true;
  }
  return false;
}

// Sums that this one of the graph is a multiple of.
void Factors::note_larger_sums(ClassId id) {
  for (const ENode& node : terms_.egraph.nodes(id)) {
    const bool divides = node.code == OpCode::div;
    if (node.code != OpCode::mul && !divides) continue;
    for (size_t side = 0; side < (divides ? 1 : 2); ++side) {
      const ClassId sum = terms_.egraph.find(node.children[side]);
      if (!is_of_graph(sum) && !fits_anyway(sum) && keeps_terms_small(node.children[1 - side], divides, sum))
        is_larger_[static_cast<size_t>(sum)] = true;
    }
  }
}

bool Factors::are_moved(const Dag& dag) const {
  return std::any_of(dag.ops.begin(), dag.ops.end(), [&](const DagOp& sum) {
    const BlockTerm& term = sum.term;
    if (term.label < 0 || !(op_info(term.code).laws & kLinear || term.code == OpCode::matmul)) return false;
    if (is_larger_[static_cast<size_t>(sum.id)]) return true;
    for (size_t i = 0; i < sum.operands.size(); ++i)
      if (has_factor(dag, sum.operands[i], i < 2 ? term.label : term.label2)) return true;
    return false;
  });
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
