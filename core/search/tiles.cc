#include "core/search/tiles.h"

#include <algorithm>

namespace quern {

namespace {

bool contains(const Dims& dims, Label label) {
  return std::find(dims.begin(), dims.end(), label) != dims.end();
}

// A contraction of two operands over `label`: dimensions of both as a matmul wants them, and of the result.
struct Contraction {
  Dims left, right, result;
  bool regrouped = false;  // rows or columns are not the last dimension that could be
};

constexpr int64_t kEnoughRows = 256;  // for a large tile
constexpr int64_t kLeastRows = 16;    // for tensor cores

// The row or column of an operand; what else it alone has goes to the batch.
Label own_dim(const Dims& dims, Label contracted, LabelSet other, const Terms& terms, LabelSet reduced,
              bool& regrouped) {
  Label own = kNoLabel;
  for (size_t i = dims.size(); i-- > 0;) {
    const Label each = dims[i];
    if (each < 0 || each == contracted || has_label(other, each)) continue;
    if (!makes_better_tiles(each, own, terms, reduced)) continue;
    regrouped |= own != kNoLabel;
    own = each;
  }
  return own;
}

Contraction contract(const Dims& left, const Dims& right, Label label, LabelSet left_set, LabelSet right_set,
                     const Terms& terms, LabelSet reduced) {
  bool regrouped = false;
  auto own = [&](const Dims& dims, LabelSet other) {
    return own_dim(dims, label, other, terms, reduced, regrouped);
  };
  const Label row = own(left, right_set), column = own(right, left_set);
  Dims batch;
  for (const Dims* dims : {&left, &right})
    for (Label l : *dims)
      if (l >= 0 && l != label && l != row && l != column && !contains(batch, l)) batch.push_back(l);
  auto operand = [&](LabelSet set, Label second_last, Label last) {
    Dims dims;
    for (Label l : batch)
      if (has_label(set, l) || !dims.empty()) dims.push_back(has_label(set, l) ? l : kNoLabel);
    dims.push_back(second_last);
    dims.push_back(last);
    return dims;
  };
  Contraction result{operand(left_set, row, label), operand(right_set, label, column), batch, regrouped};
  result.result.push_back(row);
  result.result.push_back(column);
  return result;
}

bool same_order(const Dims& have, const Dims& want) {
  Dims a = have, b = want;
  std::erase(a, kNoLabel);
  std::erase(b, kNoLabel);
  return a == b;
}

int misfits(const Contraction& contraction, const Dims& left, const Dims& right) {
  auto misfit = [&](const Dims& have, const Dims& want) {
    return fits(have, want, {2, contraction.result.size()}) ? 0 : same_order(have, want) ? 1 : 4;
  };
  return misfit(left, contraction.left) + misfit(right, contraction.right);
}

// The order in which the users of a value would like to have its labels, told from the outputs backwards: so
// a product comes out as the next one takes it, and the last one as it is stored.
class WantedOrder {
 public:
  WantedOrder(const Dag& dag, const std::vector<Dims>& outputs) : dag_(dag), order_(dag.ops.size()) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      Dims& order = order_[static_cast<size_t>(dag.outputs[i])] = outputs[i];
      std::erase(order, kNoLabel);
    }
    for (size_t at = dag.ops.size(); at-- > 0;)
      if (!order_[at].empty()) hand_on(dag.ops[at], order_[at]);
  }

  // Whether rows of the product `at` had better be what its second operand has.
  bool turned(size_t at) const {
    const DagOp& op = dag_.ops[at];
    return order_[at].empty() ? false : turned(op, order_[at]);
  }

 private:
  LabelSet labels(const DagOp& op, size_t i) const { return dag_.ops[op.operands[i]].labels; }
  Dims& order(const DagOp& op, size_t i) { return order_[static_cast<size_t>(op.operands[i])]; }
  // The last label that only operand i of a product has.
  size_t own(const DagOp& op, size_t i, const Dims& order) const {
    for (size_t at = order.size(); at-- > 0;)
      if (has_label(labels(op, i) & ~labels(op, 1 - i), order[at])) return at;
    return order.size();
  }
  bool turned(const DagOp& op, const Dims& order) const { return own(op, 1, order) < own(op, 0, order); }

