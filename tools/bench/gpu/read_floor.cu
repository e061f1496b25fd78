// The time below which no kernel that reads N bytes can be: a kernel that does nothing but read them, best of several grids, captured
// in a CUDA graph, from buffers that rotate over more than four times the L2 cache.
//   nvcc -O3 -arch=sm_90 -o read_floor read_floor.cu && ./read_floor BYTES...
// prints {"BYTES": microseconds, ...}.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void need(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "read_floor: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

constexpr int kThreads = 512, kInFlight = 4;

__global__ void __launch_bounds__(kThreads) read(const uint4* data, size_t count, unsigned* never) {
  unsigned all = 0;
  for (size_t base = size_t(blockIdx.x) * kThreads * kInFlight; base < count;
       base += size_t(gridDim.x) * kThreads * kInFlight) {
    uint4 words[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const size_t at = base + size_t(i) * kThreads + threadIdx.x;
      words[i] = at < count ? __ldcs(data + at) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) all |= words[i].x & words[i].y & words[i].z & words[i].w;
  }
  if (all == 0x9e3779b9u) *never = all;
}

// Median microseconds of one launch.
static float time_launches(cudaStream_t stream, const char* buffer, size_t bytes, int copies, int grid, unsigned* never) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaEvent_t begin, end;
  need(cudaEventCreate(&begin), "an event");
  need(cudaEventCreate(&end), "an event");
  need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < copies; ++i)
    read<<<grid, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(buffer + size_t(i) * bytes), bytes / 16, never);
  need(cudaStreamEndCapture(stream, &graph), "capture");
  need(cudaGraphInstantiate(&executable, graph, 0), "instantiation");
  std::vector<float> times;
  for (int round = 0; round < 13; ++round) {
    need(cudaEventRecord(begin, stream), "an event");
    need(cudaGraphLaunch(executable, stream), "a launch");
    need(cudaEventRecord(end, stream), "an event");
    need(cudaStreamSynchronize(stream), "a run");
    float ms = 0;
    need(cudaEventElapsedTime(&ms, begin, end), "an event");
    if (round >= 2) times.push_back(ms * 1e3f / float(copies));
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return times[times.size() / 2];
}

int main(int argc, char** argv) {
  int cache = 0;
  need(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0), "the cache's size");
  cudaStream_t stream;
  need(cudaStreamCreate(&stream), "a stream");
  unsigned* never;
  need(cudaMalloc(&never, sizeof *never), "memory");
  std::printf("{");
  for (int i = 1; i < argc; ++i) {
    const size_t bytes = (std::strtoull(argv[i], nullptr, 10) + 255) / 256 * 256;
    const int copies = std::clamp<int>(int(4 * size_t(cache) / bytes) + 2, 4, 256);
    char* buffer;
    need(cudaMalloc(&buffer, bytes * size_t(copies)), "memory");
    need(cudaMemset(buffer, 1, bytes * size_t(copies)), "memory");
    float best = 1e9f;
    for (int grid : {66, 132, 264, 528, 1056, 2112})
      best = std::min(best, time_launches(stream, buffer, bytes, copies, grid, never));
    std::printf("%s\"%s\": %.3f", i > 1 ? ", " : "", argv[i], double(best));
    need(cudaFree(buffer), "memory");
  }
  std::printf("}\n");
}
