// cp.async: copies from global to shared memory that run beside the thread (sm_80). A copy may be read by its
// own thread after cp_async_wait, by the others after a barrier that follows it.

// cp.async.cg (16 bytes, past L1) or cp.async.ca (4 or 8 bytes): copies `source_bytes` <= kBytes bytes and
// fills the rest with zeros; with 0 the source is not read and may be any address. Both addresses are aligned
// to kBytes.
template <int kBytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, int source_bytes = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(global)), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(__cvta_generic_to_global(global)), "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
}

// cp.async.commit_group: the thread's copies since the last commit become one group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// cp.async.wait_group: until at most kPending of the thread's latest groups are under way. A thread waits for
// all its copies before it ends.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
