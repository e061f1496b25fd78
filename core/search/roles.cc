#include "core/search/roles.h"

#include <algorithm>
#include <optional>

namespace quern {

namespace {

// How a value in the loop depends on the running maximum.
struct Taint {
  enum Kind : uint8_t { clean, shifted, scaled } kind = clean;
  int shift = -1;  // the accumulator: the value is s - shift, or a multiple of exp(-shift)
  bool operator==(const Taint&) const = default;
};

class LoopAnalysis {
 public:
  LoopAnalysis(const KernelDag& kernel, Label loop, const Terms& terms)
      : dag_(kernel.dag), loop_(loop), terms_(terms) {}

  std::optional<LoopForm> run(std::string* why) {
    for (size_t at = 0; at < dag_.ops.size(); ++at) {
      form_.accumulates.push_back(false);
      form_.shift.push_back(-1);
      taint_.push_back({});
      form_.stages.push_back(Stage::before);
      std::string reason = classify(dag_.ops[at], static_cast<int>(at));
      if (reason.empty()) continue;
      if (why) *why = std::move(reason);
      return std::nullopt;
    }
    for (int output : dag_.outputs)
      if (in_loop(output) && taint_[output].kind != Taint::clean) {
        if (why) *why = "a result is relative to the running maximum";
        return std::nullopt;
      }
    return std::move(form_);
  }

 private:
  bool in_loop(int at) const { return form_.stages[at] == Stage::loop; }
  bool is_running_max(int at) const {
    return form_.accumulates[at] && dag_.ops[at].term.code == OpCode::reduce_max;
  }

  // Sets stage and taint; the reason why that is not possible.
  std::string classify(const DagOp& op, int at) {
    const BlockTerm& term = op.term;
    if (term.kind == BlockKind::leaf) {
      form_.stages[at] = loop_ >= 0 && has_label(op.labels, loop_) ? Stage::loop : Stage::before;
      return "";
    }
    bool any_loop = false, any_after = false, any_other_after = false;
    for (int operand : op.operands) {
      any_loop |= in_loop(operand);
      any_after |= form_.stages[operand] == Stage::after;
      any_other_after |= form_.stages[operand] == Stage::after && !is_running_max(operand);
    }
    if (!any_loop) {
      form_.stages[at] = any_after ? Stage::after : Stage::before;
      return "";
    }
    if (any_other_after) return "a value in the loop needs a reduction over the whole of it";
    form_.stages[at] = Stage::loop;
    switch (term.kind) {
      case BlockKind::elementwise:
        return elementwise(op, at);
      case BlockKind::composite: {
        const Dims& axes = terms_.composites[term.index].axes;
        if (std::find(axes.begin(), axes.end(), loop_) != axes.end())
          return std::string(op_info(term.code).text) + " needs the whole axis";
        return any_tainted(op) || any_after ? "a norm of a value relative to the running maximum" : "";
      }
      case BlockKind::concat_matmul:
        return "concatenated contractions are not looped over";
      default:
        return reduction(op, at, any_after);
    }
  }

  bool any_tainted(const DagOp& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](int operand) { return taint_[operand].kind != Taint::clean; });
  }

  std::string elementwise(const DagOp& op, int at) {
    const auto& operands = op.operands;
    const char* wrong = "an operator in the loop is not linear in what is relative to the running maximum";
    if (op.term.code == OpCode::sub && is_running_max(operands[1])) {
      if (taint_[operands[0]].kind != Taint::clean || is_running_max(operands[0])) return wrong;
      taint_[at] = {Taint::shifted, operands[1]};
      return "";
    }
    for (int operand : operands)
      if (is_running_max(operand)) return wrong;
    if (!any_tainted(op)) return "";
    const Taint first = taint_[operands[0]], second = operands.size() > 1 ? taint_[operands[1]] : Taint();
    auto is = [](const Taint& taint, Taint::Kind kind) { return taint.kind == kind; };
    bool linear = false;
    switch (op.term.code) {
      case OpCode::exp:
        if (!is(first, Taint::shifted)) return wrong;
        taint_[at] = {Taint::scaled, first.shift};
        return "";
      case OpCode::mul:
        linear = (is(first, Taint::scaled) && is(second, Taint::clean)) ||
                 (is(first, Taint::clean) && is(second, Taint::scaled));
        break;
      case OpCode::div:
        linear = is(first, Taint::scaled) && is(second, Taint::clean);
        break;
      case OpCode::neg:
        linear = is(first, Taint::scaled);
        break;
      case OpCode::add:
      case OpCode::sub:
        linear = is(first, Taint::scaled) && first == second;
        break;
      default:
        break;
    }
    if (!linear) return wrong;
    taint_[at] = is(first, Taint::scaled) ? first : second;
    return "";
  }

