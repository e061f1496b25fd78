// Barriers in shared memory that count arrivals and the bytes of asynchronous copies (PTX ISA, "mbarrier").
// A phase ends when all arrivals have come and all bytes that were announced have landed; phases are numbered
// from 0, and a wait names the parity of the phase that it waits for. What a thread did before it arrived, and
// what the copies of the phase wrote, can be seen by those who have waited.
using Mbarrier = unsigned long long;

// One thread, before any other use; then mbarrier_init_fence and a barrier of the block (or cluster).
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Lets TMA, and the other blocks of a cluster, see the barriers that this thread made.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives at the barrier of block `rank` of the cluster that lies where `barrier` lies here. What the thread wrote is told to
// nobody in another block, as a release of the cluster would make each arrival wait for memory: it is for stages that tensor
// cores alone have read, whose reads are complete when wgmma_wait returns.
__device__ __forceinline__ void mbarrier_arrive_at(Mbarrier* barrier, int rank) {
  unsigned at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(barrier)), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(at) : "memory");
}
// Arrives, and announces the bytes of copies that this thread asks for next.
__device__ __forceinline__ void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Until the phase of this parity has ended. At most one phase may have ended since.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
          shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// A barrier of the block's first kThreads threads, whole warps: of those that compute, where other warps bring what
// they need (PTX ISA, "bar"). __syncthreads is number 0.
template <int kThreads>
__device__ __forceinline__ void barrier_of() {
  static_assert(kThreads % 32 == 0, "barriers count whole warps");
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// The warpgroups of the first kThreads threads go through a part in turns, again and again (PTX ISA, "bar"; an ordered
// sequence barrier in CUTLASS): at barrier 3 + g group g waits for the one in front of it. They begin once, by which the last
// one lets the first one in. `group`: the number of the thread's own.
template <int kThreads>
__device__ __forceinline__ void order_arrive(int group) {
#pragma unroll
  for (int g = 0; g < kThreads / 128; ++g)
    if (group == g) asm volatile("bar.arrive %0, 256;" ::"r"(3 + (g + 1) % (kThreads / 128)) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void order_wait(int group) {
#pragma unroll
  for (int g = 0; g < kThreads / 128; ++g)
    if (group == g) asm volatile("bar.sync %0, 256;" ::"r"(3 + g) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void order_begin(int group) {
  if (group == kThreads / 128 - 1) order_arrive<kThreads>(group);
}

// Orders this thread's ordinary accesses to shared memory before those of TMA and of tensor cores
// that come after it: each thread that wrote, before the barrier that tells the thread that asks.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
