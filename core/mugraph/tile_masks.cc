#include "core/mugraph/tile_masks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "core/mugraph/dependence.h"
#include "core/mugraph/masked_work.h"

namespace quern {

namespace {

// Along an axis, and iterations where one axis is all that positions depend on: tiles that are masked in part lie where positions
// of both are alike, which fewer samples would always hit or always miss.
constexpr int64_t kMostSamples = 32, kMostIterations = 256;
// What is taken of integers that only launches know: lengths between the half and all, quarters of the positions' extent.
constexpr int64_t kShare = 3;

class Masks {
 public:
  Masks(const MuGraph& mugraph, const MuKernel& kernel)
      : mugraph_(mugraph),
        kernel_(kernel),
        masks_(kernel.ops, [this](BlockValue value) { return positions(value); }) {
    for (const BlockOp& op : kernel.ops) integer_ = std::max(integer_, extent_of_positions(op) * kShare / 4);
    const auto work = masked_work(kernel.ops, block_stages(kernel), is_mask());
    if (!work) return;
    chains_ = work->chains;
    for (BlockValue value : work->finite)
      if (const BlockOp& op = kernel.ops[static_cast<size_t>(value)]; op.is_load() && op.loop_dim() >= 0)
        finite_.push_back(value);
  }

  // Whether iterations change nothing that are masked by positions, as far as is known.
  bool any() const { return !chains_.empty(); }

  // Loads of the loop that must be finite where it is masked.
  const std::vector<BlockValue>& finite() const { return finite_; }

  // All that unmasked() depends on but the coordinates.
  std::vector<int64_t> key() const {
    std::vector<int64_t> out(kernel_.grid.begin(), kernel_.grid.end());
    out.insert(out.end(), kernel_.tiles.begin(), kernel_.tiles.end());
    out.insert(out.end(), {kernel_.trip_count, integer_});
    std::set<BlockValue> seen;
    for (const std::vector<BlockValue>& chain : chains_) {
      out.push_back(-1);
      for (BlockValue select : chain)
        add_to_key(out, kernel_.ops[static_cast<size_t>(select)].operands[0], seen);
    }
    return out;
  }

  std::set<BlockValue> selects() const {
    std::set<BlockValue> out;
    for (const std::vector<BlockValue>& chain : chains_) out.insert(chain.begin(), chain.end());
    return out;
  }

  // Whether an iteration is not masked, and whether nothing of it is.
  TileTruth<bool> unmasked(const Coordinates& at) {
    at_ = at;
    TileTruth<bool> out{true, false};
    for (const std::vector<BlockValue>& chain : chains_) {
      bool possible = true;
      for (BlockValue select : chain) {
        const auto tile = *masks_.condition(kernel_.ops[static_cast<size_t>(select)].operands[0]);
        possible &= tile.possible;
        out.always &= tile.always;
      }
      out.possible |= possible;
    }
    return out;
  }

 private:
  void add_to_key(std::vector<int64_t>& key, BlockValue value, std::set<BlockValue>& seen) const {
    key.push_back(value);
    if (!seen.insert(value).second) return;
    const BlockOp& op = kernel_.ops[static_cast<size_t>(value)];
    key.push_back(static_cast<int64_t>(op.kind()));
    key.push_back(static_cast<int64_t>(op.type.dtype));
    if (op.is_load()) {
      key.insert(key.end(), op.map().begin(), op.map().end());
      key.insert(key.end(), {op.loop_dim(), mugraph_.tensors[static_cast<size_t>(op.tensor())].numbered,
                             extent_of_positions(op), op.type.element_count()});
    }
    if (!op.is_compute()) return;
    key.push_back(static_cast<int64_t>(op.code()));
    if (op.code() == OpCode::constant) {
      key.push_back(std::bit_cast<int64_t>(op.number()));
      key.push_back(static_cast<int64_t>(op.extents().size()));
    }
    for (BlockValue operand : op.operands) add_to_key(key, operand, seen);
  }

  std::function<bool(BlockValue)> is_mask() const {
    return [this](BlockValue condition) { return masks_.condition(condition).has_value(); };
  }

