// TMA (sm_90) (PTX ISA, "cp.async.bulk.tensor"): one thread asks for a box of a tensor in global
// memory, and the bytes land in shared memory by themselves. The tensor is described by a map that the host
// makes (TensorMap in core/base/plan.h) and that kernels take as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

// The box at (x[0], x[1], ...), innermost dimension first; what lies outside of the tensor becomes zeros. All
// bytes of the box count at `barrier`. `to` is aligned to 128 bytes; with a swizzle of 128, 64 or 32 bytes bits
// 4.. of an address are xored with bits 7.., and whoever reads does the same. kOnce: no other block reads it.
template <int kRank, bool kOnce>
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Mbarrier* barrier, const int (&x)[kRank]) {
  static_assert(1 <= kRank && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  // L2 policies as createpolicy makes them: evict first, evict normally.
  const unsigned long long policy = kOnce ? 0x12F0000000000000ull : 0x1000000000000000ull;
  const unsigned target = shared_address(to), signal = shared_address(barrier);
  if constexpr (kRank == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3}], "
        "[%2], %4;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "l"(policy)
        : "memory");
  else if constexpr (kRank == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4}], [%2], %5;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "l"(policy)
        : "memory");
  else if constexpr (kRank == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5}], [%2], %6;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "r"(x[2]), "l"(policy)
        : "memory");
  else if constexpr (kRank == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5, %6}], [%2], %7;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(policy)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5, %6, %7}], [%2], %8;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "l"(policy)
        : "memory");
}
// The same into each block of the cluster whose bit is in `mask`, at the same place, for its own barrier there. Each of them
// has begun (cluster_sync), and announces the bytes by itself.
template <int kRank>
__device__ __forceinline__ void tma_load_multicast(void* to, const TensorMap& map, Mbarrier* barrier, int mask,
                                                   const int (&x)[kRank]) {
  static_assert(1 <= kRank && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  const unsigned long long policy = 0x1000000000000000ull;  // evict normally
  const unsigned short blocks = static_cast<unsigned short>(mask);
  const unsigned target = shared_address(to), signal = shared_address(barrier);
  if constexpr (kRank == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3}], [%2], %4, %5;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "h"(blocks), "l"(policy)
        : "memory");
  else if constexpr (kRank == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "h"(blocks), "l"(policy)
        : "memory");
  else if constexpr (kRank == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "r"(x[2]), "h"(blocks), "l"(policy)
        : "memory");
  else if constexpr (kRank == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "h"(blocks), "l"(policy)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8, %9;" ::"r"(target),
        "l"(&map), "r"(signal), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "h"(blocks), "l"(policy)
        : "memory");
}
// Fetches the map itself, which the first copy would otherwise wait for.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The box of shared memory at `from` goes to global memory, but for what lies outside of the tensor; `from` and swizzles as
// of tma_load. Each thread that wrote there has fenced its writes (fence_proxy_async) before the barrier that tells the one
// that asks. It is read, and nobody may write there, until this thread has waited for the group that it puts the store in.
template <int kRank>
__device__ __forceinline__ void tma_store(const void* from, const TensorMap& map, const int (&x)[kRank]) {
  static_assert(1 <= kRank && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  const unsigned source = shared_address(from);
  if constexpr (kRank == 1)
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];" ::"l"(&map),
                 "r"(source), "r"(x[0])
                 : "memory");
  else if constexpr (kRank == 2)
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                 "r"(source), "r"(x[0]), "r"(x[1])
                 : "memory");
  else if constexpr (kRank == 3)
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(source), "r"(x[0]), "r"(x[1]), "r"(x[2])
                 : "memory");
  else if constexpr (kRank == 4)
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                 "r"(source), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
  else
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
                 "r"(source), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4])
                 : "memory");
}
// What this thread asked for since the last group.
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the sources of all but the last kPending groups of this thread have been read. What they write can be seen when the
// kernel has ended.
template <int kPending>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
