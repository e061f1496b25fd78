// The rules of mbarriers and of the copy engine that signals them, each broken once.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

float reversed_in_block(int i) { return x(i / 64 * 64 + 63 - i % 64); }

const FaultCase kCases[] = {
    {"a missing wait for a copy",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  @mbarrier_wait(landed, 0);@@ if (threadIdx.x == 0) mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "read of dynamic shared memory",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"a wait for the wrong phase",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, @0@1@);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "read of dynamic shared memory",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"more bytes announced than copied",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256@@ + 16@);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "of an mbarrier whose phase 0 lacks 0 arrivals and 16 bytes",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"fewer bytes announced than copied",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256@@ - 16@);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "fewer bytes were announced than asked for",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"an mbarrier that the copy engine does not know",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); @mbarrier_init_fence();@@ }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "no mbarrier_init_fence behind it",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"an mbarrier used before all know of it",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  @__syncthreads();@@
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "dynamic shared memory",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"an arrival too many",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
    @@mbarrier_arrive(landed);@
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "more than 1 arrivals",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"a copy over what ordinary stores wrote",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  tile[threadIdx.x] = 0;
  @fence_proxy_async();@@
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "with no fence_proxy_async behind it",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"a copy to a misaligned place",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile@@ + 8@, map, landed, {int(blockIdx.x) * 64});
  }
  mbarrier_wait(landed, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
})",
     "not aligned to 128 bytes",
     reversed_in_block,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"a copy that nobody waits for",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  if (threadIdx.x == 0) { mbarrier_init(landed, 1); mbarrier_init_fence(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(landed, 256);
    tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64});
  }
  @mbarrier_wait(landed, 0);@@
  y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
})",
     "copies that nobody waited for",
     same,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     64},
    {"a stage given back before it is read",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  Mbarrier* free = landed + 1;
  if (threadIdx.x == 0) {
    mbarrier_init(landed, 1);
    mbarrier_init(free, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x / 32 == 1) {
    for (int round = 0; round < 2 && lane_index() == 0; ++round) {
      if (round > 0) mbarrier_wait(free, 0);
      mbarrier_arrive_expect(landed, 128);
      tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64 + round * 32});
    }
  } else {
    for (int round = 0; round < 2; ++round) {
      mbarrier_wait(landed, round & 1);
      @@if (round == 0 && lane_index() == 0) mbarrier_arrive(free); @y[blockIdx.x * 64 + round * 32 + lane_index()] = tile[lane_index()];
      __syncwarp();
      @if (round == 0 && lane_index() == 0) mbarrier_arrive(free);@@
    }
  }
})",
     "dynamic shared memory",
     same,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     32},
    {"a stage given back for lanes that may still read",
     R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* tile = dynamic_shared<float>();
  Mbarrier* landed = reinterpret_cast<Mbarrier*>(tile + 64);
  Mbarrier* free = landed + 1;
  if (threadIdx.x == 0) {
    mbarrier_init(landed, 1);
    mbarrier_init(free, 1);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x / 32 == 1) {
    for (int round = 0; round < 2 && lane_index() == 0; ++round) {
      if (round > 0) mbarrier_wait(free, 0);
      mbarrier_arrive_expect(landed, 128);
      tma_load<1, true>(tile, map, landed, {int(blockIdx.x) * 64 + round * 32});
    }
  } else {
    for (int round = 0; round < 2; ++round) {
      mbarrier_wait(landed, round & 1);
      y[blockIdx.x * 64 + round * 32 + lane_index()] = tile[lane_index()];
      @__syncwarp();@@
      if (round == 0 && lane_index() == 0) mbarrier_arrive(free);
    }
  }
})",
     "dynamic shared memory",
     same,
     128,
     {2},
     {64},
     512,
     0,
     {1},
     32},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("mbarrier faults", quern::emulated::kCases); }