  void hand_on(const DagOp& op, const Dims& wanted) {
    const bool contracts = op.term.kind == BlockKind::matmul || op.term.kind == BlockKind::concat_matmul;
    if (contracts) {
      const size_t left = turned(op, wanted) ? 1 : 0;
      Dims first = wanted, second = wanted;
      first.push_back(op.term.label);
      second.insert(second.begin() + static_cast<std::ptrdiff_t>(own(op, 1 - left, wanted)), op.term.label);
      order(op, left) = first;
      order(op, 1 - left) = second;
      return;
    }
    Dims of_operands = wanted;
    if (op.term.kind == BlockKind::reduction) of_operands.push_back(op.term.label);
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (order(op, i).empty()) order(op, i) = of_operands;
  }

  const Dag& dag_;
  std::vector<Dims> order_;
};

class TileNamer {
 public:
  TileNamer(const Dag& dag, const std::vector<Dims>& tensors, const std::vector<Dims>& outputs,
            const Terms& terms)
      : dag_(dag),
        tensors_(tensors),
        terms_(terms),
        reduced_(reduced_by_operators(dag)),
        wanted_(dag, outputs) {}

  std::vector<TileDims> run() {
    for (const DagOp& op : dag_.ops) found_.push_back(name(op));
    return std::move(found_);
  }

 private:
  const Dims& of(const DagOp& op, size_t i) const { return found_[op.operands[i]].result; }
  LabelSet labels(const DagOp& op, size_t i) const { return dag_.ops[op.operands[i]].labels; }

  TileDims name(const DagOp& op) const {
    switch (op.term.kind) {
      case BlockKind::leaf:
        return {leaf_dims(op, tensors_), {}, {}, -1};
      case BlockKind::constant:
        return {};
      case BlockKind::elementwise:
        return elementwise(op);
      case BlockKind::reduction: {
        TileDims dims{of(op, 0), {}, {of(op, 0)}, -1};
        std::replace(dims.result.begin(), dims.result.end(), op.term.label, kNoLabel);
        return dims;
      }
      case BlockKind::matmul:
        return matmul(op);
      case BlockKind::concat_matmul:
        return concat_matmul(op);
      case BlockKind::composite:
        return composite(op);
    }
    return {};
  }

