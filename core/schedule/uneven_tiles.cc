#include "core/schedule/uneven_tiles.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <type_traits>

#include "core/base/integers.h"
#include "core/schedule/tile_access.h"
#include "core/schedule/tile_work.h"

namespace quern {

namespace {

constexpr size_t kMost = 4;
// Elements: smaller tiles do not keep tensor cores busy, and for larger ones there are no registers.
constexpr int64_t kLeastEven = 128 * 128, kMostEven = 128 * 256, kLeastUneven = 64 * 160,
                  kMostUneven = 256 * 160;
constexpr double kLess = 0.95;                  // of what even tiles leave to the busiest SM
constexpr int64_t kRows = 64, kMostRows = 256;  // of a warpgroup; of a block
constexpr int64_t kLeastColumns = 64, kMostColumns = 256;

struct Tile {
  int64_t rows, columns;
  int64_t elements() const { return rows * columns; }
};

// An axis of the grid that cuts an operand of a product of the loop, along which the result has rows or columns; and what
// columns of wgmma along it are whole parts of.
struct ProductAxis {
  size_t axis;
  int64_t unit;
};

std::optional<ProductAxis> cutting_axis(const MuGraph& mugraph, const BlockOp& load, int dim) {
  for (size_t axis = 0; axis < TileExtents().size(); ++axis)
    if (load.map()[axis] == dim)
      return ProductAxis{axis, unpadded_unit(load, dense_place(mugraph, load.tensor()), dim)};
  return std::nullopt;
}

// Of the first product of what is loaded, on the right in the loop, for which `find(left, right)` finds something: that.
template <class Find>
auto of_first_product(const MuKernel& kernel, const Find& find) {
  std::invoke_result_t<Find, const BlockOp&, const BlockOp&> found;
  for (const BlockOp& op : kernel.ops) {
    if (!op.is_compute(OpCode::matmul)) continue;
    const BlockOp &left = kernel.ops[static_cast<size_t>(op.operands[0])],
                  &right = kernel.ops[static_cast<size_t>(op.operands[1])];
    if (left.is_load() && right.is_load() && left.type.rank() >= 2 && right.loop_dim() >= 0)
      found = find(left, right);
    if (found) break;
  }
  return found;
}

// Along rows and columns, of a product that is stored transposed too.
struct ProductAxes {
  ProductAxis rows, columns;
};

std::optional<ProductAxes> product_axes(const MuGraph& mugraph, const MuKernel& kernel) {
  return of_first_product(kernel,
                          [&](const BlockOp& left, const BlockOp& right) -> std::optional<ProductAxes> {
                            if (left.loop_dim() < 0) return std::nullopt;
                            const auto rows = cutting_axis(mugraph, left, left.type.rank() - 2),
                                       columns = cutting_axis(mugraph, right, right.type.rank() - 1);
                            if (!rows || !columns || rows->axis == columns->axis) return std::nullopt;
                            return ProductAxes{*rows, *columns};
                          });
}

// Of the SM that has the most to do: elements that it computes, then what it loads for them.
using Work = std::pair<int64_t, double>;
Work work_of(const Tile& tile, const Tile& whole, int64_t batch, int sms) {
  const int64_t tiles = batch * divide_up(whole.rows, tile.rows) * divide_up(whole.columns, tile.columns);
  const int64_t elements = divide_up(tiles, sms) * tile.elements();
  return {elements, static_cast<double>(elements) *
                        (1 / static_cast<double>(tile.rows) + 1 / static_cast<double>(tile.columns))};
}

// Columns of tiles: powers of two, and what cuts `whole` into equal parts, in whole units.
std::set<int64_t> column_choices(int64_t whole, int64_t unit) {
  std::set<int64_t> out;
  for (int64_t power = kLeastColumns; power <= kMostColumns; power *= 2) out.insert(power);
  for (int64_t parts = divide_up(whole, kMostColumns); divide_up(whole, parts) >= kLeastColumns; ++parts)
    out.insert(round_up(divide_up(whole, parts), unit));
  out.erase(out.upper_bound(whole), out.end());
  return out;
}

// The axis that cuts columns of a product in the loop, of whose rows, those of one warpgroup, each block has all.
std::optional<ProductAxis> axis_of_columns(const MuGraph& mugraph, const MuKernel& kernel) {
  return of_first_product(kernel,
                          [&](const BlockOp& left, const BlockOp& right) -> std::optional<ProductAxis> {
                            const Ints& shape = left.type.shape;
                            const int64_t rows = shape[shape.size() - 2];
                            if (left.loop_dim() < 0 || left.type.element_count() != rows * shape.back() ||
                                padded(rows) != kRows || cutting_axis(mugraph, left, left.type.rank() - 2))
                              return std::nullopt;
                            return cutting_axis(mugraph, right, right.type.rank() - 1);
                          });
}

// Of a product whose rows each block has all of: columns with which about as many blocks as there are SMs ask for the weights,
// where powers of two leave more SMs idle.
std::vector<UnevenTile> of_few_rows(const MuGraph& mugraph, const MuKernel& kernel, const Target& target) {
  constexpr double kMore = 1.1;  // blocks
  const auto axis = axis_of_columns(mugraph, kernel);
  if (!axis) return {};
  const auto columns = cut_extent(mugraph, kernel, static_cast<int>(axis->axis));
  if (!columns) return {};
  int64_t others = 1;  // blocks of each tile
  for (size_t i = 0; i < kernel.grid.size(); ++i)
    if (i != axis->axis) others *= kernel.grid[i];
  if (others > target.sms) return {};
  auto at_once = [&](int64_t tile) {
    const int64_t blocks = others * divide_up(*columns, tile);
    return blocks <= target.sms ? blocks : 0;
  };
  int64_t even = 0;
  for (int64_t tile = kLeastColumns; tile <= 2 * kMostColumns; tile *= 2)
    even = std::max(even, at_once(tile));
  const int64_t tile = round_up(divide_up(*columns, target.sms / others), axis->unit);
  if (padded(tile) == tile || tile < kLeastColumns || tile > kMostColumns ||
      static_cast<double>(at_once(tile)) < kMore * static_cast<double>(even))
    return {};
  UnevenTile out;
  out.tile[axis->axis] = tile;
  out.warps = {4, 1, 1};
  return {out};
}

// The axis that cuts the rows of a product in the loop which are loaded once, in front of it: queries.
std::optional<ProductAxis> axis_of_kept_rows(const MuGraph& mugraph, const MuKernel& kernel) {
  return of_first_product(kernel, [&](const BlockOp& left, const BlockOp&) -> std::optional<ProductAxis> {
    if (left.loop_dim() >= 0) return std::nullopt;
    return cutting_axis(mugraph, left, left.type.rank() - 2);
  });
}

// Three warpgroups, each with 64 of the rows, where few of all rows are beyond the end. They hide more of each other's softmax than
// two do (heads of 64, H200: 800 cycles for 64 rows by 128 keys, two 935 to 1,030; docs/results/bars-h200.md).
std::vector<UnevenTile> of_three_warpgroups(const MuGraph& mugraph, const MuKernel& kernel) {
  constexpr int64_t kThree = 3 * kRows;
  constexpr double kMostBeyond = 0.1;  // of the rows
  const auto axis = axis_of_kept_rows(mugraph, kernel);
  if (!axis) return {};
  const auto rows = cut_extent(mugraph, kernel, static_cast<int>(axis->axis));
  if (!rows || static_cast<double>(round_up(*rows, kThree)) > (1 + kMostBeyond) * static_cast<double>(*rows))
    return {};
  UnevenTile out;
  out.tile[axis->axis] = kThree;
  out.warps = {12, 1, 1};
  return {out};
}

}  // namespace

std::vector<UnevenTile> uneven_tiles(const MuGraph& mugraph, const MuKernel& kernel, const Target& target) {
  if (!target.wgmma) return {};
  const auto axes = product_axes(mugraph, kernel);
  if (!axes) {
    const std::vector<UnevenTile> few = of_few_rows(mugraph, kernel, target);
    return few.empty() ? of_three_warpgroups(mugraph, kernel) : few;
  }
  const auto row_extent = cut_extent(mugraph, kernel, static_cast<int>(axes->rows.axis)),
             column_extent = cut_extent(mugraph, kernel, static_cast<int>(axes->columns.axis));
  if (!row_extent || !column_extent) return {};
  const int64_t batch = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] /
                        (kernel.grid[axes->rows.axis] * kernel.grid[axes->columns.axis]);
  int64_t least_even = std::numeric_limits<int64_t>::max();
  struct Choice {
    Work work;
    Tile tile;
    bool swapped;  // columns of the result are rows of wgmma
  };
  std::vector<Choice> uneven;
  for (const bool swapped : {false, true}) {
    const ProductAxis& across = swapped ? axes->rows : axes->columns;
    const Tile whole = swapped ? Tile{*column_extent, *row_extent} : Tile{*row_extent, *column_extent};
    const std::set<int64_t> columns = column_choices(whole.columns, across.unit);
    for (int64_t r = kRows; r <= std::min<int64_t>(kMostRows, whole.rows); r += kRows)
      for (const int64_t c : columns) {
        const Tile tile{r, c};
        const Work work = work_of(tile, whole, batch, target.sms);
        const bool even = padded(r) == r && padded(c) == c;
        if (even && tile.elements() >= kLeastEven && tile.elements() <= kMostEven)
          least_even = std::min(least_even, work.first);
        if (!even && tile.elements() >= kLeastUneven && tile.elements() <= kMostUneven)
          uneven.push_back({work, tile, swapped});
      }
  }
  std::erase_if(uneven, [&](const Choice& each) {
    return static_cast<double>(each.work.first) > kLess * static_cast<double>(least_even);
  });
  std::stable_sort(uneven.begin(), uneven.end(),
                   [](const Choice& a, const Choice& b) { return a.work < b.work; });
  uneven.resize(std::min(uneven.size(), kMost));
  std::vector<UnevenTile> out;
  for (const auto& [_, tile, swapped] : uneven) {
    UnevenTile& each = out.emplace_back();
    each.tile[axes->rows.axis] = swapped ? tile.columns : tile.rows;
    each.tile[axes->columns.axis] = swapped ? tile.rows : tile.columns;
    each.warps = {1, 1, 1};
    each.warps[swapped ? 1 : 0] = static_cast<int>(tile.rows / kRows) * 4;
  }
  return out;
}

}  // namespace quern
