// Memory accesses that plain C++ cannot say: cache hints, and the dynamic shared memory of a launch.

namespace vector_access {

template <int kBytes>
struct Streaming;

template <>
struct Streaming<16> {
  using Bits = uint4;
  static __device__ __forceinline__ Bits load(const void* p) {
    Bits v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(__cvta_generic_to_global(p)));
    return v;
  }
  static __device__ __forceinline__ void store(void* p, Bits v) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  }
};

template <>
struct Streaming<8> {
  using Bits = uint2;
  static __device__ __forceinline__ Bits load(const void* p) {
    Bits v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
        : "=r"(v.x), "=r"(v.y)
        : "l"(__cvta_generic_to_global(p)));
    return v;
  }
  static __device__ __forceinline__ void store(void* p, Bits v) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(v.x), "r"(v.y)
                 : "memory");
  }
};

template <>
struct Streaming<4> {
  using Bits = unsigned;
  static __device__ __forceinline__ Bits load(const void* p) {
    Bits v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(p)));
    return v;
  }
  static __device__ __forceinline__ void store(void* p, Bits v) {
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(v) : "memory");
  }
};

}  // namespace vector_access

// ld.global.nc.L1::no_allocate: for data read once. `p` is in global memory, aligned to the vector, and
// nothing writes there during the launch. The vector has 4, 8 or 16 bytes.
template <class T, int kCount>
__device__ __forceinline__ Vector<T, kCount> load_vector_streaming(const void* p) {
  return bit_cast<Vector<T, kCount>>(vector_access::Streaming<sizeof(T) * kCount>::load(p));
}
// The same, past L1 only if kStreaming, and never moved behind what follows in the program: the compiler may
// otherwise wait with a load until just before its value is used, which is when it should have arrived.
template <class T, int kCount, bool kStreaming>
__device__ __forceinline__ Vector<T, kCount> load_vector_now(const void* p) {
  constexpr int kWords = sizeof(T) * kCount / 4;
  static_assert(kWords == 1 || kWords == 2 || kWords == 4, "4, 8 or 16 bytes");
  const auto from = __cvta_generic_to_global(p);
  Vector<unsigned, kWords> v;
  if constexpr (kWords == 4 && kStreaming)
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from));
  else if constexpr (kWords == 4)
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from));
  else if constexpr (kWords == 2 && kStreaming)
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v[0]), "=r"(v[1])
                 : "l"(from));
  else if constexpr (kWords == 2)
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(from));
  else
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v[0]) : "l"(from));
  return bit_cast<Vector<T, kCount>>(v);
}
// The same of data that a kernel in front wrote. This one may have begun before that one ended (grid.cuh), so what
// it reads is no constant: ld.global.nc could be moved to before the wait.
template <class T, int kCount, bool kStreaming>
__device__ __forceinline__ Vector<T, kCount> load_vector_written(const void* p) {
  constexpr int kWords = sizeof(T) * kCount / 4;
  static_assert(kWords == 1 || kWords == 2 || kWords == 4, "4, 8 or 16 bytes");
  const auto from = __cvta_generic_to_global(p);
  Vector<unsigned, kWords> v;
  if constexpr (kWords == 4 && kStreaming)
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from)
                 : "memory");
  else if constexpr (kWords == 4)
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from)
                 : "memory");
  else if constexpr (kWords == 2)
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(from) : "memory");
  else
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v[0]) : "l"(from) : "memory");
  return bit_cast<Vector<T, kCount>>(v);
}
// st.global.cs: for data that this launch does not read again. `p` as above.
template <class T, int kCount>
__device__ __forceinline__ void store_vector_streaming(void* p, const Vector<T, kCount>& value) {
  using Access = vector_access::Streaming<sizeof(T) * kCount>;
  Access::store(p, bit_cast<typename Access::Bits>(value));
}

// The dynamic shared memory of the launch (Launch::shared_bytes), 1024-byte aligned. Kernels never declare it
// themselves.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
}
