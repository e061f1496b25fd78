#include "core/schedule/tile_work.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "core/base/wgmma.h"

namespace quern {

namespace {

constexpr int64_t kLanes = 32;
constexpr int kLaneBits = 5;
constexpr int64_t kFragmentRows = 16, kInner = 16;  // of mma.sync
constexpr double kVectorBytes = 16;

bool contains(const Ints& axes, size_t dim) {
  return std::find(axes.begin(), axes.end(), static_cast<int64_t>(dim)) != axes.end();
}

int bits_of(int64_t count) { return std::bit_width(static_cast<uint64_t>(count)) - 1; }

}  // namespace

int64_t padded(int64_t extent) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(extent, 1))));
}

ProductParts product_parts(int64_t rows, int64_t inner, int64_t inner_least,
                           const std::array<int, 3>& warps) {
  ProductParts parts;
  parts.m = std::clamp<int64_t>(padded(rows) / kFragmentRows, 1, warps[0]);
  parts.k = std::clamp<int64_t>(padded(inner) / inner_least, 1, warps[2]);
  parts.n = int64_t{warps[0]} * warps[1] * warps[2] / (parts.m * parts.k);
  return parts;
}

ProductParts warpgroup_parts(const WarpgroupTile& tile, int m_warps, int n_warps, int all_warps) {
  ProductParts parts;
  if (all_warps == 12) return {3, 1, 1};  // of which each has a third of the rows
  for (int64_t position = 4; position < all_warps; position *= 2) {
    const bool is_m = position < m_warps, inner = position >= int64_t{m_warps} * n_warps;
    if (is_m && tile.m / parts.m > kWgmmaRows)
      parts.m *= 2;
    else if (!is_m && inner && tile.k / parts.k > kInner)
      parts.k *= 2;
    else if (tile.n / parts.n > tile.least_n)
      parts.n *= 2;
  }
  return parts;
}

int FmaTile::loads() const {
  const int a = a_by_inner ? m_registers : m_registers - m_vector + group,
            b = b_by_inner ? n_registers : n_registers - n_vector + group;
  return (1 << a) + (1 << b);
}

int FmaTile::operand_registers() const {
  return (1 << (m_registers + (a_by_inner ? group : 0))) + (1 << (n_registers + (b_by_inner ? group : 0)));
}

// Lanes are shared by rows and columns so that all have work of their own, with few loads; then with few
// registers.
FmaTile fma_tile(int64_t rows, int64_t columns, int64_t inner, const FmaOperand& a, const FmaOperand& b,
                 const std::array<int, 3>& warps) {
  const int m_bits = bits_of(padded(rows)), n_bits = bits_of(padded(columns)),
            k_bits = bits_of(padded(inner));
  const int all = bits_of(int64_t{warps[0]} * warps[1] * warps[2]);
  FmaTile tile;
  tile.a_by_inner = a.by_inner;
  tile.b_by_inner = b.by_inner;
  tile.m_warps = std::min(bits_of(warps[0]), m_bits);
  tile.k_warps = std::min(bits_of(warps[2]), k_bits);
  tile.n_warps = std::min(all - tile.m_warps - tile.k_warps, n_bits);
  tile.m_warps = std::min(all - tile.n_warps - tile.k_warps, m_bits);
  const int m_left = m_bits - tile.m_warps, n_left = n_bits - tile.n_warps, k_left = k_bits - tile.k_warps;
  tile.group = std::min(k_left, std::max(a.by_inner ? a.vector : 0, b.by_inner ? b.vector : 0));
  tile.groups = k_left - tile.group;
  std::optional<std::array<int, 3>> least;
  const FmaTile shared = tile;
  for (int m_vector = a.by_inner ? 0 : std::min(a.vector, m_left); m_vector >= 0; --m_vector)
    for (int n_vector = b.by_inner ? 0 : std::min(b.vector, n_left); n_vector >= 0; --n_vector)
      for (int m_lanes = 0; m_lanes <= std::min(kLaneBits, m_left - m_vector); ++m_lanes) {
        FmaTile each = shared;
        each.m_vector = m_vector;
        each.n_vector = n_vector;
        each.m_lanes = m_lanes;
        each.n_lanes = std::min(kLaneBits - m_lanes, n_left - n_vector);
        each.m_registers = m_left - each.m_lanes;
        each.n_registers = n_left - each.n_lanes;
        const std::array<int, 3> cost = {-(each.m_lanes + each.n_lanes), each.loads(),
                                         each.operand_registers()};
        if (least && *least <= cost) continue;
        least = cost;
        tile = each;
      }
  return tile;
}

ReducedParts reduced_parts(const Ints& shape, const Ints& axes, int64_t element_bytes, int warps,
                           int row_warps) {
  std::vector<bool> reduced;  // bits of a position in the tile, the fastest first
  for (size_t d = shape.size(); d-- > 0;)
    reduced.resize(reduced.size() + static_cast<size_t>(bits_of(padded(shape[d]))), contains(axes, d));
  const int all = static_cast<int>(reduced.size()), warp_bits = bits_of(warps);
  const int vector =
      std::clamp(all - kLaneBits - warp_bits, 0, bits_of(static_cast<int64_t>(kVectorBytes) / element_bytes));
  const int lanes_end = vector + kLaneBits, warps_end = lanes_end + warp_bits;
  const int inner = shape.empty() ? 0 : bits_of(padded(shape.back())),
            row_bits = std::min(bits_of(row_warps), all - inner);
  if (const int first = warps_end - row_bits; first < inner)
    std::rotate(reduced.begin() + first, reduced.begin() + inner, reduced.begin() + inner + row_bits);
  ReducedParts parts;
  for (int bit = 0; bit < all; ++bit) {
    const bool own = reduced[static_cast<size_t>(bit)];
    if (bit < vector || bit >= warps_end)
      parts.values *= own ? 1 : 2;
    else if (bit < lanes_end)
      parts.lane_bits += own;
    else
      parts.across_warps |= own;
  }
  return parts;
}

// A fragment has 8 rows of 4 lanes with two columns each.
ReducedParts reduced_product_parts(const Ints& shape, const Ints& axes, const std::array<int, 3>& warps) {
  const bool rows = contains(axes, shape.size() - 2), columns = contains(axes, shape.size() - 1);
  ReducedParts parts;
  parts.lane_bits = 3 * rows + 2 * columns;
  parts.across_warps = (rows && warps[0] > 1) || (columns && warps[1] > 1);
  double copies = 1 << parts.lane_bits, elements = 1;
  if (rows) copies *= warps[0];
  if (columns) copies *= warps[1];
  for (size_t d = 0; d < shape.size(); ++d)
    if (!contains(axes, d)) elements *= static_cast<double>(padded(shape[d]));
  parts.values = std::max(1.0, elements * copies / (kLanes * warps[0] * warps[1] * warps[2]));
  return parts;
}

}  // namespace quern
