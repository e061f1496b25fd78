#include "core/mugraph/tile_masks.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace quern {

namespace {

constexpr int64_t kMostSamples = 32;  // along an axis

class Masks {
 public:
  Masks(const MuGraph& mugraph, const MuKernel& kernel) : mugraph_(mugraph), kernel_(kernel) {}

  // The conditions of the loop's masks, as far as they are known.
  std::vector<BlockValue> conditions() const {
    std::vector<BlockValue> out;
    const std::vector<Stage> stages = block_stages(kernel_);
    const auto masks = masks_at(Coordinates{});
    for (size_t i = 0; i < kernel_.ops.size(); ++i) {
      const BlockOp& op = kernel_.ops[i];
      if (op.kind != BlockOp::Kind::compute || op.code != OpCode::where || stages[i] != Stage::loop) continue;
      const BlockOp& masked = kernel_.ops[static_cast<size_t>(op.operands[2])];
      if (masked.kind == BlockOp::Kind::compute && masked.code == OpCode::constant &&
          masks.condition(op.operands[0]))
        out.push_back(op.operands[0]);
    }
    return out;
  }

  bool is_possible(const std::vector<BlockValue>& conditions, const Coordinates& at) const {
    const auto masks = masks_at(at);
    return std::all_of(conditions.begin(), conditions.end(),
                       [&](BlockValue condition) { return masks.condition(condition)->possible; });
  }

 private:
  TileMasks<int64_t, bool> masks_at(const Coordinates& at) const {
    return {kernel_.ops, [this, at](BlockValue value) -> std::optional<PositionRange<int64_t>> {
              const BlockOp& op = kernel_.ops[static_cast<size_t>(value)];
              if (op.kind != BlockOp::Kind::load) return std::nullopt;
              const MuTensor& tensor = mugraph_.tensors[static_cast<size_t>(op.tensor)];
              if (tensor.numbered < 0) return std::nullopt;
              const int64_t extent = tensor.type.shape[static_cast<size_t>(tensor.numbered)];
              const Interval own = tile_interval(kernel_, op, tensor.numbered, extent, at);
              return PositionRange<int64_t>{own.first, own.first + own.tile - 1, extent};
            }};
  }

  const MuGraph& mugraph_;
  const MuKernel& kernel_;
};

// Of all blocks, or of those whose coordinate along `axis` is `fixed`.
double share(const MuGraph& mugraph, const MuKernel& kernel, int fixed_axis = -1, int64_t fixed = 0) {
  const Masks masks(mugraph, kernel);
  const std::vector<BlockValue> conditions = masks.conditions();
  if (conditions.empty()) return 1;
  // Axes that no position depends on need one sample.
  Coordinates counts;
  counts.fill(1);
  for (const BlockOp& op : kernel.ops) {
    if (op.kind != BlockOp::Kind::load || mugraph.tensors[static_cast<size_t>(op.tensor)].numbered < 0)
      continue;
    for (size_t axis = 0; axis < kGridAxes; ++axis)
      if (op.map[axis] >= 0) counts[axis] = kernel.grid[axis];
    if (op.loop_dim >= 0) counts[kGridAxes] = kernel.trip_count;
  }
  if (fixed_axis >= 0) counts[static_cast<size_t>(fixed_axis)] = 1;
  int64_t visited = 0, total = 0;
  Coordinates number{};
  for (;;) {
    Coordinates at;
    for (size_t axis = 0; axis < at.size(); ++axis)
      at[axis] = number[axis] * counts[axis] / std::min(counts[axis], kMostSamples);
    if (fixed_axis >= 0) at[static_cast<size_t>(fixed_axis)] = fixed;
    ++total;
    visited += masks.is_possible(conditions, at);
    size_t axis = 0;
    while (axis < number.size() && ++number[axis] == std::min(counts[axis], kMostSamples)) number[axis++] = 0;
    if (axis == number.size()) break;
  }
  return static_cast<double>(visited) / static_cast<double>(total);
}

bool is_online(const MuKernel& kernel) {
  return std::any_of(kernel.ops.begin(), kernel.ops.end(), [](const BlockOp& op) {
    return op.kind == BlockOp::Kind::accumulate && op.combine == Combine::rescaled_sum;
  });
}

}  // namespace

double unmasked_share(const MuGraph& mugraph, const MuKernel& kernel) {
  return is_online(kernel) && !stores_in_loop(kernel.ops) ? share(mugraph, kernel) : 1;
}

UnevenAxis uneven_axis(const MuGraph& mugraph, const MuKernel& kernel) {
  constexpr double kEven = 0.2;
  UnevenAxis out;
  double most = kEven;
  for (int axis = 0; is_online(kernel) && axis < 3; ++axis) {
    const int64_t extent = kernel.grid[static_cast<size_t>(axis)];
    if (extent == 1) continue;
    const double grows = share(mugraph, kernel, axis, extent - 1) - share(mugraph, kernel, axis, 0);
    if (std::abs(grows) <= most) continue;
    most = std::abs(grows);
    out = {axis, grows > 0};
  }
  return out;
}

}  // namespace quern
