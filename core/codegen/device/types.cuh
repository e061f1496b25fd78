// The element types of tensors on the device: f16 and bf16 are bits, arithmetic is done in float. float, int
// and bool are C++'s own. Needs nothing; this file is also compiled by the emulator's host compiler.

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

// `kCount` elements that move as one access: sizeof(T) * kCount must be 1, 2, 4, 8 or 16 bytes, and so
// aligned.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T items[kCount];
  __device__ __forceinline__ T& operator[](int i) { return items[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return items[i]; }
};

// The same bits as another type of the same size.
template <class To, class From>
__device__ __forceinline__ To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  union {
    From from;
    To to;
  } bits;
  bits.from = from;
  return bits.to;
}
