// A tiled product of f16 or bf16 matrices with a ring of two cp.async stages, ldmatrix and mma, written by
// hand: what the emulator must run right, and what a GPU computes too. Used by tests.
#pragma once

#include <string>

namespace quern::emulated {

// c (f32, m x n) = a (m x k) * b (k x n), all dense; k and n multiples of 8, m any. Blocks of 64 threads make
// 32 x 32 tiles; each of the two warps makes 16 rows. Parameters: a, b, c, m, n, k. `element` is "f16" or
// "bf16".
inline std::string matmul_kernel(const std::string& element) {
  return "using Element = " + element + ";" + R"(
// One 32 x 32 tile of `from` (rows x columns), zeros outside, into a shared tile with rows of kStride elements.
constexpr int kTile = 32, kStride = kTile + 8;
__device__ __forceinline__ void copy_tile(Element* to, const Element* from, long long rows, long long columns,
                                          long long row, long long column) {
  for (int chunk = threadIdx.x; chunk < kTile * kTile / 8; chunk += 64) {
    int r = chunk / 4, c = chunk % 4 * 8;
    bool inside = row + r < rows && column + c < columns;
    const Element* source = inside ? from + (row + r) * columns + column + c : from;
    cp_async<16>(to + r * kStride + c, source, inside ? 16 : 0);
  }
}

extern "C" __global__ void __launch_bounds__(64) kernel(const Element* __restrict__ a, const Element* __restrict__ b,
                                                        float* __restrict__ c, long long m, long long n, long long k) {
  __shared__ __align__(16) Element tile_a[2][kTile * kStride], tile_b[2][kTile * kStride];
  long long row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  int warp = threadIdx.x / 32, lane = lane_index();
  float sum[4][4] = {};
  int steps = int((k + kTile - 1) / kTile);
  copy_tile(tile_a[0], a, m, k, row, 0);
  copy_tile(tile_b[0], b, k, n, 0, column);
  cp_async_commit();
  for (int step = 0; step < steps; ++step) {
    int now = step % 2;
    if (step + 1 < steps) {
      copy_tile(tile_a[1 - now], a, m, k, row, (step + 1) * kTile);
      copy_tile(tile_b[1 - now], b, k, n, (step + 1) * kTile, column);
    }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int inner = 0; inner < kTile; inner += 16) {
      unsigned fragment_a[4], fragment_b[2];
      ldmatrix<4>(fragment_a, tile_a[now] + (warp * 16 + lane % 16) * kStride + inner + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        ldmatrix_trans<2>(fragment_b, tile_b[now] + (inner + lane % 16) * kStride + j * 8);
        mma_m16n8k16<Element>(sum[j], fragment_a, fragment_b);
      }
    }
    __syncthreads();
  }
  cp_async_wait<0>();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    long long at = column + j * 8 + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      long long r = row + warp * 16 + lane / 4 + half * 8;
      if (r < m && at < n) store_vector<float, 2>(c + r * n + at, {sum[j][2 * half], sum[j][2 * half + 1]});
    }
  }
}
)";
}

}  // namespace quern::emulated
