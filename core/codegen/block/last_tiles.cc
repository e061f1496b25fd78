#include "core/codegen/block/last_tiles.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace quern {

namespace {

// Along which dimensions of values an axis cuts, and what extent all of these have.
class CutDims {
 public:
  CutDims(const BlockFacts& facts, int axis)
      : facts_(facts), axis_(axis), cut_(static_cast<size_t>(facts.count())) {
    for (BlockValue value = 0; value < facts.count() && alike_; ++value) {
      const BlockOp& op = facts.program.op(value);
      alike_ = op.has_access() ? add_access(value, op) : add_computed(value, op);
    }
  }

  // 0: they are not cut alike, or something is summed along them.
  int64_t extent() const { return alike_ ? extent_ : 0; }

 private:
  bool add_access(BlockValue value, const BlockOp& op) {
    const TensorPlace& place = facts_.place(op);
    const int dim = op.map()[static_cast<size_t>(axis_)];
    if (dim < 0) return op.is_load();
    for (int other = 0; other <= kGridAxes; ++other)
      if (other != axis_ && cuts(op, other, dim)) return false;
    const int64_t extent = place.shape[static_cast<size_t>(dim)];
    if (extent_ != 0 && extent != extent_) return false;
    extent_ = extent;
    cut_[static_cast<size_t>(value)] = {dim};
    return place.pieces.empty() && place.repeats_of(static_cast<size_t>(dim)) == 1;
  }

  bool add_computed(BlockValue value, const BlockOp& op) {
    auto& own = cut_[static_cast<size_t>(value)];
    for (size_t o = 0; o < op.operands.size(); ++o) {
      const BlockValue operand = op.operands[o];
      const std::vector<int> to = result_dims(facts_.program, value, o);
      for (int dim : cut_[static_cast<size_t>(operand)]) {
        const int there = to[static_cast<size_t>(dim)];
        if (there < 0 || op.type.shape[static_cast<size_t>(there)] !=
                             facts_.program.shape(operand)[static_cast<size_t>(dim)])
          return false;
        own.insert(there);
      }
    }
    return true;
  }

  const BlockFacts& facts_;
  const int axis_;
  std::vector<std::set<int>> cut_;
  int64_t extent_ = 0;
  bool alike_ = true;
};

// Whether TMA brings tiles in every iteration that the axis cuts.
bool loads_by_tma(const BlockFacts& facts, int axis) {
  for (BlockValue value = 0; value < facts.count(); ++value) {
    const BlockOp& op = facts.program.op(value);
    if (op.is_load() && op.map()[static_cast<size_t>(axis)] >= 0 && facts.is_staged(value)) return true;
  }
  return false;
}

}  // namespace

std::vector<int> result_dims(const BlockProgram& program, BlockValue value, size_t operand) {
  const BlockOp& op = program.op(value);
  const Ints &shape = op.type.shape, &own = program.shape(op.operands[operand]);
  std::vector<int> to(own.size(), -1);
  if (program.is_compute(value, OpKind::reduction)) {
    const Ints& axes = *op.attrs().axis;
    int next = 0;
    for (size_t d = 0; d < own.size(); ++d) {
      const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
      if (!reduced) to[d] = next;
      next += !reduced || *op.attrs().keepdims;
    }
  } else if (program.is_compute(value, OpKind::movement)) {
    const std::vector<int> view = view_dims(program, value);
    if (view.size() == own.size()) to = view;
    if (op.code() == OpCode::concat || op.code() == OpCode::slice)  // their axes have another extent
      std::iota(to.begin(), to.end(), 0);
  } else {
    const bool product = program.is_compute(value, OpKind::contraction);
    for (size_t d = 0; d < own.size(); ++d)
      if (!(product && d + (operand == 0 ? 1 : 2) == own.size()) && own.size() <= shape.size())
        to[d] = static_cast<int>(d + shape.size() - own.size());
  }
  return to;
}

bool takes_whole_tiles(const BlockFacts& facts, int axis) {
  const KernelSchedule& schedule = facts.schedule;
  if (!schedule.tma || schedule.intervals || !loads_by_tma(facts, axis)) return false;
  const int64_t extent = CutDims(facts, axis).extent(), parts = facts.kernel.parts(axis);
  const int64_t tile = facts.kernel.part(axis, extent);
  return extent >= tile && tile * parts != extent;
}

}  // namespace quern
