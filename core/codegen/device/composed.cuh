// What is built from the other files in plain C++: wrapping integers, vector accesses, warp reductions. This
// file is also compiled by the emulator's host compiler.

// i32 arithmetic that wraps, where C++ would leave overflow undefined.
__device__ __forceinline__ int wrap_add(int a, int b) { return int(unsigned(a) + unsigned(b)); }
__device__ __forceinline__ int wrap_sub(int a, int b) { return int(unsigned(a) - unsigned(b)); }
__device__ __forceinline__ int wrap_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }
__device__ __forceinline__ int wrap_neg(int a) { return int(0u - unsigned(a)); }
// The absolute value of -2^31 is itself.
__device__ __forceinline__ int wrap_abs(int a) { return a < 0 ? wrap_neg(a) : a; }

// One access of 1, 2, 4, 8 or 16 bytes; `p` is aligned to it.
template <class T, int kCount>
__device__ __forceinline__ Vector<T, kCount> load_vector(const void* p) {
  return *static_cast<const Vector<T, kCount>*>(p);
}
template <class T, int kCount>
__device__ __forceinline__ void store_vector(void* p, const Vector<T, kCount>& value) {
  *static_cast<Vector<T, kCount>*>(p) = value;
}

// Reductions over the kLanes (a power of two) neighbouring lanes that share lane / kLanes; every lane of the
// warp takes part and every lane gets the result, the same bits in all of a group. Five shuffles for a whole
// warp.
template <int kLanes = 32>
__device__ __forceinline__ float warp_reduce_sum(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value += shuffle_xor(value, step);
  return value;
}
template <int kLanes = 32>
__device__ __forceinline__ int warp_reduce_sum(int value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value = wrap_add(value, shuffle_xor(value, step));
  return value;
}
// NaN if any is NaN.
template <int kLanes = 32>
__device__ __forceinline__ float warp_reduce_max(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value = max_nan(value, shuffle_xor(value, step));
  return value;
}
template <int kLanes = 32>
__device__ __forceinline__ int warp_reduce_max(int value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    int other = shuffle_xor(value, step);
    value = other > value ? other : value;
  }
  return value;
}
