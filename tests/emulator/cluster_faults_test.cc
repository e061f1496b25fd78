// The rules of clusters that the emulator watches, each broken once. Blocks of 64 threads, two or four a
// cluster, read what others have in dynamic shared memory.
#include "tests/emulator/fault_cases.h"

namespace quern::emulated {

namespace {

float neighbour_block(int i) { return x(i ^ 64); }
float sum_of_blocks(int i) {
  float sum = 0;
  for (int block = 0; block < 4; ++block) sum += x(i % 64 + 64 * block);
  return sum;
}

const FaultCase kCases[] = {
    {"no barrier before the neighbour is read",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  cluster_sync();
  tile[threadIdx.x] = x[i];
  @cluster_sync();@__syncthreads();@
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  cluster_sync();
})",
     "read of dynamic shared memory of block",
     neighbour_block,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"no barrier before the end",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  cluster_sync();
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  @cluster_sync();@@
})",
     "has ended",
     neighbour_block,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"written again while the neighbour may read",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  cluster_sync();
  float value = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  @cluster_sync();@__syncthreads();@
  tile[threadIdx.x] = 0;
  cluster_sync();
  y[i] = value + load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  cluster_sync();
})",
     "race: ",
     neighbour_block,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"written between arrival and wait",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  @tile[threadIdx.x] = x[i];@@
  cluster_arrive();
  @@tile[threadIdx.x] = x[i];@
  cluster_wait();
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  cluster_sync();
})",
     "race: ",
     neighbour_block,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"a wait with no arrival",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @cluster_arrive();@@
  cluster_wait();
  y[i] = x[i];
})",
     "cluster_wait with no cluster_arrive",
     same,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"threads that do not arrive",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @if (threadIdx.x >= 32) { y[i] = x[i]; return; }@@  // who has ended is not waited for
  @@if (threadIdx.x < 32)@ cluster_sync();
  @@__syncthreads();@
  y[i] = x[i];
})",
     "deadlock: ",
     same,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"a block that may not have begun",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  @cluster_sync();@@
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  cluster_sync();
})",
     "",
     neighbour_block,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"a block that is not in the cluster",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  cluster_sync();
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() @^@+@ 1)[0];
  cluster_sync();
})",
     "the cluster has no block",
     neighbour_block,
     128,
     {2},
     {64},
     256,
     0,
     {2}},
    {"vectors of four blocks, summed while one goes on",
     R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  cluster_arrive();
  cluster_wait();
  float sum = 0;
  for (int rank = 0; rank < 4; ++rank)
    sum += load_cluster<float, 4>(tile + threadIdx.x / 4 * 4, rank)[threadIdx.x % 4];
  @cluster_arrive();@@
  y[i] = sum;
  @cluster_wait();@@
})",
     "has ended",
     sum_of_blocks,
     256,
     {4},
     {64},
     256,
     0,
     {4}},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("emulator cluster faults", quern::emulated::kCases); }