  static bool is_linear(const BlockTerm& term) {
    return term.kind != BlockKind::reduction || op_info(term.code).laws & kLinear;
  }

  // Reductions and contractions of values in the loop.
  std::string reduction(const DagOp& op, int at, bool reads_running_max) {
    if (reads_running_max) return "a reduction of a running maximum";
    Taint taint;
    for (int operand : op.operands) {
      if (taint_[operand].kind == Taint::clean) continue;
      if (taint_[operand].kind == Taint::shifted || taint.kind == Taint::scaled || !is_linear(op.term))
        return "a reduction is not linear in what is relative to the running maximum";
      taint = taint_[operand];
    }
    if (taint.kind == Taint::scaled && has_label(dag_.ops[taint.shift].labels, op.term.label))
      return "a sum over an index along which the running maximum varies";
    if (op.term.label != loop_) {
      taint_[at] = taint;
      return "";
    }
    form_.stages[at] = Stage::after;
    form_.accumulates[at] = true;
    form_.shift[at] = taint.shift;
    return "";
  }

  const Dag& dag_;
  const Label loop_;
  const Terms& terms_;
  LoopForm form_;
  std::vector<Taint> taint_;
};

LabelSet reduced_labels(const Dag& dag, const Terms& terms) {
  LabelSet set = 0;
  for (const DagOp& op : dag.ops) {
    if (op.term.label >= 0) set |= label_bit(op.term.label);
    if (op.term.label2 >= 0) set |= label_bit(op.term.label2);
    if (op.term.kind == BlockKind::composite) set |= label_set(terms.composites[op.term.index].axes);
  }
  return set;
}

LabelSet stored_everywhere(const Dag& dag) {
  LabelSet set = ~LabelSet{0};
  for (int output : dag.outputs) set &= dag.ops[output].labels;
  return set;
}

// The labels as grid axes: the innermost dimension of the first store is x. All choices of at most `most`.
std::vector<std::vector<Label>> grid_choices(LabelSet set, const Dims& order, size_t most) {
  std::vector<Label> labels;
  for (size_t i = order.size(); i-- > 0;)
    if (order[i] >= 0 && has_label(set, order[i])) labels.push_back(order[i]);
  if (labels.size() <= most) return {labels};
  std::vector<std::vector<Label>> choices;
  for (uint32_t mask = 0; mask < 1u << labels.size(); ++mask) {
    if (static_cast<size_t>(__builtin_popcount(mask)) != most) continue;
    choices.emplace_back();
    for (size_t i = 0; i < labels.size(); ++i)
      if (mask >> i & 1) choices.back().push_back(labels[i]);
  }
  return choices;
}

// Labels of all partial accumulators that a second kernel would read.
LabelSet partial_labels(const Dag& dag, const LoopForm& form) {
  LabelSet set = ~LabelSet{0};
  for (size_t at = 0; at < dag.ops.size(); ++at)
    if (form.accumulates[at]) set &= dag.ops[at].labels;
  return set;
}

bool stores_in_loop(const Dag& dag, const LoopForm& form) {
  return std::any_of(dag.outputs.begin(), dag.outputs.end(),
                     [&](int output) { return form.stages[static_cast<size_t>(output)] == Stage::loop; });
}

constexpr size_t kMostGridLabels = 3;

