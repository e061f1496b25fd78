// Barriers of some of a block's threads, each rule broken once.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

float other_warp(int i) { return x(i / 96 * 96 + (i % 96 < 64 ? (i % 96 + 32) % 64 : i % 96)); }

const FaultCase kCases[] = {
    {.name = "threads that exchange with no barrier of them all",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  if (threadIdx.x >= 64) { y[i] = x[i]; return; }
  tile[threadIdx.x] = x[i];
  @barrier_of<64>();@__syncwarp();@
  y[i] = tile[(threadIdx.x + 32) % 64];
})",
     .rule = "race: read of dynamic shared memory",
     .value = other_warp,
     .length = 192,
     .block = {96},
     .shared_bytes = 256},
    {.name = "a barrier that counts threads that do not come",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  if (threadIdx.x >= 64) { y[i] = x[i]; return; }
  tile[threadIdx.x] = x[i];
  barrier_of<@64@96@>();
  y[i] = tile[(threadIdx.x + 32) % 64];
})",
     .rule = "wait in barrier_of",
     .value = other_warp,
     .length = 192,
     .block = {96},
     .shared_bytes = 256},
    {.name = "warps that count differently",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  if (threadIdx.x >= 64) { y[i] = x[i]; return; }
  tile[threadIdx.x] = x[i];
  if (threadIdx.x < 32) barrier_of<64>();
  else barrier_of<@64@96@>();
  y[i] = tile[(threadIdx.x + 32) % 64];
})",
     .rule = "where others wait for",
     .value = other_warp,
     .length = 192,
     .block = {96},
     .shared_bytes = 256},
    {.name = "a barrier that says nothing to those who are not in it",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  if (threadIdx.x < 64) barrier_of<64>();
  y[i] = tile[threadIdx.x < 64 ? (threadIdx.x + 32) % 64 : threadIdx.x@@ - 64@];
})",
     .rule = "read of dynamic shared memory",
     .value = other_warp,
     .length = 192,
     .block = {96},
     .shared_bytes = 384},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("named barrier faults", quern::emulated::kCases); }
