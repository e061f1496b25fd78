// Blocks of a cluster (sm_90): their barrier, and reads of each other's shared memory (PTX ISA,
// "barrier.cluster", "mapa").

// The number of the block in its cluster.
__device__ __forceinline__ int cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Every thread of the cluster that has not ended arrives, then waits: what a thread wrote before it arrived, shared memory
// included, all threads see that have waited. Before the first one it is not known that the other blocks have
// begun, and a block must not end while others read its shared memory.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// kCount elements (4, 8 or 16 bytes, aligned) that lie in block `rank` of the cluster where `own` lies here.
template <class T, int kCount>
__device__ __forceinline__ Vector<T, kCount> load_cluster(const T* own, int rank) {
  constexpr int kWords = sizeof(T) * kCount / 4;
  static_assert(kWords == 1 || kWords == 2 || kWords == 4, "4, 8 or 16 bytes");
  unsigned at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(at)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(own))), "r"(rank));
  Vector<unsigned, kWords> v;
  if constexpr (kWords == 4)
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
  else if constexpr (kWords == 2)
    asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(at) : "memory");
  else
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v[0]) : "r"(at) : "memory");
  return bit_cast<Vector<T, kCount>>(v);
}