bool in_loop(const LoopForm& form, int at) { return form.stages[static_cast<size_t>(at)] == Stage::loop; }

// Labels of all partial accumulators and of the results that are stored in the loop, or of the others; but none that is
// reduced on that side of the accumulators, or that softmax and norms need whole there.
std::vector<std::vector<Label>> parted_labels(const Dag& dag, const std::vector<int>& stores,
                                              const std::vector<Dims>& tensors, const Terms& terms,
                                              const LoopForm& form, bool looped) {
  LabelSet set = partial_labels(dag, form);
  Dims order;
  for (size_t i = 0; i < dag.outputs.size(); ++i) {
    if (in_loop(form, dag.outputs[i]) != looped) continue;
    set &= dag.ops[static_cast<size_t>(dag.outputs[i])].labels;
    order = tensors[static_cast<size_t>(stores[i])];
  }
  for (size_t at = 0; at < dag.ops.size(); ++at) {
    const bool first = form.stages[at] != Stage::after || form.accumulates[at];
    if (first != looped) continue;
    const DagOp& op = dag.ops[at];
    for (int operand : op.operands) set &= ~(dag.ops[static_cast<size_t>(operand)].labels & ~op.labels);
    if (op.term.kind == BlockKind::composite) set &= ~label_set(terms.composites[op.term.index].axes);
  }
  return grid_choices(set, order, looped ? kMostGridLabels - 1 : kMostGridLabels);
}

}  // namespace

const char* split_name(Split split) {
  constexpr const char* kNames[] = {"none", "cluster", "second kernel"};
  return kNames[static_cast<int>(split)];
}

Combine combine_of(const Dag& dag, const LoopForm& form, size_t accumulator) {
  if (form.shift[accumulator] >= 0) return Combine::rescaled_sum;
  const BlockTerm& term = dag.ops[accumulator].term;
  return term.kind == BlockKind::reduction ? combine_of(term.code) : Combine::sum;
}

std::optional<LoopForm> loop_form(const KernelDag& kernel, Label loop, const Terms& terms, std::string* why) {
  return LoopAnalysis(kernel, loop, terms).run(why);
}

std::vector<Roles> legal_roles(const KernelDag& kernel, const std::vector<Dims>& tensors, const Terms& terms,
                               const Target& target, std::vector<std::string>* why) {
  std::vector<Roles> found;
  const LabelSet reduced = reduced_labels(kernel.dag, terms);
  const LabelSet spread = stored_everywhere(kernel.dag) & ~reduced;
  const Dims& order = tensors[kernel.stores[0]];
  for (Label loop = -1; loop < static_cast<Label>(terms.labels.size()); ++loop) {
    if (loop >= 0 && (!has_label(reduced, loop) || terms.labels[loop].whole_of >= 0)) continue;
    std::string reason;
    std::optional<LoopForm> form = loop_form(kernel, loop, terms, &reason);
    if (!form) {
      if (why) why->push_back("no loop over " + terms.labels[loop].name + ": " + reason);
      continue;
    }
    const bool stores = stores_in_loop(kernel.dag, *form);
    for (const std::vector<Label>& grid : grid_choices(spread, order, kMostGridLabels)) {
      found.push_back({grid, loop, Split::none, *form, stores, {}});
      if (loop >= 0 && target.max_cluster > 1 && !stores)
        found.push_back({grid, loop, Split::cluster, *form, false, {}});
    }
    if (loop < 0) continue;
    if (stores) {
      auto parted = [&](bool looped) {
        return parted_labels(kernel.dag, kernel.stores, tensors, terms, *form, looped);
      };
      for (const std::vector<Label>& grid : parted(true))
        found.push_back({grid, loop, Split::second_kernel, *form, true, parted(false)[0]});
      continue;
    }
    for (const std::vector<Label>& grid :
         grid_choices(spread & partial_labels(kernel.dag, *form), order, kMostGridLabels - 1))
      found.push_back({grid, loop, Split::second_kernel, *form, false, {}});
  }
  return found;
}

}  // namespace quern
