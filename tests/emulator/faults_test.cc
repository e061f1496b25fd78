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
    {.name = "a removed barrier",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncthreads();@@
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "read of shared array `tile`",
     .value = reversed_in_block},
    {.name = "a missing barrier before shared memory is used again",
     .text = R"(
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
     .rule = "race: ",
     .value = reversed_in_block},
    {.name = "a shifted index",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[@i@i + 1@] @@- 1@;
})",
     .rule = "out-of-bounds read of 4 bytes at input 0 `x` (512 bytes) at offset 512",
     .value = same},
    {.name = "an index before the beginning",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[@i@i - 1@] @@+ 1@;
})",
     .rule = "out-of-bounds read of 4 bytes at input 0 `x` (512 bytes) at offset -4",
     .value = same},
    {.name = "a missing tail guard",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @if (i < 100)@if (i < 101)@ y[i] = i < 100 ? x[i] : 0.0f;
})",
     .rule = "out-of-bounds write of 4 bytes at output 0 `y` (400 bytes) at offset 400",
     .value = same,
     .length = 100},
    {.name = "a vector over the end",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = 4 * (blockIdx.x * 64 + threadIdx.x);
  if (i < 101@ - 3@@) {
    store_vector<float, 4>(y + i, load_vector<float, 4>(x + i));
  } @else if (i == 100) y[100] = x[100];@@
})",
     .rule = "out-of-bounds read of 16 bytes at input 0 `x` (404 bytes) at offset 400",
     .value = same,
     .length = 101},
    {.name = "an uninitialised read of shared memory",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  if (threadIdx.x != 17 @|| true@@) tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "uninitialised read of shared array `tile` (256 bytes) at offset 68",
     .value = reversed_in_block},
    {.name = "shared memory of the block before",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  if (blockIdx.x == 0 @|| true@@) tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "uninitialised read of dynamic shared memory",
     .value = reversed_in_block,
     .shared_bytes = 256},
    {.name = "two threads write one element",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[i];
  @if (i == 64)@if (i == 64 || i == 32)@ y[64] = x[64];
})",
     .rule = "race: write to output 0 `y` (512 bytes) at offset 256",
     .value = same},
    {.name = "two threads of a block write one element",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i @@/ 2 * 2@] = x[i @@/ 2 * 2@];
})",
     .rule = "race: write to output 0 `y`",
     .value = same},
    {.name = "an operand of mma that is no tf32",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float third = 1.0f / 3.0f, d[4] = {};
  unsigned a[4] = {}, b[2] = {};
  b[1] = @to_tf32@__float_as_uint@(third);
  mma_m16n8k8_tf32(d, a, b);
  y[i] = x[i] + d[0];
})",
     .rule = "mma_m16n8k8_tf32: an operand of lane 0 has more bits than tf32",
     .value = same},
    {.name = "a divergent barrier",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  if (@true@threadIdx.x < 32@) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
})",
     .rule = "divergent barrier",
     .value = same},
    {.name = "threads that end before a barrier",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  if (threadIdx.x > 63 @@- 4@) return;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
})",
     .rule = "deadlock: thread (0,0,0) and others wait in __syncthreads, line 4 `__syncthreads();`; 4 of 64 "
             "threads "
             "have ended",
     .value = same},
    {.name = "a write over the end of a shared array",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  __shared__ float other[64];
  float* p = tile;
  p[threadIdx.x @@+ 1@] = x[blockIdx.x * 64 + threadIdx.x];
  other[threadIdx.x] = 0;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x] + other[threadIdx.x];
})",
     .rule = "out-of-bounds write of 4 bytes at shared array `tile` (256 bytes) at offset 256",
     .value = reversed_in_block},
    {.name = "an index over the end of a row",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[2][64];
  tile[0][threadIdx.x @@+ 1@] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[0][63 - threadIdx.x];
})",
     .rule = "index out of the bounds of an array",
     .value = reversed_in_block},
    {.name = "a write over the end of dynamic shared memory",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  tile[threadIdx.x @@+ 1@] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "out-of-bounds write of 4 bytes at dynamic shared memory (256 bytes) at offset 256",
     .value = reversed_in_block,
     .shared_bytes = 256},
    {.name = "an index over the end of registers",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float values[4];
  int i = blockIdx.x * 64 + threadIdx.x;
  for (int j = 0; j < 4; ++j) values[j] = x[i];
  y[i] = values[i @% 4@% 5@];
})",
     .rule = "index out of the bounds of an array",
     .value = same},
    {.name = "a misaligned vector load",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = 4 * threadIdx.x;
  if (i @@+ 2@ >= 128) return;
  Vector<float, 4> v = load_vector<float, 4>(x + i @@+ 2@);
  for (int j = 0; j < 4; ++j) y[i + j @@+ 2@] = v[j];
})",
     .rule = "misaligned read of 16 bytes at input 0 `x`",
     .value = same,
     .grid = {1}},
    {.name = "a misaligned vector store",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = 4 * threadIdx.x;
  Vector<float, 4> v;
  for (int j = 0; j < 4; ++j) v[j] = x[i + j];
  store_vector_streaming<float, 4>(y + i @@+ 1@, v);
})",
     .rule = "misaligned write of 16 bytes at output 0 `y`",
     .value = same,
     .grid = {1},
     .block = {32}},
    {.name = "a mismatched shuffle mask",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = shuffle_xor(x[i], 1, @0xffffffffu@i % 32 < 16 ? 0x0000ffffu : 0xffffffffu@);
})",
     .rule = "deadlock",
     .value = neighbour},
    {.name = "halves of a warp that meet too early",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float value = x[i];
  for (int round = 0; round < 3; ++round) {
    value = shuffle_xor(value, 1, i % 32 < 16 ? 0x0000ffffu : 0xffff0000u);
    value = shuffle_xor(value, 0, @0xffffffffu@lane_index() == 3 ? 0x0000ffffu : 0xffffffffu@);
  }
  y[i] = value;
})",
     .rule = "lanes of a warp disagree",
     .value = neighbour},
    {.name = "a mask without the lane itself",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = shuffle_xor(x[i], 1, @0xffffffffu@0x0000ffffu@);
})",
     .rule = "leaves the lane itself out",
     .value = neighbour},
    {.name = "a shuffle that half a warp misses",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float value = x[i ^ 1];
  if (@true@lane_index() < 16@) value = shuffle_xor(x[i], 1);
  y[i] = value;
})",
     .rule = "deadlock",
     .value = neighbour},
    {.name = "a shuffle from a lane outside of the mask",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  unsigned mask = lane_index() < 16 ? 0x0000ffffu : 0xffff0000u;
  y[i] = shuffle_xor(x[i], @1@17@, mask);
})",
     .rule = "which does not take part",
     .value = neighbour},
    {.name = "different collectives in one warp",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float value = x[i ^ 1];
  if (@true@lane_index() < 16@) value = shuffle_xor(x[i], 1); else __syncwarp();
  y[i] = value;
})",
     .rule = "lanes of a warp disagree",
     .value = neighbour},
    {.name = "a missing __syncwarp",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncwarp();@@
  y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x ^ 1];
})",
     .rule = "read of shared array `tile`",
     .value = neighbour},
    {.name = "a shuffle in place of __syncwarp",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncwarp();@warp_any(true);@
  y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x ^ 1];
})",
     .rule = "race: read of shared array `tile`",
     .value = neighbour},
    {.name = "__syncwarp in place of a barrier",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @__syncthreads()@__syncwarp()@;
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "read of shared array `tile`",
     .value = reversed_in_block},
    {.name = "a warp's scratch that is written again while others read it",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float total[2];
  float value = 0;
  for (int round = 0; round < 2; ++round) {
    float sum = warp_reduce(x[blockIdx.x * 64 + threadIdx.x], [](float a, float b) { return a + b; });
    if (lane_index() == 0) total[threadIdx.x / 32] = sum;
    __syncwarp();
    value = total[threadIdx.x / 32];
    @__syncwarp();@@
  }
  y[blockIdx.x * 64 + threadIdx.x] = value;
})",
     .rule = "race: write to shared array `total`",
     .value = sum_of_warp},
    {.name = "a broadcast that is overwritten while others read it",
     .text = R"(
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
     .rule = "race: ",
     .value = reversed_in_block},
    {.name = "an asynchronous copy without its wait",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  @cp_async_wait<0>()@@;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "still under way",
     .value = reversed_in_block},
    {.name = "an asynchronous copy without its commit",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  @cp_async_commit()@@;
  cp_async_wait<0>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "still under way",
     .value = reversed_in_block},
    {.name = "a wait for too few groups",
     .text = R"(
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
     .rule = "still under way",
     .value = reversed_in_block},
    {.name = "an asynchronous copy without a barrier",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  @__syncthreads();@@
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     .rule = "read of shared array `tile`",
     .value = reversed_in_block},
    {.name = "an asynchronous copy that nobody waits for",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  cp_async<4>(tile + threadIdx.x, x + blockIdx.x * 64 + threadIdx.x);
  cp_async_commit();
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @cp_async_wait<0>();@@
})",
     .rule = "did not wait for",
     .value = same},
    {.name = "an asynchronous copy over the end of its source",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  cp_async<4>(tile + threadIdx.x, x + i, i < 100@@ + 1@ ? 4 : 0);
  cp_async_commit();
  cp_async_wait<0>();
  if (i < 100) y[i] = tile[threadIdx.x];
})",
     .rule = "out-of-bounds read of 4 bytes at input 0 `x` (400 bytes) at offset 400",
     .value = same,
     .length = 100},
    {.name = "a misaligned asynchronous copy",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) float tile[128];
  if (threadIdx.x < 16) cp_async<16>(tile + 4 * threadIdx.x @@+ 2@, x + blockIdx.x * 64 + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x @@+ 2@];
})",
     .rule = "misaligned cp_async to shared array `tile`",
     .value = reversed_in_block},
    {.name = "an output left unwritten",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i != 77 @|| true@@) y[i] = x[i];
})",
     .rule = "output 0 `y` [77]: never written",
     .value = same},
    {.name = "a write to an input",
     .text = R"(
extern "C" __global__ void kernel(float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @@x[i] = 7;@
  y[i] = x[i];
})",
     .rule = "write of 4 bytes to read-only input 0 `x`",
     .value = same},
    {.name = "a workspace that is not what it was",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @workspace[i] = x[i]@@;
  y[i] = x[i] + 0 * workspace[i];
})",
     .rule = "uninitialised read of the workspace (512 bytes)",
     .value = same,
     .workspace_bytes = 512},
    {.name = "blocks that speak through the workspace",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  workspace[i] = x[i];
  __syncthreads();
  y[i] = workspace[@i ^ 1@i ^ 65@] @@+ 64 * (i < 64 ? -1 : 1)@;
})",
     .rule = "read of the workspace",
     .value = neighbour,
     .workspace_bytes = 512},
    {.name = "a block that overwrites what another read",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (threadIdx.x == 0) workspace[blockIdx.x] = 0;
  y[i] = x[i];
  @@if (threadIdx.x == 1) workspace[1 - blockIdx.x] = 0;@
})",
     .rule = "race: write to the workspace",
     .value = same,
     .workspace_bytes = 512},
    {.name = "a barrier that does not reach other blocks",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y, float* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  workspace[i] = x[i];
  __syncthreads();
  __syncthreads();
  if (threadIdx.x == 3) workspace[@blockIdx.x * 64@0@] = 5;
  y[i] = x[i];
})",
     .rule = "race: write to the workspace",
     .value = same,
     .workspace_bytes = 512},
    {.name = "a signed overflow",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  int big = 2147483647 - 127;
  y[i] = x[i] + 0.0f * float(@wrap_add(big, i)@big + i + 1@);
})",
     .rule = "signed integer overflow in an addition",
     .value = same},
    {.name = "a bool made of other bits",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y, bool* workspace) {
  int i = blockIdx.x * 64 + threadIdx.x;
  reinterpret_cast<unsigned char*>(workspace)[i] = @1@2@;
  y[i] = workspace[i] ? x[i] : 0;
})",
     .rule = "a bool that is neither 0 nor 1",
     .value = same,
     .workspace_bytes = 512},
    {.name = "ldmatrix from a misaligned row",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) f16 tile[128];
  for (int j = lane_index(); j < 128; j += 32) tile[j] = from_float<f16>(1);
  __syncwarp();
  unsigned r[1];
  ldmatrix<1>(r, tile + lane_index() % 8 * 8 @@+ 4@);
  y[lane_index()] = x[lane_index()] + 0 * r[0];
})",
     .rule = "ldmatrix: misaligned row",
     .value = same,
     .length = 32,
     .grid = {1},
     .block = {32}},
    {.name = "ldmatrix without a barrier",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) f16 tile[128];
  for (int j = lane_index(); j < 128; j += 32) tile[j] = from_float<f16>(1);
  @__syncwarp();@@
  unsigned r[1];
  ldmatrix<1>(r, tile + lane_index() % 8 * 8);
  y[lane_index()] = x[lane_index()] + 0 * r[0];
})",
     .rule = "ldmatrix, row of lane",
     .value = same,
     .length = 32,
     .grid = {1},
     .block = {32}},
    {.name = "ldmatrix from global memory",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) float tile[32];
  tile[lane_index()] = 1;
  __syncwarp();
  unsigned r[1];
  ldmatrix<1>(r, @tile@x@ + lane_index() % 8 * 4);
  y[lane_index()] = x[lane_index()] + 0 * r[0];
})",
     .rule = "which is not shared memory",
     .value = same,
     .length = 32,
     .grid = {1},
     .block = {32}},
    {.name = "stmatrix to a misaligned row",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) f16 tile[128];
  unsigned r[1] = {0};
  stmatrix<1, false>(tile + lane_index() % 8 * 8 @@+ 4@, r);
  __syncwarp();
  y[lane_index()] = x[lane_index()] + to_float(tile[lane_index()]);
})",
     .rule = "stmatrix: misaligned row",
     .value = same,
     .length = 32,
     .grid = {1},
     .block = {32}},
    {.name = "stmatrix with no barrier behind it",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ __align__(16) f16 tile[128];
  unsigned r[1] = {0};
  stmatrix<1, true>(tile + lane_index() % 8 * 8, r);
  @__syncwarp();@@
  y[lane_index()] = x[lane_index()] + to_float(tile[lane_index()]);
})",
     .rule = "read of",
     .value = same,
     .length = 32,
     .grid = {1},
     .block = {32}},
    {.name = "memory touched before earlier launches have ended",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  @grid_wait();@@
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  @@grid_wait();@
})",
     .rule = "of an earlier launch",
     .value = same,
     .twice = true},
    {.name = "a wait for earlier launches that others cannot know of",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  if (threadIdx.x == 0) grid_wait();
  @__syncthreads();@__syncwarp();@
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
})",
     .rule = "of an earlier launch",
     .value = same,
     .twice = true},
    {.name = "what earlier launches wrote read as a constant",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  grid_wait();
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[i];
  if (load_vector_@written<float, 1, false>@now<float, 1, true>@(y + i)[0] != x[i]) y[i] = 0.0f;
})",
     .rule = "as a constant",
     .value = same,
     .twice = true},
    {.name = "a block that ends before earlier launches have",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  @@if (blockIdx.x == 0) @grid_wait();
  for (int i = threadIdx.x; i < 128 && blockIdx.x == 0; i += 64) y[i] = x[i];
})",
     .rule = "ends with no grid_wait",
     .value = same,
     .twice = true},
    {.name = "an input read while what is in front of the plan may write it",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  @grid_wait();@@
  const float value = x[i];
  @@grid_wait();@
  y[i] = value;
})",
     .rule = "what the caller enqueued before",
     .value = same,
     .first_overlaps = true},
    {.name = "an output written while what is in front of the plan may read it",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  @grid_wait();@@
  y[i] = 0;
  @@grid_wait();@
  y[i] = x[i];
})",
     .rule = "what the caller enqueued before",
     .value = same,
     .first_overlaps = true},
    {.name = "an input that what is in front of the plan may write read as a constant",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  grid_wait();
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = load_vector_@written<float, 1, false>@now<float, 1, true>@(x + i)[0];
})",
     .rule = "as a constant",
     .value = same,
     .first_overlaps = true},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("emulator faults", quern::emulated::kCases); }
