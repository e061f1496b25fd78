#include "core/schedule/schedule_choices.h"

#include <algorithm>

#include "core/base/integers.h"
#include "core/mugraph/narrow.h"

namespace quern {

namespace {

constexpr int64_t kPortableCluster = 8;  // blocks that every device with clusters allows

}  // namespace

KernelShape shape_of(const MuKernel& kernel) {
  KernelShape out;
  const std::vector<Stage> stages = block_stages(kernel);
  out.stores_in_loop = stores_in_loop(kernel.ops);
  std::vector<bool> made_of_products(kernel.ops.size());  // in the loop
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    out.chained |= op.is_accumulate(Combine::rescaled_sum);
    const bool of_products = stages[i] == Stage::loop &&
                             std::any_of(op.operands.begin(), op.operands.end(), [&](BlockValue operand) {
                               return made_of_products[static_cast<size_t>(operand)];
                             });
    made_of_products[i] = of_products || (stages[i] == Stage::loop && op.is_compute(OpKind::contraction));
    out.of_products |= of_products && op.is_compute(OpKind::contraction);
    if ((op.is_compute(OpKind::reduction) || op.is_compute(OpKind::composite)) && op.attrs().axis) {
      const TensorType& from = kernel.ops[static_cast<size_t>(op.operands[0])].type;
      const Ints& axes = *op.attrs().axis;
      if (std::find(axes.begin(), axes.end(), int64_t{from.rank()} - 1) != axes.end())
        out.summed_rows =
            std::max(out.summed_rows, from.element_count() / std::max<int64_t>(1, from.shape.back()));
    }
    if (!op.is_compute(OpCode::matmul) || op.type.rank() < 2) continue;
    if (stages[i] != Stage::loop && kernel.trip_count > 1) continue;
    const Ints& left = kernel.ops[static_cast<size_t>(op.operands[0])].type.shape;
    const Ints& own = op.type.shape;
    out.product = true;
    out.narrow |= tensor_core_dtype(kernel.ops, static_cast<BlockValue>(i), false).has_value();
    out.rows = std::max(out.rows, own[own.size() - 2]);
    out.columns = std::max(out.columns, own.back());
    out.inner = std::max(out.inner, left.back());
  }
  return out;
}

int64_t extent_or_none(const MuGraph& mugraph, const MuKernel& kernel, int axis) {
  const auto extent = cut_extent(mugraph, kernel, axis);
  return extent ? *extent : 0;
}

std::vector<WarpCounts> warp_choices(const KernelShape& shape) {
  std::vector<WarpCounts> out;
  if (!shape.product) {
    for (int rows = 1; rows <= std::min<int64_t>(8, shape.summed_rows); rows *= 2)
      for (int all : {2, 4, 8, 16})
        if (rows <= all) out.push_back({rows, 1, all / rows});
    return out;
  }
  for (int m : {1, 2, 4, 8})
    for (int n : {1, 2, 4})
      for (int k : {1, 2, 4, 8, 16}) {
        if (m * n * k > 16 || m * n * k < 2) continue;
        if (m > 1 && shape.rows < 16 * m) continue;
        if (n > 1 && shape.columns < 16 * n) continue;
        if (shape.chained && (n > 1 || k > 1)) continue;
        out.push_back({m, n, k});
      }
  if (out.empty()) out.push_back({1, 1, 2});
  return out;
}

std::vector<TileExtents> tile_choices(const MuGraph& mugraph, const MuKernel& kernel,
                                      const KernelShape& shape) {
  TileExtents base{};
  std::array<int64_t, 3> extents;
  auto tile_of = [&](size_t axis, int64_t parts) {
    const int64_t tile = round_tile(extents[axis], parts);
    return parts == kernel.grid[axis] && tile == divide_up(extents[axis], parts) ? 0 : tile;
  };
  for (size_t axis = 0; axis < base.size(); ++axis) {
    extents[axis] = extent_or_none(mugraph, kernel, static_cast<int>(axis));
    if (extents[axis] > 0) base[axis] = tile_of(axis, kernel.grid[axis]);
  }
  std::vector<TileExtents> tiles = {TileExtents{}};
  if (base != tiles[0]) tiles.push_back(base);
  for (size_t axis = 0; axis < base.size(); ++axis) {
    const int64_t own = kernel.grid[axis];
    for (int64_t parts : {own / 4, own / 2, own * 2, own * 4, own * 8}) {
      if (parts < 1 || parts > extents[axis]) continue;
      tiles.push_back(base);
      tiles.back()[axis] = tile_of(axis, parts);
    }
  }
  if (!shape.product || shape.narrow) return tiles;
  // Register tiles are of powers of two along rows and columns, whatever the muGraph has.
  for (int64_t x : {32, 64, 128, 256})
    for (int64_t y : {32, 64, 128, 256}) {
      if (x >= 2 * extents[0] || y >= 2 * extents[1] || x * y < 2048 || x * y > 32768) continue;
      tiles.push_back(base);
      tiles.back()[0] = x;
      tiles.back()[1] = y;
    }
  return tiles;
}

std::vector<int64_t> tile_k_choices(const MuKernel& kernel, const KernelShape& shape,
                                    const KernelSchedule& schedule, int64_t cut_by_loop) {
  std::vector<int64_t> counts = {kernel.trip_count}, tiles = {0};
  if (cut_by_loop > 0 && shape.product)
    for (int64_t tile : {32, 64, 128})
      counts.push_back(divide_up(cut_by_loop, tile * (shape.chained ? 1 : schedule.warps[2])));
  if (cut_by_loop > 0 && shape.stores_in_loop)
    for (int64_t tile : {1, 2, 4, 8, 16}) counts.push_back(divide_up(cut_by_loop, tile));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  for (int64_t count : counts) {
    if (cut_by_loop == 0) break;
    const int64_t tile = round_tile(cut_by_loop, count);
    if (count != kernel.trip_count || tile != divide_up(cut_by_loop, count)) tiles.push_back(tile);
  }
  return tiles;
}

std::vector<int64_t> cluster_choices(const MuKernel& kernel, const KernelShape& shape, const Target& target) {
  const int64_t own = kernel.grid[3];
  std::vector<int64_t> out = {0};
  if (own == 1 || !shape.product || shape.narrow) return out;
  for (int64_t blocks : {own / 2, own * 2})
    if (blocks > 1 && blocks <= std::min<int64_t>(target.max_cluster, kPortableCluster))
      out.push_back(blocks);
  return out;
}

}  // namespace quern