  std::optional<PositionRange<int64_t>> positions(BlockValue value) const {
    const BlockOp& op = kernel_.ops[static_cast<size_t>(value)];
    if (!op.is_load()) return std::nullopt;
    const MuTensor& tensor = mugraph_.tensors[static_cast<size_t>(op.tensor())];
    if (tensor.numbered < 0) {
      if (!is_one_integer(op)) return std::nullopt;
      return PositionRange<int64_t>{integer_, integer_, kMostOfAny};
    }
    const int64_t extent = extent_of_positions(op);
    const Interval own = tile_interval(kernel_, op, tensor.numbered, extent, at_);
    return PositionRange<int64_t>{own.first, own.first + own.tile - 1, extent};
  }

  int64_t extent_of_positions(const BlockOp& op) const {
    if (!op.is_load()) return 0;
    const MuTensor& tensor = mugraph_.tensors[static_cast<size_t>(op.tensor())];
    return tensor.numbered < 0 ? 0 : tensor.type.shape[static_cast<size_t>(tensor.numbered)];
  }

  const MuGraph& mugraph_;
  const MuKernel& kernel_;
  const TileMasks<int64_t, bool> masks_;
  int64_t integer_ = 0;  // what is taken of one that is read
  Coordinates at_{};
  std::set<std::vector<BlockValue>> chains_;  // of selects
  std::vector<BlockValue> finite_;
};

// Of all clusters, or of those whose coordinate along `axis` is `fixed`. A cluster is as long under way as
// the busiest of its blocks.
UnmaskedShare sampled_share(const MuGraph& mugraph, const MuKernel& kernel, Masks& masks, int fixed_axis,
                            int64_t fixed) {
  // Axes that no position depends on need one sample.
  constexpr size_t kCluster = kGridAxes - 1, kLoop = kGridAxes;
  Coordinates counts, samples;
  counts.fill(1);
  for (const BlockOp& op : kernel.ops) {
    if (!op.is_load() || mugraph.tensors[static_cast<size_t>(op.tensor())].numbered < 0) continue;
    for (size_t axis = 0; axis < kGridAxes; ++axis)
      if (op.map()[axis] >= 0) counts[axis] = kernel.grid[axis];
    if (op.loop_dim() >= 0) counts[kLoop] = kernel.trip_count;
  }
  int64_t blocks = 1;
  for (size_t axis = 0; axis < kLoop; ++axis) {
    samples[axis] = static_cast<int>(axis) == fixed_axis ? 1 : std::min(counts[axis], kMostSamples);
    blocks *= samples[axis];
  }
  samples[kLoop] = std::min(counts[kLoop], blocks <= kMostSamples ? kMostIterations : kMostSamples);
  Coordinates at{};
  auto move_to = [&](size_t axis, int64_t sample) {
    at[axis] = static_cast<int>(axis) == fixed_axis ? fixed : sample * counts[axis] / samples[axis];
  };
  const int64_t clusters = samples[0] * samples[1] * samples[2];
  int64_t visited = 0, most = 0, partly = 0;
  for (int64_t number = 0; number < clusters; ++number) {
    move_to(0, number % samples[0]);
    move_to(1, number / samples[0] % samples[1]);
    move_to(2, number / samples[0] / samples[1]);
    int64_t busiest = 0, own_partly = 0;
    for (int64_t block = 0; block < samples[kCluster]; ++block) {
      move_to(kCluster, block);
      int64_t own = 0;
      for (int64_t iteration = 0; iteration < samples[kLoop]; ++iteration) {
        move_to(kLoop, iteration);
        const TileTruth<bool> unmasked = masks.unmasked(at);
        own += unmasked.possible;
        own_partly += unmasked.possible && !unmasked.always;
      }
      busiest = std::max(busiest, own);
    }
    visited += busiest;
    partly += own_partly;
    most = std::max(most, busiest);
  }
  const auto iterations = static_cast<double>(samples[kLoop]);
  const double all = static_cast<double>(clusters) * iterations;
  return {static_cast<double>(visited) / all, static_cast<double>(most) / iterations,
          static_cast<double>(partly) / (all * static_cast<double>(samples[kCluster]))};
}

// The same tiles are asked for again and again, by schedules that differ in other things.
UnmaskedShare share(const MuGraph& mugraph, const MuKernel& kernel, int fixed_axis = -1, int64_t fixed = 0) {
  constexpr size_t kMostKnown = 4096;
  thread_local std::map<std::vector<int64_t>, UnmaskedShare> known;
  Masks masks(mugraph, kernel);
  if (!masks.any()) return {};
  std::vector<int64_t> key = masks.key();
  key.insert(key.end(), {fixed_axis, fixed});
  if (const auto at = known.find(key); at != known.end()) return at->second;
  if (known.size() == kMostKnown) known.clear();
  return known[std::move(key)] = sampled_share(mugraph, kernel, masks, fixed_axis, fixed);
}

}  // namespace

UnmaskedShare unmasked_share(const MuGraph& mugraph, const MuKernel& kernel) {
  return share(mugraph, kernel);
}

std::set<BlockValue> masking_values(const MuGraph& mugraph, const MuKernel& kernel) {
  const std::set<BlockValue> selects = Masks(mugraph, kernel).selects();
  if (selects.empty()) return {};
  std::set<BlockValue> out = selects, others;  // whatever else is asked for
  for (size_t i = kernel.ops.size(); i-- > 0;) {
    const BlockOp& op = kernel.ops[i];
    const auto value = static_cast<BlockValue>(i);
    const bool select = selects.contains(value);
    if (!select && op.is_compute() && !others.contains(value)) out.insert(value);
    for (size_t k = 0; k < op.operands.size(); ++k)
      if (select ? k > 0 : !out.contains(value)) others.insert(op.operands[k]);
  }
  return out;
}

std::vector<BlockValue> loads_that_must_be_finite(const MuGraph& mugraph, const MuKernel& kernel) {
  return Masks(mugraph, kernel).finite();
}

std::vector<int32_t> tensors_to_look_at(const MuGraph& mugraph, const MuKernel& kernel) {
  std::set<int32_t> out;
  for (BlockValue load : loads_that_must_be_finite(mugraph, kernel))
    for (int32_t tensor : memory_of(mugraph, kernel.ops[static_cast<size_t>(load)].tensor()))
      out.insert(tensor);
  return {out.begin(), out.end()};
}

bool sums_show_finite(const MuGraph& mugraph, const MuKernel& kernel) {
  Masks masks(mugraph, kernel);
  if (!masks.any() || masks.finite().empty()) return false;
  int along = -1;  // the axis that positions depend on
  for (const BlockOp& op : kernel.ops) {
    if (!op.is_load()) continue;
    if (is_one_integer(op)) return false;
    if (mugraph.tensors[static_cast<size_t>(op.tensor())].numbered < 0) continue;
    for (size_t axis = 0; axis < kGridAxes; ++axis) {
      if (op.map()[axis] < 0 || kernel.grid[axis] == 1) continue;
      if (along >= 0 && along != static_cast<int>(axis)) return false;
      along = static_cast<int>(axis);
    }
  }
  if (along < 0) return false;
  for (BlockValue load : masks.finite())
    if (kernel.ops[static_cast<size_t>(load)].map()[static_cast<size_t>(along)] >= 0 ||
        !sums_of_products(kernel.ops, load))
      return false;
  Coordinates at{};
  int64_t& block = at[static_cast<size_t>(along)];
  const int64_t blocks = kernel.grid[static_cast<size_t>(along)];
  for (int64_t iteration = 0; iteration < kernel.trip_count; ++iteration) {
    at[kGridAxes] = iteration;
    int64_t tried = 0;  // begins with the block that had the iteration before
    while (tried < blocks && !masks.unmasked(at).possible) {
      block = (block + 1) % blocks;
      ++tried;
    }
    if (tried == blocks) return false;
  }
  return true;
}

UnevenAxis uneven_axis(const MuGraph& mugraph, const MuKernel& kernel) {
  constexpr double kEven = 0.2;
  UnevenAxis out;
  double most = kEven;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t extent = kernel.grid[static_cast<size_t>(axis)];
    if (extent == 1) continue;
    const double grows = share(mugraph, kernel, axis, extent - 1).mean - share(mugraph, kernel, axis, 0).mean;
    if (std::abs(grows) <= most) continue;
    most = std::abs(grows);
    out = {axis, grows > 0};
  }
  return out;
}

}  // namespace quern