  TileDims elementwise(const DagOp& op) const {
    TileDims dims;
    // The operand with most labels leads; labels that it lacks come last.
    size_t lead = 0;
    for (size_t i = 1; i < op.operands.size(); ++i) {
      auto size = [&](size_t j) { return std::pair(__builtin_popcountll(labels(op, j)), of(op, j).size()); };
      if (size(i) > size(lead)) lead = i;
    }
    dims.result = of(op, lead);
    const size_t own = dims.result.size();
    for (size_t i = 0; i < op.operands.size(); ++i)
      for (Label label : of(op, i))
        if (label >= 0 && !contains(dims.result, label)) dims.result.push_back(label);
    // Then the leading operand is reshaped too, and loses the units before its first label.
    if (dims.result.size() > own)
      dims.result.erase(dims.result.begin(), std::find_if(dims.result.begin(), dims.result.end(),
                                                          [](Label label) { return label >= 0; }));
    dims.exact = static_cast<int>(lead);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      Dims want;
      for (Label label : dims.result)
        if (i == lead || has_label_or_started(labels(op, i), label, want))
          want.push_back(masked(labels(op, i), label));
      dims.operands.push_back(std::move(want));
    }
    return dims;
  }
  static Label masked(LabelSet set, Label label) {
    return label >= 0 && has_label(set, label) ? label : kNoLabel;
  }
  static bool has_label_or_started(LabelSet set, Label label, const Dims& want) {
    return !want.empty() || masked(set, label) >= 0;
  }

  // Whether the second operand had better be the left one: as they fit, else as users want the result. Where rows are not
  // what lies there, operands do not fit in either order.
  bool turn(const Contraction& straight, const Contraction& turned, const DagOp& op) const {
    if (straight.regrouped) return wanted_.turned(found_.size());
    const int as_is = misfits(straight, of(op, 0), of(op, 1)), other = misfits(turned, of(op, 1), of(op, 0));
    return other != as_is ? other < as_is : wanted_.turned(found_.size());
  }

  TileDims matmul(const DagOp& op) const {
    const Contraction straight =
        contract(of(op, 0), of(op, 1), op.term.label, labels(op, 0), labels(op, 1), terms_, reduced_);
    const Contraction turned =
        contract(of(op, 1), of(op, 0), op.term.label, labels(op, 1), labels(op, 0), terms_, reduced_);
    if (turn(straight, turned, op)) return {turned.result, {1, 0}, {turned.left, turned.right}, -1};
    return {straight.result, {0, 1}, {straight.left, straight.right}, -1};
  }

  // Operands a1, b1, a2, b2; both contractions have the same rows and columns.
  TileDims concat_matmul(const DagOp& op) const {
    auto place = [&](int a, int b) {
      return contract(of(op, a), of(op, b), op.term.label, labels(op, a), labels(op, b), terms_, reduced_);
    };
    const Contraction straight = place(0, 1), turned = place(1, 0);
    const bool turns = turn(straight, turned, op);
    const Contraction& first = turns ? turned : straight;
    Dims left = first.left, right = first.right;
    left.back() = op.term.label2;
    right[right.size() - 2] = op.term.label2;
    TileDims dims{first.result, {0, 1, 2, 3}, {first.left, first.right, left, right}, -1};
    if (turns) dims.order = {1, 0, 3, 2};
    return dims;
  }

  // Weights lie along the axes in the order in which the operand has them.
  TileDims composite(const DagOp& op) const {
    TileDims dims{of(op, 0), {}, {of(op, 0)}, -1};
    Dims weight;
    for (Label label : of(op, 0))
      if (contains(terms_.composites[op.term.index].axes, label)) weight.push_back(label);
    dims.operands.resize(op.operands.size(), weight);
    return dims;
  }

  const Dag& dag_;
  const std::vector<Dims>& tensors_;
  const Terms& terms_;
  const LabelSet reduced_;
  const WantedOrder wanted_;
  std::vector<TileDims> found_;  // of the operators before the one that is looked at
};

}  // namespace

bool makes_better_tiles(Label label, Label last, const Terms& terms, LabelSet reduced) {
  auto extent = [&](Label of) { return terms.labels[static_cast<size_t>(of)].extent; };
  if (last == kNoLabel) return true;
  const bool whole = has_label(reduced, last) && extent(last) >= kLeastRows;
  return !whole && extent(last) < kEnoughRows && extent(last) < extent(label);
}

LabelSet reduced_by_operators(const Dag& dag) {
  LabelSet set = 0;
  for (const DagOp& op : dag.ops)
    if (op.term.kind == BlockKind::reduction) set |= label_bit(op.term.label);
  return set;
}

Dims leaf_dims(const DagOp& leaf, const std::vector<Dims>& tensors) {
  Dims dims = tensors[leaf.term.index];
  if (leaf.term.label >= 0) std::replace(dims.begin(), dims.end(), leaf.term.label, leaf.term.label2);
  return dims;
}

std::vector<TileDims> tile_dims(const Dag& dag, const std::vector<Dims>& tensors,
                                const std::vector<Dims>& outputs, const Terms& terms) {
  return TileNamer(dag, tensors, outputs, terms).run();
}

bool fits(const Dims& have, const Dims& want, const Fit& fit) {
  if (have == want) return true;
  if (have.size() < fit.least || have.size() > fit.most) return false;
  auto strip = [&](const Dims& dims) {
    size_t first = 0;
    while (dims.size() - first > fit.least && dims[first] < 0) ++first;
    return Dims(dims.begin() + static_cast<std::ptrdiff_t>(first), dims.end());
  };
  return strip(have) == strip(want);
}

}  // namespace quern
