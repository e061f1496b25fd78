// Products of a warpgroup, four warps that begin at a multiple of four (PTX ISA, "Asynchronous Warpgroup Level
// Matrix Multiply-Accumulate Operations", sm_90a): D[64, n] += A[64, 16] * B[16, n], n = 8, 16, ... 256,
// or = without `add`. The tensor cores work beside the threads: between a product and wgmma_wait nobody touches its sums
// or writes its operands.
// Shared memory that ordinary stores or cp.async have written needs fence_proxy_async and a barrier first.
// All four warps do the same. With lane = 4 * group + pair, warp w of the four:
//   sums[4 j], [4 j + 1]      D[16 w + group][8 j + 2 pair], [.. + 1]
//   sums[4 j + 2], [4 j + 3]  the same at row group + 8
//   a[0 .. 3]                 rows 16 w .. as mma_m16n8k16 takes them

// Orders what the threads did with registers before what the next products do with them.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products since the last commit become one group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kPending of the latest groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Behind a wait, for sums that are now there: the compiler must not have read them before.
template <int kCount>
__device__ __forceinline__ void wgmma_landed(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
// In front of a wait: what makes `value` is done before. ptxas (CUDA 13.0) moves it behind the wait unless something is left
// there that depends on it; this is a load of a word that nobody looks at, of dynamic shared memory, and only where `value` is
// negative, as sums of exponentials never are.
__device__ __forceinline__ void schedule_fence(float value) {
  asm volatile(
      "{\n.reg .pred needed;\n.reg .u32 word;\nsetp.lt.f32 needed, %0, 0f00000000;\n"
      "@needed ld.volatile.shared.u32 word, [%1];\n}" ::"f"(value),
      "r"(shared_address(dynamic_shared<unsigned char>()))
      : "memory");
}

// Registers of a warpgroup's threads that are left to the block's other warps, and taken from it, once they are there (PTX
// ISA, "setmaxnreg"): a whole number of eights. For kernels whose registers the launch bounds say.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// An operand in shared memory, in panels with rows of kSwizzle (32, 64, 128) bytes as tma_load leaves them. The rows
// run along the inner dimension k of the product, or if kTurned along the other one. Panels begin kPanel bytes from
// each other, and eight rows kStep bytes after the eight before. The first of eight rows begins `elements`, a whole number
// of eights, behind `at`.
template <int kSwizzle, bool kTurned, int kPanel, int kStep>
struct SharedOperand {
  const void* at;
  int elements = 0;
  // PTX ISA, "Shared Memory Matrix Layout": matrix descriptor.
  __device__ __forceinline__ unsigned long long descriptor() const {
    static_assert(kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128, "swizzles are 32, 64 or 128 bytes");
    constexpr unsigned kMode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
    const unsigned low = ((shared_address(at) & 0x3ffff) >> 4) + elements / 8 | unsigned(kPanel >> 4) << 16;
    return static_cast<unsigned long long>(unsigned(kStep >> 4) | kMode << 30) << 32 | low;
  }
};

// The instructions of one shape: what a program uses of them follows this text.
template <class T, int kColumns>
struct WgmmaShape;

template <class T, int kColumns, int kSwizzleA, bool kTurnedA, int kPanelA, int kStepA, int kSwizzleB, bool kTurnedB,
          int kPanelB, int kStepB>
__device__ __forceinline__ void wgmma(float* sums, SharedOperand<kSwizzleA, kTurnedA, kPanelA, kStepA> a,
                                      SharedOperand<kSwizzleB, kTurnedB, kPanelB, kStepB> b, bool add = true) {
  WgmmaShape<T, kColumns>::template multiply<kTurnedA, kTurnedB>(sums, a.descriptor(), b.descriptor(), add);
}
template <class T, int kColumns, int kSwizzleB, bool kTurnedB, int kPanelB, int kStepB>
__device__ __forceinline__ void wgmma(float* sums, const unsigned* a,
                                      SharedOperand<kSwizzleB, kTurnedB, kPanelB, kStepB> b, bool add = true) {
  WgmmaShape<T, kColumns>::template multiply<kTurnedB>(sums, a, b.descriptor(), add);
}
