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

// Each of a pair of blocks brings half of a tile to both, twice, and tells both when it has read it.
const std::string_view kSharedTile = R"(
extern "C" __global__ void kernel(const float* x, float* y, const __grid_constant__ TensorMap map) {
  float* const tile = dynamic_shared<float>();
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(tile + 64);
  Mbarrier* const empty = full + 1;
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_init(empty, 2);
    mbarrier_init_fence();
  }
  cluster_sync();
  if (threadIdx.x / 32 == 1) {
    for (int round = 0; round < 2 && lane_index() == 0; ++round) {
      mbarrier_wait(empty, round & 1 ^ 1);
      mbarrier_arrive_expect(full, 256);
      tma_load_multicast<1>(tile + rank * 32, map, full, 3, {round * 64 + rank * 32});
    }
    return;
  }
  for (int round = 0; round < 2; ++round) {
    mbarrier_wait(full, round & 1);
    for (int i = lane_index(); i < 64 && round == rank; i += 32) y[round * 64 + i] = tile[i];
    __syncwarp();
    if (lane_index() < 2) mbarrier_arrive_at(empty, lane_index());
  }
  cluster_sync();
})";
// With a fault in one place.
std::string shared_tile(const std::string& right, const std::string& wrong) {
  return std::string(kSharedTile)
      .replace(kSharedTile.find(right), right.size(), "@" + right + "@" + wrong + "@");
}

const FaultCase kCases[] = {
    {.name = "no barrier before the neighbour is read",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  cluster_sync();
  tile[threadIdx.x] = x[i];
  @cluster_sync();@__syncthreads();@
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  cluster_sync();
})",
     .rule = "read of dynamic shared memory of block",
     .value = neighbour_block,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "no barrier before the end",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  cluster_sync();
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  @cluster_sync();@@
})",
     .rule = "has ended",
     .value = neighbour_block,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "written again while the neighbour may read",
     .text = R"(
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
     .rule = "race: ",
     .value = neighbour_block,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "written between arrival and wait",
     .text = R"(
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
     .rule = "race: ",
     .value = neighbour_block,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "a wait with no arrival",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @cluster_arrive();@@
  cluster_wait();
  y[i] = x[i];
})",
     .rule = "cluster_wait with no cluster_arrive",
     .value = same,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "threads that do not arrive",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  @if (threadIdx.x >= 32) { y[i] = x[i]; return; }@@  // who has ended is not waited for
  @@if (threadIdx.x < 32)@ cluster_sync();
  @@__syncthreads();@
  y[i] = x[i];
})",
     .rule = "deadlock: ",
     .value = same,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "a block that may not have begun",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  @cluster_sync();@@
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() ^ 1)[0];
  cluster_sync();
})",
     .rule = "",
     .value = neighbour_block,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "a block that is not in the cluster",
     .text = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  float* const tile = dynamic_shared<float>();
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  cluster_sync();
  y[i] = load_cluster<float, 1>(tile + threadIdx.x, cluster_rank() @^@+@ 1)[0];
  cluster_sync();
})",
     .rule = "the cluster has no block",
     .value = neighbour_block,
     .shared_bytes = 256,
     .cluster = {2}},
    {.name = "vectors of four blocks, summed while one goes on",
     .text = R"(
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
     .rule = "has ended",
     .value = sum_of_blocks,
     .length = 256,
     .grid = {4},
     .shared_bytes = 256,
     .cluster = {4}},
    {.name = "a stage filled when one block of two has read it",
     .text = shared_tile("mbarrier_init(empty, 2);", "mbarrier_init(empty, 1);"),
     .rule = "",
     .value = same,
     .shared_bytes = 512,
     .cluster = {2},
     .box = 32},
    {.name = "the other block not told",
     .text = shared_tile("arrive_at(empty, lane_index())", "arrive_at(empty, rank)"),
     .rule = "",
     .value = same,
     .shared_bytes = 512,
     .cluster = {2},
     .box = 32},
    {.name = "a block that ends while the other signals it",
     .text = shared_tile("  cluster_sync();\n}", "}"),
     .rule = "",
     .value = same,
     .shared_bytes = 512,
     .cluster = {2},
     .box = 32},
};

}  // namespace

}  // namespace quern::emulated

int main() { return quern::emulated::run_fault_cases("emulator cluster faults", quern::emulated::kCases); }
