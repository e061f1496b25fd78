#include "core/search/universe.h"

#include <algorithm>

namespace quern {

namespace {

void add_unique(std::vector<BlockTerm>& terms, BlockTerm term) {
  if (std::find(terms.begin(), terms.end(), term) == terms.end()) terms.push_back(std::move(term));
}

bool is_admitted(const ENode& node, const Prefixes* prefixes) {
  return !prefixes || prefixes->admitted.count(node) > 0;
}

// Labels that rows and columns of a contraction have: some must remain on one side at least, or it is an
// elementwise product with a sum.
bool is_contraction(LabelSet a, LabelSet b, Label label) {
  return has_label(a, label) && has_label(b, label) && ((a & ~b) || (b & ~a));
}

}  // namespace

int BlockTerm::size() const {
  switch (kind) {
    case BlockKind::leaf:
    case BlockKind::constant:
      return 0;
    case BlockKind::concat_matmul:
      return 3;
    default:
      return 1;
  }
}

Universe::Universe(const Terms& terms, const Prefixes* prefixes) {
  const std::vector<ClassId> classes = terms.egraph.classes();
  of_.resize(classes.empty() ? 0 : static_cast<size_t>(classes.back()) + 1);
  for (ClassId id : classes) add_terms(terms, prefixes, id);
  for (ClassId id : classes) add_concats(terms, id);
  for (ClassId id : classes) {
    std::sort(of_[id].begin(), of_[id].end());
    admitted_ += of_[id].size();
  }
  find_depths(classes);
}

const std::vector<BlockTerm>& Universe::of(ClassId id) const { return of_[static_cast<size_t>(id)]; }
int Universe::depth(ClassId id) const { return depth_[static_cast<size_t>(id)]; }

void Universe::add_terms(const Terms& terms, const Prefixes* prefixes, ClassId id) {
  const EGraph& egraph = terms.egraph;
  for (const ENode& node : egraph.nodes(id)) {
    if (!is_admitted(node, prefixes)) continue;
    BlockTerm term;
    term.code = node.code;
    term.index = node.index;
    term.number = node.number;
    for (ClassId child : node.children) term.operands.push_back(egraph.find(child));
    switch (op_info(node.code).kind) {
      case OpKind::leaf:
        term.kind = node.code == OpCode::input ? BlockKind::leaf : BlockKind::constant;
        break;
      case OpKind::reduction:
        // True, as of a mean from which the mean is taken, but no loop runs over what does not vary.
        if (!has_label(egraph.labels(node.children[0]), node.index)) continue;
        term.kind = BlockKind::reduction;
        term.label = node.index;
        term.index = 0;
        if (node.code == OpCode::reduce_sum) add_matmuls(terms, prefixes, id, node);
        break;
      case OpKind::composite:
        term.kind = BlockKind::composite;
        break;
      default:
        term.kind = BlockKind::elementwise;
        if (op_info(node.code).laws & kCommutative) std::sort(term.operands.begin(), term.operands.end());
    }
    add_unique(of_[id], std::move(term));
  }
}

void Universe::add_matmuls(const Terms& terms, const Prefixes* prefixes, ClassId id, const ENode& sum) {
  const EGraph& egraph = terms.egraph;
  for (const ENode& product : egraph.nodes(sum.children[0])) {
    if (product.code != OpCode::mul || !is_admitted(product, prefixes)) continue;
    ClassId a = egraph.find(product.children[0]), b = egraph.find(product.children[1]);
    if (!is_contraction(egraph.labels(a), egraph.labels(b), sum.index)) continue;
    if (a > b) std::swap(a, b);
    add_unique(of_[id], {BlockKind::matmul, OpCode::matmul, 0, 0, sum.index, -1, {a, b}});
  }
}

// Two contractions whose results are added: one, over operands laid one behind the other.
void Universe::add_concats(const Terms& terms, ClassId id) {
  const EGraph& egraph = terms.egraph;
  std::vector<BlockTerm> found;
  for (const BlockTerm& sum : of_[id]) {
    if (sum.code != OpCode::add || sum.operands[0] == sum.operands[1]) continue;
    for (const BlockTerm& first : of_[sum.operands[0]])
      for (const BlockTerm& second : of_[sum.operands[1]]) {
        if (first.kind != BlockKind::matmul || second.kind != BlockKind::matmul) continue;
        for (int turned : {0, 1}) {
          const ClassId a1 = first.operands[0], b1 = first.operands[1];
          const ClassId a2 = second.operands[turned], b2 = second.operands[1 - turned];
          auto rest = [&](ClassId operand, Label label) {
            return egraph.labels(operand) & ~label_bit(label);
          };
          if (rest(a1, first.label) != rest(a2, second.label) ||
              rest(b1, first.label) != rest(b2, second.label))
            continue;
          add_unique(
              found,
              {BlockKind::concat_matmul, OpCode::matmul, 0, 0, first.label, second.label, {a1, b1, a2, b2}});
        }
      }
  }
  of_[id].insert(of_[id].end(), found.begin(), found.end());
}

void Universe::find_depths(const std::vector<ClassId>& classes) {
  depth_.assign(of_.size(), kUnreachable);
  for (bool changed = true; changed;) {
    changed = false;
    for (ClassId id : classes)
      for (const BlockTerm& term : of_[id]) {
        int deepest = 0;
        for (ClassId operand : term.operands) deepest = std::max(deepest, depth_[operand]);
        if (deepest + term.size() < depth_[id]) {
          depth_[id] = deepest + term.size();
          changed = true;
        }
      }
  }
}

}  // namespace quern
