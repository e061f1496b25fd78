#include "core/search/precision.h"

#include <algorithm>
#include <optional>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

class PrecisionPass {
 public:
  PrecisionPass(const Dag& dag, const Terms& terms) : dag_(dag), terms_(terms) {
    for (const DagOp& each : dag.ops) graph_has_.push_back(dtypes_of(each.id));
  }

  std::vector<Precision> run() {
    const std::vector<char> in_f32 = computed_in_f32();
    const std::vector<Precision> exact = values(true);
    std::vector<Precision> out = values(false);
    for (size_t at = 0; at < dag_.ops.size(); ++at) {
      const DagOp& each = dag_.ops[at];
      if (!in_f32[at] || (each.term.kind != BlockKind::matmul && each.term.kind != BlockKind::concat_matmul))
        continue;
      for (int operand : each.operands)
        if (exact[static_cast<size_t>(operand)] != Precision::narrow)
          out[static_cast<size_t>(operand)] = Precision::full;
    }
    return out;
  }

 private:
  const DagOp& op(int at) const { return dag_.ops[static_cast<size_t>(at)]; }

  // What the values are. `exactly`: for a product that the unfused program computes in f32.
  std::vector<Precision> values(bool exactly) const {
    std::vector<Precision> known;
    for (const DagOp& each : dag_.ops) known.push_back(of(each, exactly, known));
    return known;
  }

  Precision of(const DagOp& each, bool exactly, const std::vector<Precision>& known) const {
    const Dtypes& own = graph_has_[known.size()];
    if ((own.narrow && !(exactly && own.f32)) || is_constant(each)) return Precision::narrow;
    if (each.operands.empty())
      return is_handed_on(each) && inputs_are_narrow() ? Precision::tf32 : Precision::full;
    if (is_numerator(each) && !exactly) {
      const int scores = op(each.operands[0]).operands[0];
      return has_narrow_softmax(op(scores).id) ? Precision::narrow : known[static_cast<size_t>(scores)];
    }
    Precision most = Precision::narrow;
    for (int operand : each.operands) most = std::max(most, known[static_cast<size_t>(operand)]);
    return most == Precision::narrow && !selects(each) ? Precision::tf32 : most;
  }

  // Values that the unfused program has in f32, and what they are made of, as far as it has no 16 bits there.
  // A kernel's DAG does not say what its results go into.
  std::vector<char> computed_in_f32() const {
    std::vector<char> in_f32(dag_.ops.size());
    for (size_t at = dag_.ops.size(); at-- > 0;) {
      in_f32[at] = !graph_has_[at].narrow && (in_f32[at] || graph_has_[at].f32);
      for (int operand : dag_.ops[at].operands)
        if (in_f32[at]) in_f32[static_cast<size_t>(operand)] = true;
    }
    return in_f32;
  }

  // By another kernel, in f32.
  bool is_handed_on(const DagOp& leaf) const {
    return static_cast<size_t>(leaf.term.index) >= terms_.inputs.size();
  }

  bool inputs_are_narrow() const {
    for (size_t i = 0; i < terms_.inputs.size(); ++i)
      if (!dtypes_of(terms_.egraph.lookup({OpCode::input, static_cast<int32_t>(i), 0, {}})).narrow)
        return false;
    return true;
  }

  bool has_narrow_softmax(ClassId id) const {
    for (size_t value = 0; value < terms_.softmax_dtypes.size(); ++value)
      if (terms_.softmax_dtypes[value] &&
          terms_.egraph.find(terms_.of_definitions[value]) == terms_.egraph.find(id))
        return true;
    return false;
  }

  static bool is_constant(const DagOp& each) { return each.term.kind == BlockKind::constant; }

  // In which dtypes the graph has a value.
  struct Dtypes {
    bool narrow = false, f32 = false;
  };
  Dtypes dtypes_of(ClassId id) const {
    Dtypes out;
    for_each_dtype(terms_, id, [&](DType dtype) {
      out.narrow |= is_narrow(dtype);
      out.f32 |= dtype == DType::f32;
    });
    return out;
  }

  // e^(s - m), m a maximum of s and perhaps of others.
  bool is_numerator(const DagOp& each) const {
    if (each.term.kind != BlockKind::elementwise || each.term.code != OpCode::exp) return false;
    const DagOp& difference = op(each.operands[0]);
    if (difference.term.kind != BlockKind::elementwise || difference.term.code != OpCode::sub) return false;
    const DagOp& largest = op(difference.operands[1]);
    if (largest.term.kind != BlockKind::reduction || largest.term.code != OpCode::reduce_max) return false;
    const int scores = difference.operands[0], of = largest.operands[0];
    const DagOp& joined = op(of);
    const bool joins = joined.term.kind == BlockKind::elementwise && joined.term.code == OpCode::max;
    return of == scores || (joins && (joined.operands[0] == scores || joined.operands[1] == scores));
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
  std::vector<Dtypes> graph_has_;
};

}  // namespace

std::vector<Precision> precisions(const Dag& dag, const Terms& terms) {
  return PrecisionPass(dag, terms).run();
}

}  // namespace quern
