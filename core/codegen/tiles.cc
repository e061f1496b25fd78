#include "core/codegen/tiles.h"

#include "core/base/integers.h"

namespace quern {

namespace {

constexpr int64_t kWantedBlocks = 256;  // about two for each SM of a large GPU
constexpr int64_t kMinDepth =
    256;  // of k in one part: below, the sum over the parts costs more than it saves

}  // namespace

Tile choose_tile(int64_t m, int64_t n, bool tensor_cores) {
  if (!tensor_cores) return m <= 16 ? Tile{16, 64, 16, 1, 4, 1} : Tile{64, 64, 16, 2, 4, 1};
  if (m <= 16) return {16, 128, 32, 1, 4, 3};
  if (m <= 32) return {32, 128, 32, 1, 4, 3};
  if (m >= 512 && n >= 512) return {128, 64, 32, 2, 2, 3};
  return {64, 64, 32, 2, 2, 3};
}

int64_t matmul_parts(const Tile& tile, int64_t batch, int64_t m, int64_t n, int64_t k) {
  const int64_t blocks = batch * divide_up(m, tile.rows) * divide_up(n, tile.columns);
  int64_t parts = 1;
  while (blocks * parts < kWantedBlocks && k % (parts * 2 * 8) == 0 && k / (parts * 2) >= kMinDepth)
    parts *= 2;
  return parts;
}

int64_t reduction_parts(int64_t rows, int64_t length) {
  if (rows >= 128 || length < 16384) return 1;
  int64_t parts = 2;
  while (rows * parts < kWantedBlocks && length / (parts * 2) >= 2048) parts *= 2;
  return parts;
}

}  // namespace quern
