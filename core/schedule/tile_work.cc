#include "core/schedule/tile_work.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace quern {

namespace {

constexpr int64_t kLanes = 32;
constexpr int kLaneBits = 5;
constexpr int64_t kFragmentRows = 16, kWgmmaRows = 64, kInner = 16;  // of mma.sync, and of wgmma
constexpr double kBanks = 32, kVectorBytes = 16;
constexpr double kStepOverhead = 3;  // the counter, its comparison and the jump

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

// A thread has vectors along the columns. For each it takes one of the right operand, and for each of its
// rows one element of the left one; rows of a warp whose distance is a multiple of the banks come one by one.
StepWork step_work(int64_t rows, int64_t columns, int64_t inner, double elements, int threads) {
  const double held = std::max(1.0, elements / threads), across = static_cast<double>(padded(columns));
  const double vector = std::min({kVectorBytes / 4, static_cast<double>(columns & -columns), held});
  const double warp_rows =
      std::clamp(kLanes * vector / across, 1.0, std::min<double>(kLanes, static_cast<double>(padded(rows))));
  const double conflict = std::max(1.0, warp_rows * static_cast<double>(std::gcd(inner, kLanes)) / kBanks);
  // Where single columns may be missing, nothing is taken together with its neighbours.
  const bool ragged = padded(columns) != columns && vector > 1;
  const double left = ragged ? held : held / vector, right = ragged ? held : 1;
  const double right_wavefronts = ragged ? held * std::clamp(across / kBanks, 1.0, vector) : vector;
  return {held + left + right + kStepOverhead, left * conflict + right_wavefronts};
}

ReducedParts reduced_parts(const Ints& shape, const Ints& axes, int64_t element_bytes, int warps) {
  std::vector<bool> reduced;  // bits of a position in the tile, the fastest first
  for (size_t d = shape.size(); d-- > 0;)
    reduced.resize(reduced.size() + static_cast<size_t>(bits_of(padded(shape[d]))), contains(axes, d));
  const int all = static_cast<int>(reduced.size()), warp_bits = bits_of(warps);
  const int vector =
      std::clamp(all - kLaneBits - warp_bits, 0, bits_of(static_cast<int64_t>(kVectorBytes) / element_bytes));
  const int lanes_end = vector + kLaneBits, warps_end = lanes_end + warp_bits;
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
