// The time below which no kernel can be that reads R bytes and writes W: one that does nothing else, best of several grids, captured in a
// CUDA graph, over buffers that rotate over more than four times the L2 cache.
//   nvcc -O3 -arch=sm_90 -o memory_floor memory_floor.cu && ./memory_floor R:W...
// prints {"R:W": microseconds, ...}.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void need(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "memory_floor: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

constexpr int kThreads = 512, kInFlight = 4;

// Where both are left, what is read is written; then the rest of either.
__global__ void __launch_bounds__(kThreads) move(const uint4* from, size_t reads, uint4* to, size_t writes, unsigned* never) {
  const size_t count = reads > writes ? reads : writes;
  unsigned all = 0;
  for (size_t base = size_t(blockIdx.x) * kThreads * kInFlight; base < count;
       base += size_t(gridDim.x) * kThreads * kInFlight) {
    uint4 words[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const size_t at = base + size_t(i) * kThreads + threadIdx.x;
      words[i] = at < reads ? __ldcs(from + at) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const size_t at = base + size_t(i) * kThreads + threadIdx.x;
      if (at < writes) __stcs(to + at, words[i]);
      else all |= words[i].x & words[i].y & words[i].z & words[i].w;
    }
  }
  if (all == 0x9e3779b9u) *never = all;
}

struct Bytes {
  size_t read, written;
};

// Median microseconds of one launch.
static float time_launches(cudaStream_t stream, const char* from, char* to, Bytes bytes, int copies, int grid, unsigned* never) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaEvent_t begin, end;
  need(cudaEventCreate(&begin), "an event");
  need(cudaEventCreate(&end), "an event");
  need(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < copies; ++i)
    move<<<grid, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(from + size_t(i) * bytes.read), bytes.read / 16,
                                        reinterpret_cast<uint4*>(to + size_t(i) * bytes.written), bytes.written / 16, never);
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

static size_t rounded(const char* text) { return (std::strtoull(text, nullptr, 10) + 255) / 256 * 256; }

int main(int argc, char** argv) {
  int cache = 0;
  need(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0), "the cache's size");
  cudaStream_t stream;
  need(cudaStreamCreate(&stream), "a stream");
  unsigned* never;
  need(cudaMalloc(&never, sizeof *never), "memory");
  std::printf("{");
  for (int i = 1; i < argc; ++i) {
    const char* colon = std::strchr(argv[i], ':');
    const Bytes bytes{rounded(argv[i]), colon ? rounded(colon + 1) : 0};
    const size_t all = std::max<size_t>(bytes.read + bytes.written, 1);
    const int copies = int(std::clamp<size_t>(4 * size_t(cache) / all + 2, all >> 30 ? 2 : 4, 256));
    char *from, *to;
    need(cudaMalloc(&from, std::max<size_t>(bytes.read * size_t(copies), 1)), "memory");
    need(cudaMalloc(&to, std::max<size_t>(bytes.written * size_t(copies), 1)), "memory");
    need(cudaMemset(from, 1, bytes.read * size_t(copies)), "memory");
    float best = 1e9f;
    for (int grid : {66, 132, 264, 528, 1056, 2112})
      best = std::min(best, time_launches(stream, from, to, bytes, copies, grid, never));
    std::printf("%s\"%s\": %.3f", i > 1 ? ", " : "", argv[i], double(best));
    need(cudaFree(from), "memory");
    need(cudaFree(to), "memory");
  }
  std::printf("}\n");
}
