// The rules of mbarriers and of TMA that signals them, each broken once.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

float reversed_in_block(int i) { return x(i / 64 * 64 + 63 - i % 64); }

const FaultCase kCases[] = {
    {.name = "a missing wait for a copy",
     .text = R"(
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
     .rule = "read of dynamic shared memory",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "a wait for the wrong phase",
     .text = R"(
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
     .rule = "read of dynamic shared memory",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "more bytes announced than copied",
     .text = R"(
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
     .rule = "of an mbarrier whose phase 0 lacks 0 arrivals and 16 bytes",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "fewer bytes announced than copied",
     .text = R"(
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
     .rule = "fewer bytes were announced than asked for",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "an mbarrier that TMA does not know",
     .text = R"(
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
     .rule = "no mbarrier_init_fence behind it",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "an mbarrier used before all know of it",
     .text = R"(
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
     .rule = "dynamic shared memory",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "an arrival too many",
     .text = R"(
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
     .rule = "more than 1 arrivals",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "a copy over what ordinary stores wrote",
     .text = R"(
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
     .rule = "with no fence_proxy_async behind it",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "a copy to a misaligned place",
     .text = R"(
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
     .rule = "not aligned to 128 bytes",
     .value = reversed_in_block,
     .shared_bytes = 512,
     .box = 64},
    {.name = "a copy that nobody waits for",
     .text = R"(
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
     .rule = "copies that nobody waited for",
     .value = same,
     .shared_bytes = 512,
     .box = 64},
    {.name = "a stage given back before it is read",
     .text = R"(
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
     .rule = "dynamic shared memory",
     .value = same,
     .shared_bytes = 512,
     .box = 32},
    {.name = "a stage given back for lanes that may still read",
     .text = R"(
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
     .rule = "dynamic shared memory",
     .value = same,
     .shared_bytes = 512,
     .box = 32},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("mbarrier faults", quern::emulated::kCases); }
