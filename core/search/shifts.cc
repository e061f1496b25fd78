#include "core/search/shifts.h"

#include "core/search/rewriter.h"

namespace quern {

namespace {

class ShiftRewriter : CopyingRewriter {
 public:
  explicit ShiftRewriter(const Graph& graph) : CopyingRewriter(graph) {}

  // Nothing if no softmax has such a shift.
  std::optional<Graph> run() {
    std::optional<Graph> made = rewritten([&](ValueId id) {
      const std::optional<ValueId> from = shifted(id);
      if (!from) return copy(id);
      found_ = true;
      return add(OpCode::softmax, {became(*from)}, node(id).attrs, node(id).name);
    });
    return found_ ? std::move(made) : std::nullopt;
  }

 private:
  static Ints axes_of(const Node& op) {
    Ints axes = op.attrs.axis.value_or(Ints());
    std::sort(axes.begin(), axes.end());
    return axes;
  }

  // What the softmax `id` is over, without its maximum.
  std::optional<ValueId> shifted(ValueId id) const {
    const Node& softmax = node(id);
    if (softmax.code != OpCode::softmax) return std::nullopt;
    const Node& difference = node(softmax.operands[0]);
    if (difference.code != OpCode::sub) return std::nullopt;
    const ValueId from = difference.operands[0];
    const Node& largest = node(difference.operands[1]);
    const bool is_own = largest.code == OpCode::reduce_max && largest.operands[0] == from &&
                        largest.attrs.keepdims.value_or(false) && axes_of(largest) == axes_of(softmax);
    // Of an f32 value it would have another dtype.
    return is_own && node(from).type.dtype == softmax.type.dtype ? std::optional(from) : std::nullopt;
  }

  bool found_ = false;
};

}  // namespace

Graph without_shifts(const Graph& graph) {
  std::optional<Graph> made = ShiftRewriter(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
