#include "core/schedule/uneven_tiles.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/integers.h"
#include "core/schedule/tile_access.h"
#include "core/schedule/tile_work.h"

namespace quern {

namespace {

constexpr size_t kMost = 4;
// Elements: smaller tiles do not keep tensor cores busy, and for larger ones there are no registers.
constexpr int64_t kLeastEven = 128 * 128, kMostEven = 128 * 256, kLeastUneven = 64 * 192,
                  kMostUneven = 256 * 160;
constexpr int64_t kRows = 64, kMostRows = 256;  // of a warpgroup; of a block

struct Tile {
  int64_t rows, columns;
  int64_t elements() const { return rows * columns; }
};

// The axes of the grid that cut rows and columns of a product of the loop, the other way round where it is stored transposed.
struct ProductAxes {
  size_t rows, columns;
  bool turned;
};

std::optional<size_t> cutting_axis(const BlockOp& load, int dim) {
  for (size_t axis = 0; axis < TileExtents().size(); ++axis)
    if (load.map()[axis] == dim) return axis;
  return std::nullopt;
}

std::optional<ProductAxes> product_axes(const MuKernel& kernel) {
  for (const BlockOp& op : kernel.ops) {
    if (!op.is_compute(OpCode::matmul)) continue;
    const BlockOp &left = kernel.ops[static_cast<size_t>(op.operands[0])],
                  &right = kernel.ops[static_cast<size_t>(op.operands[1])];
    if (!left.is_load() || !right.is_load() || left.loop_dim() < 0 || right.loop_dim() < 0) continue;
    const auto rows = cutting_axis(left, left.type.rank() - 2),
               columns = cutting_axis(right, right.type.rank() - 1);
    if (!rows || !columns || rows == columns) continue;
    const bool turned = std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& other) {
      return is_turned_matrix(other) && !kernel.ops[static_cast<size_t>(other.operands[0])].is_load();
    });
    return turned ? ProductAxes{*columns, *rows, true} : ProductAxes{*rows, *columns, false};
  }
  return std::nullopt;
}

// Of the SM that has the most to do: elements that it computes, then what it loads for them.
using Work = std::pair<int64_t, double>;
Work work_of(const Tile& tile, const Tile& whole, int64_t batch, int sms) {
  const int64_t tiles = batch * divide_up(whole.rows, tile.rows) * divide_up(whole.columns, tile.columns);
  const int64_t elements = divide_up(tiles, sms) * tile.elements();
  return {elements, static_cast<double>(elements) *
                        (1 / static_cast<double>(tile.rows) + 1 / static_cast<double>(tile.columns))};
}

}  // namespace

std::vector<UnevenTile> uneven_tiles(const MuGraph& mugraph, const MuKernel& kernel, const Target& target) {
  const auto axes = product_axes(kernel);
  if (!axes || !target.wgmma) return {};
  const auto rows = cut_extent(mugraph, kernel, static_cast<int>(axes->rows)),
             columns = cut_extent(mugraph, kernel, static_cast<int>(axes->columns));
  if (!rows || !columns) return {};
  const Tile whole{*rows, *columns};
  const int64_t batch = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] /
                        (kernel.grid[axes->rows] * kernel.grid[axes->columns]);
  auto work = [&](const Tile& tile) { return work_of(tile, whole, batch, target.sms); };
  int64_t least_even = std::numeric_limits<int64_t>::max();
  std::vector<std::pair<Work, Tile>> uneven;
  for (int64_t r = kRows; r <= std::min<int64_t>(kMostRows, whole.rows); r += kRows)
    for (int64_t c = 64; c <= std::min<int64_t>(256, whole.columns); c += 32) {
      const Tile tile{r, c};
      const bool even = padded(r) == r && padded(c) == c;
      if (even && tile.elements() >= kLeastEven && tile.elements() <= kMostEven)
        least_even = std::min(least_even, work(tile).first);
      if (!even && tile.elements() >= kLeastUneven && tile.elements() <= kMostUneven)
        uneven.push_back({work(tile), tile});
    }
  std::erase_if(uneven, [&](const auto& each) { return each.first.first >= least_even; });
  std::sort(uneven.begin(), uneven.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  uneven.resize(std::min(uneven.size(), kMost));
  std::vector<UnevenTile> out;
  for (const auto& [_, tile] : uneven) {
    UnevenTile& each = out.emplace_back();
    each.tile[axes->rows] = tile.rows;
    each.tile[axes->columns] = tile.columns;
    each.warps = {1, 1, 1};
    each.warps[axes->turned ? 1 : 0] = static_cast<int>(tile.rows / kRows) * 4;
  }
  return out;
}

}  // namespace quern
