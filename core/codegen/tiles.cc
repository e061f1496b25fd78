#include "core/codegen/tiles.h"

#include <algorithm>

#include "core/base/integers.h"

namespace quern {

namespace {

constexpr int64_t kWantedBlocks = 256;       // about two for each SM of a large GPU
constexpr int64_t kWantedThreads = 65536;    // that read columns
constexpr int64_t kGoodRowBytes = 72 << 10;  // of a row in a block: three blocks an SM
constexpr int64_t kScratchBytes = 4 << 10;   // what else such a block keeps there
constexpr int kPortableCluster = 8;          // blocks that every device with clusters allows
// Of k in one part, on tensor cores and without: below, the sum over the parts costs more than it saves.
constexpr int64_t kMinDepth = 256, kMinFmaDepth = 192;

}  // namespace

Tile choose_tile(int64_t m, int64_t n, ProductUnit unit) {
  if (unit == ProductUnit::simt) return m <= 16 ? Tile{16, 64, 16, 1, 4, 1} : Tile{64, 64, 16, 2, 4, 1};
  if (unit == ProductUnit::fma) {
    if (m <= 16) return {16, 64, 16, 1, 2, 4, 4, 4};
    // Sixteen columns a thread need no more loads than eight, but blocks for all SMs.
    if (m >= 512 && n >= 512 && m * n >= kWantedBlocks * 3 / 2 * (128 * 64)) return {128, 64, 16, 2, 1, 3, 8, 16};
    if (m >= 512 && n >= 512) return {128, 64, 16, 2, 2, 3, 8, 8};
    return {64, 64, 16, 2, 2, 3, 8, 4};
  }
  if (m <= 16) return {16, 128, 32, 1, 4, 3};
  if (m <= 32) return {32, 128, 32, 1, 4, 3};
  if (m >= 512 && n >= 512) return {128, 64, 32, 2, 2, 3};
  return {64, 64, 32, 2, 2, 3};
}

int64_t matmul_parts(const Tile& tile, ProductUnit unit, int64_t batch, int64_t m, int64_t n, int64_t k) {
  const int64_t blocks = batch * divide_up(m, tile.rows) * divide_up(n, tile.columns);
  // Parts of k begin where copies of 16 bytes may.
  const int64_t unit_depth = unit == ProductUnit::mma ? 8 : 2;
  const int64_t least = unit == ProductUnit::fma ? kMinFmaDepth : kMinDepth;
  int64_t parts = 1;
  while (blocks * parts < kWantedBlocks && k % (parts * 2 * unit_depth) == 0 && k / (parts * 2) >= least)
    parts *= 2;
  return parts;
}

int most_row_blocks(const Target& target) { return std::min(kPortableCluster, target.max_cluster); }

int row_cluster(const Target& target, int64_t bytes) {
  const int most = most_row_blocks(target);
  for (int blocks = 1; blocks <= most; blocks *= 2) {
    // Several blocks an SM, so that one loads while another computes, as long as more blocks can be had.
    const bool last = blocks * 2 > most;
    const int64_t room = last ? target.shared_bytes_per_block - kScratchBytes : kGoodRowBytes;
    if (divide_up(bytes, blocks) <= room) return blocks;
  }
  return 0;
}

bool reduces_neighbours(const Ints& shape, const Ints& axes) {
  size_t inner = shape.size();
  while (inner > 0 && shape[inner - 1] == 1) --inner;
  return inner > 0 && std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(inner) - 1);
}

bool keeps_row(const Target& target, const Ints& shape, const Ints& axes) {
  int64_t length = 1;
  for (int64_t axis : axes) length *= shape[static_cast<size_t>(axis)];
  return reduces_neighbours(shape, axes) && row_cluster(target, length * 4) > 0;
}

int64_t reduction_parts(int64_t rows, int64_t length, bool neighbours) {
  int64_t parts = 1;
  if (!neighbours && length >= 512)  // a thread has a row
    while (rows * parts < kWantedThreads && length / (parts * 2) >= 32) parts *= 2;
  if (!neighbours || rows >= 128 || length < 16384) return parts;
  parts = 2;
  while (rows * parts < kWantedBlocks && length / (parts * 2) >= 2048) parts *= 2;
  return parts;
}

}  // namespace quern
