#include "core/search/whole.h"

#include <algorithm>
#include <optional>

namespace quern {

namespace {

// The label of partial results is the last one (derive.cc).
constexpr size_t kMostLabels = kMaxLabels - 1;

class WholeReductions {
 public:
  WholeReductions(const KernelDag& kernel, Label loop)
      : kernel_(kernel), loop_(loop), needed_(ops().size()), whole_(ops().size()), kept_(ops().size()) {}

  // Whether the loop needs reductions over all of its index, and each can be made before it.
  bool find() {
    bool found = false;
    for (int output : kernel_.dag.outputs) kept_[static_cast<size_t>(output)] = true;
    for (size_t at = ops().size(); at-- > 0;) {
      const DagOp& op = ops()[at];
      const bool for_loop = needed_[at] || varies(op) || reduces(op, loop_);
      for (int operand : op.operands) needed_[static_cast<size_t>(operand)] |= for_loop;
      const bool is_reduction = is_whole_reduction(at);
      whole_[at] = is_reduction || (whole_[at] && varies(op));
      found |= is_reduction;
      if (whole_[at] && !is_cheap(op)) return false;
      if (is_reduction) kept_[at] = false;
      for (int operand : op.operands) {
        const auto from = static_cast<size_t>(operand);
        whole_[from] |= whole_[at];
        kept_[from] |= kept_[at] || (whole_[at] && !varies(ops()[from]));
      }
    }
    for (size_t at = 0; at < ops().size(); ++at)
      if (whole_[at] && kept_[at] && varies(ops()[at]) && is_sum(ops()[at])) return false;
    return found;
  }

  // With `own` in place of the looped index where that is reduced before the loop.
  KernelDag along(Label own) const {
    KernelDag out;
    out.stores = kernel_.stores;
    std::vector<int> place(ops().size(), -1), whole_place(ops().size(), -1);
    auto append = [&](DagOp op, bool whole) {
      for (int& operand : op.operands) {
        const auto from = static_cast<size_t>(operand);
        operand = whole && whole_place[from] >= 0 ? whole_place[from] : place[from];
      }
      out.dag.ops.push_back(std::move(op));
      return static_cast<int>(out.dag.ops.size()) - 1;
    };
    for (size_t at = 0; at < ops().size(); ++at) {
      if (whole_[at]) whole_place[at] = append(renamed(ops()[at], own), true);
      place[at] = kept_[at] ? append(ops()[at], false) : is_whole_reduction(at) ? whole_place[at] : -1;
    }
    for (int output : kernel_.dag.outputs) out.dag.outputs.push_back(place[static_cast<size_t>(output)]);
    return out;
  }

 private:
  const std::vector<DagOp>& ops() const { return kernel_.dag.ops; }
  bool varies(const DagOp& op) const { return has_label(op.labels, loop_); }
  bool is_whole_reduction(size_t at) const {
    const BlockTerm& term = ops()[at].term;
    return needed_[at] && term.kind == BlockKind::reduction && term.label == loop_;
  }
  // Tiles of products are too large to be there whole.
  static bool is_cheap(const DagOp& op) {
    return op.term.kind == BlockKind::leaf || op.term.kind == BlockKind::elementwise ||
           op.term.kind == BlockKind::reduction;
  }
  // Made twice, it would be added up in two orders: exponentials of large scores are not those that their sum is of.
  static bool is_sum(const DagOp& op) {
    return op.term.kind == BlockKind::reduction && op.term.code == OpCode::reduce_sum;
  }
  DagOp renamed(DagOp op, Label own) const {
    if (varies(op)) op.labels = (op.labels & ~label_bit(loop_)) | label_bit(own);
    if (op.term.kind == BlockKind::leaf) {
      op.term.label = loop_;
      op.term.label2 = own;
    } else if (op.term.label == loop_) {
      op.term.label = own;
    }
    return op;
  }

  const KernelDag& kernel_;
  const Label loop_;
  // What the loop needs; what is made before it, of tiles that it does not cut; what is made as it was.
  std::vector<char> needed_, whole_, kept_;
};

// The label that stands for `loop` where that is whole: one for all kernels.
std::optional<Label> whole_label(Label loop, Terms& terms) {
  const auto at = std::find_if(terms.labels.begin(), terms.labels.end(),
                               [&](const LabelInfo& label) { return label.whole_of == loop; });
  if (at != terms.labels.end()) return static_cast<Label>(at - terms.labels.begin());
  if (terms.labels.size() >= kMostLabels) return std::nullopt;
  LabelInfo label = terms.labels[static_cast<size_t>(loop)];
  label.whole_of = loop;
  terms.labels.push_back(std::move(label));
  return static_cast<Label>(terms.labels.size()) - 1;
}

std::optional<KernelDag> with_whole_reductions(const KernelDag& kernel, Label loop, Terms& terms) {
  WholeReductions reductions(kernel, loop);
  if (loop_form(kernel, loop, terms) || !reductions.find()) return std::nullopt;
  const std::optional<Label> own = whole_label(loop, terms);
  if (!own) return std::nullopt;
  KernelDag changed = reductions.along(*own);
  const std::optional<LoopForm> form = loop_form(changed, loop, terms);
  // A loop that sums nothing reads again what is there.
  if (!form || std::find(form->accumulates.begin(), form->accumulates.end(), true) == form->accumulates.end())
    return std::nullopt;
  return changed;
}

}  // namespace

std::vector<Cut> with_whole_reductions(const Cut& cut, Terms& terms) {
  std::vector<Cut> changed;
  if (cut.kernels.size() > 1) return changed;  // the first of them can make the reductions
  const auto labels = static_cast<Label>(terms.labels.size());
  for (Label loop = 0; loop < labels; ++loop)
    if (auto kernel = with_whole_reductions(cut.kernels[0], loop, terms))
      changed.emplace_back(cut).kernels[0] = std::move(*kernel);
  return changed;
}

}  // namespace quern
