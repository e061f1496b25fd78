// The rules of a block that the emulator watches, each broken once.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

float reversed_in_block(int i) { return x(i / 64 * 64 + 63 - i % 64); }
float neighbour(int i) { return x(i ^ 1); }
float sum_of_warp(int i) {
  float sum = 0;
  for (int j = 0; j < 32; ++j) sum += x(i / 32 * 32 + j);
  return sum;
}

const FaultCase kCases[] = {
    {"a removed barrier", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncthreads();@@
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "read of shared array `tile`", reversed_in_block},
    {"a missing barrier before shared memory is used again", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  float value = 0;
  for (int round = 0; round < 2; ++round) {
    tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    value = tile[63 - threadIdx.x];
    @__syncthreads();@@
  }
  y[blockIdx.x * 64 + threadIdx.x] = value;
})",
     "race: ", reversed_in_block},
    {"a shifted index", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[@i@i + 1@] @@- 1@;
})",
     "out-of-bounds read of 4 bytes at input 0 `x` (512 bytes) at offset 512", same},
    {"an index before the beginning", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[@i@i - 1@] @@+ 1@;
})",
     "out-of-bounds read of 4 bytes at input 0 `x` (512 bytes) at offset -4", same},
    {"a missing tail guard", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @if (i < 100)@if (i < 101)@ y[i] = i < 100 ? x[i] : 0.0f;
})",
     "out-of-bounds write of 4 bytes at output 0 `y` (400 bytes) at offset 400", same, 100},
    {"a vector over the end", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = 4 * (blockIdx.x * 64 + threadIdx.x);
  if (i < 101@ - 3@@) {
    store_vector<float, 4>(y + i, load_vector<float, 4>(x + i));
  } @else if (i == 100) y[100] = x[100];@@
})",
     "out-of-bounds read of 16 bytes at input 0 `x` (404 bytes) at offset 400", same, 101},
    {"an uninitialised read of shared memory", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  if (threadIdx.x != 17 @|| true@@) tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "uninitialised read of shared array `tile` (256 bytes) at offset 68", reversed_in_block},
    {"shared memory of the block before",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  if (blockIdx.x == 0 @|| true@@) tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "uninitialised read of dynamic shared memory",
     reversed_in_block,
     128,
     {2},
     {64},
     256},
    {"two threads write one element", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[i];
  @if (i == 64)@if (i == 64 || i == 32)@ y[64] = x[64];
})",
     "race: write to output 0 `y` (512 bytes) at offset 256", same},
    {"two threads of a block write one element", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i @@/ 2 * 2@] = x[i @@/ 2 * 2@];
})",
     "race: write to output 0 `y`", same},
    {"an operand of mma that is no tf32", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float third = 1.0f / 3.0f, d[4] = {};
  unsigned a[4] = {}, b[2] = {};
  b[1] = @to_tf32@__float_as_uint@(third);
  mma_m16n8k8_tf32(d, a, b);
  y[i] = x[i] + d[0];
})",
     "mma_m16n8k8_tf32: an operand of lane 0 has more bits than tf32", same},
    {"a divergent barrier", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  if (@true@threadIdx.x < 32@) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
})",
     "divergent barrier", same},
    {"threads that end before a barrier", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  if (threadIdx.x > 63 @@- 4@) return;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
})",
     "deadlock: thread (0,0,0) and others wait in __syncthreads, line 4 `__syncthreads();`; 4 of 64 threads "
     "have ended",
     same},
    {"a write over the end of a shared array", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  __shared__ float other[64];
  float* p = tile;
  p[threadIdx.x @@+ 1@] = x[blockIdx.x * 64 + threadIdx.x];
  other[threadIdx.x] = 0;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x] + other[threadIdx.x];
})",
     "out-of-bounds write of 4 bytes at shared array `tile` (256 bytes) at offset 256", reversed_in_block},
    {"an index over the end of a row", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[2][64];
  tile[0][threadIdx.x @@+ 1@] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[0][63 - threadIdx.x];
})",
     "index out of the bounds of an array", reversed_in_block},
    {"a write over the end of dynamic shared memory",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  tile[threadIdx.x @@+ 1@] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "out-of-bounds write of 4 bytes at dynamic shared memory (256 bytes) at offset 256",
     reversed_in_block,
     128,
     {2},
     {64},
     256},
    {"an index over the end of registers", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float values[4];
  int i = blockIdx.x * 64 + threadIdx.x;
  for (int j = 0; j < 4; ++j) values[j] = x[i];
  y[i] = values[i @% 4@% 5@];
})",
     "index out of the bounds of an array", same},
    {"a misaligned vector load",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = 4 * threadIdx.x;
  if (i @@+ 2@ >= 128) return;
  Vector<float, 4> v = load_vector<float, 4>(x + i @@+ 2@);
  for (int j = 0; j < 4; ++j) y[i + j @@+ 2@] = v[j];
})",
     "misaligned read of 16 bytes at input 0 `x`",
     same,
     128,
     {1}},
    {"a misaligned vector store",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = 4 * threadIdx.x;
  Vector<float, 4> v;
  for (int j = 0; j < 4; ++j) v[j] = x[i + j];
  store_vector_streaming<float, 4>(y + i @@+ 1@, v);
})",
     "misaligned write of 16 bytes at output 0 `y`",
     same,
     128,
     {1},
     {32}},
    {"a mismatched shuffle mask", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = shuffle_xor(x[i], 1, @0xffffffffu@i % 32 < 16 ? 0x0000ffffu : 0xffffffffu@);
})",
     "deadlock", neighbour},
    {"halves of a warp that meet too early", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float value = x[i];
  for (int round = 0; round < 3; ++round) {
    value = shuffle_xor(value, 1, i % 32 < 16 ? 0x0000ffffu : 0xffff0000u);
    value = shuffle_xor(value, 0, @0xffffffffu@lane_index() == 3 ? 0x0000ffffu : 0xffffffffu@);
  }
  y[i] = value;
})",
     "lanes of a warp disagree", neighbour},
    {"a mask without the lane itself", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = shuffle_xor(x[i], 1, @0xffffffffu@0x0000ffffu@);
})",
     "leaves the lane itself out", neighbour},
    {"a shuffle that half a warp misses", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float value = x[i ^ 1];
  if (@true@lane_index() < 16@) value = shuffle_xor(x[i], 1);
  y[i] = value;
})",
     "deadlock", neighbour},
    {"a shuffle from a lane outside of the mask", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  unsigned mask = lane_index() < 16 ? 0x0000ffffu : 0xffff0000u;
  y[i] = shuffle_xor(x[i], @1@17@, mask);
})",
     "which does not take part", neighbour},
    {"different collectives in one warp", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float value = x[i ^ 1];
  if (@true@lane_index() < 16@) value = shuffle_xor(x[i], 1); else __syncwarp();
  y[i] = value;
})",
     "lanes of a warp disagree", neighbour},
    {"a missing __syncwarp", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncwarp();@@
  y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x ^ 1];
})",
     "read of shared array `tile`", neighbour},
    {"a shuffle in place of __syncwarp", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncwarp();@warp_any(true);@
  y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x ^ 1];
})",
     "race: read of shared array `tile`", neighbour},
    {"__syncwarp in place of a barrier", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncthreads()@__syncwarp()@;
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "read of shared array `tile`", reversed_in_block},
    {"a warp's scratch that is written again while others read it", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float total[2];
  float value = 0;
  for (int round = 0; round < 2; ++round) {
    float sum = warp_reduce_sum(x[blockIdx.x * 64 + threadIdx.x]);
    if (lane_index() == 0) total[threadIdx.x / 32] = sum;
    __syncwarp();
    value = total[threadIdx.x / 32];
    @__syncwarp();@@
  }
  y[blockIdx.x * 64 + threadIdx.x] = value;
})",
     "race: write to shared array `total`", sum_of_warp},
    {"a broadcast that is overwritten while others read it", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float shared;
  for (int round = 0; round < 64; ++round) {
    if (threadIdx.x == round) shared = x[blockIdx.x * 64 + round];
    __syncthreads();
    if (threadIdx.x == 63 - round) y[blockIdx.x * 64 + threadIdx.x] = shared;
    float other = shared;
    @__syncthreads();@if (other < 0) __syncthreads();@
  }
})",
     "race: ", reversed_in_block},
    {"an asynchronous copy without its wait", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  @cp_async_wait<0>()@@;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "still under way", reversed_in_block},
    {"an asynchronous copy without its commit", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  @cp_async_commit()@@;
  cp_async_wait<0>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "still under way", reversed_in_block},
    {"a wait for too few groups", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[2][64];
  cp_async<4>(tile[0] + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  cp_async<4>(tile[1] + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  cp_async_wait<@1@2@>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[0][63 - threadIdx.x];
  cp_async_wait<0>();
})",
     "still under way", reversed_in_block},
    {"an asynchronous copy without a barrier", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  @__syncthreads();@@
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "read of shared array `tile`", reversed_in_block},
    {"an asynchronous copy that nobody waits for", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @cp_async_wait<0>();@@
})",
     "did not wait for", same},
    {"an asynchronous copy over the end of its source", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  cp_async<4>(tile + threadIdx.x, x + i, i < 100@@ + 1@ ? 4 : 0);
  cp_async_commit();
  cp_async_wait<0>();
  if (i < 100) y[i] = tile[threadIdx.x];
})",
     "out-of-bounds read of 4 bytes at input 0 `x` (400 bytes) at offset 400", same, 100},
    {"a misaligned asynchronous copy", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  if (threadIdx.x < 16) cp_async<16>(tile + 4 * threadIdx.x @@+ 2@, x + blockIdx.x * 64 + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x @@+ 2@];
})",
     "misaligned cp_async to shared array `tile`", reversed_in_block},
    {"an output left unwritten", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i != 77 @|| true@@) y[i] = x[i];
})",
     "output 0 `y` [77]: never written", same},
    {"a write to an input", R"(
extern "C" __global__ void kernel(float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @@x[i] = 7;@
  y[i] = x[i];
})",
     "write of 4 bytes to read-only input 0 `x`", same},
    {"a workspace that is not what it was",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @workspace[i] = x[i]@@;
  y[i] = x[i] + 0 * workspace[i];
})",
     "uninitialised read of the workspace (512 bytes)",
     same,
     128,
     {2},
     {64},
     0,
     512},
    {"blocks that speak through the workspace",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  workspace[i] = x[i];
  __syncthreads();
  y[i] = workspace[@i ^ 1@i ^ 65@] @@+ 64 * (i < 64 ? -1 : 1)@;
})",
     "read of the workspace",
     neighbour,
     128,
     {2},
     {64},
     0,
     512},
    {"a block that overwrites what another read",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (threadIdx.x == 0) workspace[blockIdx.x] = 0;
  y[i] = x[i];
  @@if (threadIdx.x == 1) workspace[1 - blockIdx.x] = 0;@
})",
     "race: write to the workspace",
     same,
     128,
     {2},
     {64},
     0,
     512},
    {"a barrier that does not reach other blocks",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  workspace[i] = x[i];
  __syncthreads();
  __syncthreads();
  if (threadIdx.x == 3) workspace[@blockIdx.x * 64@0@] = 5;
  y[i] = x[i];
})",
     "race: write to the workspace",
     same,
     128,
     {2},
     {64},
     0,
     512},
    {"a signed overflow", R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  int big = 2147483647 - 127;
  y[i] = x[i] + 0.0f * float(@wrap_add(big, i)@big + i + 1@);
})",
     "signed integer overflow in an addition", same},
    {"a bool made of other bits",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, bool* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  reinterpret_cast<unsigned char*>(workspace)[i] = @1@2@;
  y[i] = workspace[i] ? x[i] : 0;
})",
     "a bool that is neither 0 nor 1",
     same,
     128,
     {2},
     {64},
     0,
     512},
    {"ldmatrix from a misaligned row",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) f16 tile[128];
  for (int j = lane_index(); j < 128; j += 32) tile[j] = from_float<f16>(1);
  __syncwarp();
  unsigned r[1];
  ldmatrix<1>(r, tile + lane_index() % 8 * 8 @@+ 4@);
  y[lane_index()] = x[lane_index()] + 0 * r[0];
})",
     "ldmatrix: misaligned row",
     same,
     32,
     {1},
     {32}},
    {"ldmatrix without a barrier",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) f16 tile[128];
  for (int j = lane_index(); j < 128; j += 32) tile[j] = from_float<f16>(1);
  @__syncwarp();@@
  unsigned r[1];
  ldmatrix<1>(r, tile + lane_index() % 8 * 8);
  y[lane_index()] = x[lane_index()] + 0 * r[0];
})",
     "ldmatrix, row of lane",
     same,
     32,
     {1},
     {32}},
    {"ldmatrix from global memory",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) float tile[32];
  tile[lane_index()] = 1;
  __syncwarp();
  unsigned r[1];
  ldmatrix<1>(r, @tile@x@ + lane_index() % 8 * 4);
  y[lane_index()] = x[lane_index()] + 0 * r[0];
})",
     "which is not shared memory",
     same,
     32,
     {1},
     {32}},
    {"memory touched before earlier launches have ended",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  @grid_wait();@@
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @@grid_wait();@
})",
     "of an earlier launch",
     same,
     128,
     {2},
     {64},
     0,
     0,
     {1},
     0,
     true},
    {"a wait for earlier launches that others cannot know of",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  if (threadIdx.x == 0) grid_wait();
  @__syncthreads();@__syncwarp();@
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
})",
     "of an earlier launch",
     same,
     128,
     {2},
     {64},
     0,
     0,
     {1},
     0,
     true},
    {"a block that ends before earlier launches have",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  @@if (blockIdx.x == 0) @grid_wait();
  for (int i = threadIdx.x; i < 128 && blockIdx.x == 0; i += 64) y[i] = x[i];
})",
     "ends with no grid_wait",
     same,
     128,
     {2},
     {64},
     0,
     0,
     {1},
     0,
     true},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("emulator faults", quern::emulated::kCases); }
