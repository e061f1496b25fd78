// Barriers of some of a block's threads, each rule broken once.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

float other_warp(int i) { return x(i / 96 * 96 + (i % 96 < 64 ? (i % 96 + 32) % 64 : i % 96)); }

const FaultCase kCases[] = {
    {"threads that exchange with no barrier of them all",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  if (threadIdx.x >= 64) { y[i] = x[i]; return; }
  tile[threadIdx.x] = x[i];
  @barrier_of<64>();@__syncwarp();@
  y[i] = tile[(threadIdx.x + 32) % 64];
})",
     "race: read of dynamic shared memory",
     other_warp,
     192,
     {2},
     {96},
     256},
    {"a barrier that counts threads that do not come",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  if (threadIdx.x >= 64) { y[i] = x[i]; return; }
  tile[threadIdx.x] = x[i];
  barrier_of<@64@96@>();
  y[i] = tile[(threadIdx.x + 32) % 64];
})",
     "wait in barrier_of",
     other_warp,
     192,
     {2},
     {96},
     256},
    {"warps that count differently",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  if (threadIdx.x >= 64) { y[i] = x[i]; return; }
  tile[threadIdx.x] = x[i];
  if (threadIdx.x < 32) barrier_of<64>();
  else barrier_of<@64@96@>();
  y[i] = tile[(threadIdx.x + 32) % 64];
})",
     "where others wait for",
     other_warp,
     192,
     {2},
     {96},
     256},
    {"a barrier that says nothing to those who are not in it",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const int i = blockIdx.x * 96 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  if (threadIdx.x < 64) barrier_of<64>();
  y[i] = tile[threadIdx.x < 64 ? (threadIdx.x + 32) % 64 : threadIdx.x@@ - 64@];
})",
     "read of dynamic shared memory",
     other_warp,
     192,
     {2},
     {96},
     384},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("named barrier faults", quern::emulated::kCases); }
