#include "core/search/precision.h"

#include <algorithm>

namespace quern {

namespace {

class PrecisionPass {
 public:
  PrecisionPass(const Dag& dag, const Terms& terms) : dag_(dag), terms_(terms) {}

  std::vector<Precision> run() {
    out_.assign(dag_.ops.size(), Precision::full);
    for (size_t at = 0; at < dag_.ops.size(); ++at) out_[at] = of(dag_.ops[at]);
    return std::move(out_);
  }

 private:
  const DagOp& op(int at) const { return dag_.ops[static_cast<size_t>(at)]; }
  Precision known(int at) const { return out_[static_cast<size_t>(at)]; }

  Precision of(const DagOp& each) const {
    if (is_narrow_value(each.id) || is_constant(each)) return Precision::narrow;
    if (each.operands.empty())
      return is_handed_on(each) && inputs_are_narrow() ? Precision::tf32 : Precision::full;
    if (is_numerator(each)) return known(op(each.operands[0]).operands[0]);
    Precision most = Precision::narrow;
    for (int operand : each.operands) most = std::max(most, known(operand));
    return most == Precision::narrow && !selects(each) ? Precision::tf32 : most;
  }

  // By another kernel, in f32.
  bool is_handed_on(const DagOp& leaf) const {
    return static_cast<size_t>(leaf.term.index) >= terms_.inputs.size();
  }

  bool inputs_are_narrow() const {
    for (size_t i = 0; i < terms_.inputs.size(); ++i)
      if (!is_narrow_value(terms_.egraph.lookup({OpCode::input, static_cast<int32_t>(i), 0, {}})))
        return false;
    return true;
  }

  static bool is_constant(const DagOp& each) { return each.term.kind == BlockKind::constant; }

  bool is_narrow_value(ClassId id) const {
    const ClassId own = terms_.egraph.find(id);
    for (size_t value = 0; value < terms_.of_value.size(); ++value)
      if (terms_.is_narrow[value] && terms_.of_value[value] >= 0 &&
          terms_.egraph.find(terms_.of_value[value]) == own)
        return true;
    return false;
  }

  // e^(s - m), m a maximum of s.
  bool is_numerator(const DagOp& each) const {
    if (each.term.kind != BlockKind::elementwise || each.term.code != OpCode::exp) return false;
    const DagOp& difference = op(each.operands[0]);
    if (difference.term.kind != BlockKind::elementwise || difference.term.code != OpCode::sub) return false;
    const DagOp& largest = op(difference.operands[1]);
    return largest.term.kind == BlockKind::reduction && largest.term.code == OpCode::reduce_max &&
           largest.operands[0] == difference.operands[0];
  }

  // Whether all elements of the result are elements of the operands, or these with another sign.
  static bool selects(const DagOp& each) {
    if (each.term.kind == BlockKind::reduction)
      return each.term.code == OpCode::reduce_max || each.term.code == OpCode::reduce_min;
    if (each.term.kind != BlockKind::elementwise) return false;
    constexpr OpCode kSelecting[] = {OpCode::where, OpCode::max, OpCode::min,
                                     OpCode::neg,   OpCode::abs, OpCode::relu};
    return std::find(std::begin(kSelecting), std::end(kSelecting), each.term.code) != std::end(kSelecting);
  }

  const Dag& dag_;
  const Terms& terms_;
  std::vector<Precision> out_;
};

}  // namespace

std::vector<Precision> precisions(const Dag& dag, const Terms& terms) {
  return PrecisionPass(dag, terms).run();
}

}  // namespace quern
