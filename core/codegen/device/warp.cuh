// Warp collectives. Every lane named in `mask` must call the same function with the same mask; none of them
// orders memory (that is __syncwarp's work).

constexpr unsigned kFullWarp = 0xffffffffu;

// The thread's number within its warp: warps are 32 consecutive threads, x fastest. mov %laneid
__device__ __forceinline__ int lane_index() {
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// The same number (x + -0 is x), but nothing that compilers can see through: they choose its register anew. Sums that end
// in vectors would lie in the banks of the register file that vectors of operands are in, and each product wait for both.
__device__ __forceinline__ float fresh_register(float value) {
  int threads;  // along y: one in every launch
  asm("mov.u32 %0, %%ntid.y;" : "=r"(threads));
  return value + (threads == 1 ? -0.0f : 0.0f);
}

// shfl.sync.bfly: the value of lane (lane ^ lane_mask). T is float, int or unsigned.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int lane_mask, unsigned mask = kFullWarp) {
  return __shfl_xor_sync(mask, value, lane_mask);
}
// shfl.sync.down: the value of lane (lane + delta), one's own past the end of the warp.
template <class T>
__device__ __forceinline__ T shuffle_down(T value, int delta, unsigned mask = kFullWarp) {
  return __shfl_down_sync(mask, value, delta);
}
// shfl.sync.idx: the value of lane `source` modulo 32.
template <class T>
__device__ __forceinline__ T shuffle(T value, int source, unsigned mask = kFullWarp) {
  return __shfl_sync(mask, value, source);
}

// The value of lane 0, of what is the same in all lanes: compilers then know that it is, and keep what is computed of it in
// registers of the warp, where operands of wgmma have to be.
template <class T>
__device__ __forceinline__ T broadcast(T value) {
  return shuffle(value, 0);
}

// vote.sync.ballot: bit i is lane i's predicate.
__device__ __forceinline__ unsigned warp_ballot(bool predicate, unsigned mask = kFullWarp) {
  return __ballot_sync(mask, predicate);
}
// vote.sync.any, vote.sync.all
__device__ __forceinline__ bool warp_any(bool predicate, unsigned mask = kFullWarp) {
  return __any_sync(mask, predicate);
}
__device__ __forceinline__ bool warp_all(bool predicate, unsigned mask = kFullWarp) {
  return __all_sync(mask, predicate);
}

// Whether `value` is true in all of the block's first kThreads threads, whole warps, that come here (PTX ISA, "bar").
template <int kThreads>
__device__ __forceinline__ bool all_agree(bool value) {
  static_assert(kThreads % 32 == 0, "barriers count whole warps");
  int all;
  asm volatile(
      "{\n.reg .pred own, all;\nsetp.ne.s32 own, %1, 0;\nbar.red.and.pred all, 2, %2, own;\nselp.s32 %0, 1, 0, all;\n}"
      : "=r"(all)
      : "r"(int(value)), "n"(kThreads)
      : "memory");
  return warp_any(all);  // which compilers know to be the same for the warp, and with it loops and what they count
}
