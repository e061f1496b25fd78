// What is built from the other files in plain C++: wrapping integers, exponentials, vector accesses, warp reductions. This
// file is also compiled by the emulator's host compiler.

// i32 arithmetic that wraps, where C++ would leave overflow undefined; the larger and the smaller of two.
__device__ __forceinline__ int wrap_add(int a, int b) { return int(unsigned(a) + unsigned(b)); }
__device__ __forceinline__ int wrap_sub(int a, int b) { return int(unsigned(a) - unsigned(b)); }
__device__ __forceinline__ int wrap_mul(int a, int b) { return int(unsigned(a) * unsigned(b)); }
__device__ __forceinline__ int wrap_neg(int a) { return int(0u - unsigned(a)); }
// The absolute value of -2^31 is itself.
__device__ __forceinline__ int wrap_abs(int a) { return a < 0 ? wrap_neg(a) : a; }
__device__ __forceinline__ int max_int(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ int min_int(int a, int b) { return b < a ? b : a; }

// 2^128 is a constant that overflows; bits do not.
__device__ __forceinline__ float infinity() { return bit_cast<float>(0x7f800000u); }
__device__ __forceinline__ float quiet_nan() { return bit_cast<float>(0x7fc00000u); }

// The quotient by a constant, or by a divisor that many values have: what is made of the divisor alone compilers make once, and
// there is no branch. Exact to two units in the last place, to half of one (Markstein 1990) where neither is near the ends of its
// range. Small and large divisors are brought to the middle, and the values with them; an infinite one leaves 0. Zeros have their
// sign; a quotient within a unit of the largest number may be an infinity.
__device__ __forceinline__ float divide_common(float value, float divisor) {
  const float size = fabsf(divisor), large = bit_cast<float>(0x5f800000u), small = bit_cast<float>(0x1f800000u);  // 2^64, 2^-64
  const float scale = size < small ? large : size > large ? small : 1.0f;
  const float scaled = divisor * scale, reciprocal = 1.0f / scaled;
  const float number = reciprocal == 0.0f ? 0.0f : scaled, numerator = value * scale;
  const float quotient = numerator * reciprocal;
  const float rounded = fmaf(fmaf(-quotient, number, numerator), reciprocal, quotient);
  return fabsf(quotient) < infinity() && quotient != 0.0f ? rounded : quotient;
}

// exp: exact to some 2^-21 of the result where that is not near the ends of its range.
__device__ __forceinline__ float exp_fast(float value) { return exp2_fast(value * 1.44269504f); }
// The same of value * scale - shift by one fma: its argument has an error of some 2^-23 of `shift`.
__device__ __forceinline__ float exp_shifted(float value, float scale, float shift) {
  return exp2_fast(fmaf(value, scale * 1.44269504f, shift * -1.44269504f));
}
// Where the shift is 2^19 or more, which would make that 2^-3, both are brought below by a power of two. Made of the
// shift alone, so once for a row, and without a branch or a division: what compilers call a function for in each element
// is slow, and beside wgmma they lose registers by it. An infinite shift stays what it is.
__device__ __forceinline__ float exp_bound(float shift) {
  const unsigned exponent = __float_as_uint(shift) >> 23 & 255;
  return (exponent > 145 && exponent < 255 ? __uint_as_float((272 - exponent) << 23) : 1.0f) * 1.44269504f;
}
__device__ __forceinline__ float exp_shifted_bounded(float value, float scale, float shift) {
  const float bound = exp_bound(shift);
  return exp2_fast(fmaf(value, scale * bound, -shift * bound));
}

// The same, scaled by 2^-down, a whole number: a part of the exponent.
__device__ __forceinline__ float exp_fast(float value, float down) {
  return exp2_fast(fmaf(value, 1.44269504f, -down));
}
__device__ __forceinline__ float exp_shifted(float value, float scale, float shift, float down) {
  return exp2_fast(fmaf(value, scale * 1.44269504f, fmaf(shift, -1.44269504f, -down)));
}
__device__ __forceinline__ float exp_shifted_bounded(float value, float scale, float shift, float down) {
  const float bound = exp_bound(shift);
  return exp2_fast(fmaf(value, scale * bound, fmaf(-shift, bound, -down)));
}

// Of the words of neighbouring lanes, two of two or four of four, word i of lane j becomes word j of lane i. By all lanes
// of the warp.
template <class T, int kCount>
__device__ __forceinline__ void exchange_words(Vector<T, kCount>& elements) {
  constexpr int kWords = sizeof(T) * kCount / 4;
  static_assert(kWords == 2 || kWords == 4, "as many words as lanes");
  Vector<unsigned, kWords> words = bit_cast<Vector<unsigned, kWords>>(elements);
#pragma unroll
  for (int bit = 1; bit < kWords; bit *= 2) {
    const bool upper = lane_index() & bit;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (i & bit) continue;
      const unsigned got = shuffle_xor(upper ? words[i] : words[i | bit], bit);
      words[i] = upper ? got : words[i];
      words[i | bit] = upper ? words[i | bit] : got;
    }
  }
  elements = bit_cast<Vector<T, kCount>>(words);
}

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
// warp. `combine(x, y)` is commutative.
template <int kLanes = 32, class T, class Combine>
__device__ __forceinline__ T warp_reduce(T value, Combine combine) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) value = combine(value, shuffle_xor(value, step));
  return value;
}

// Reductions over a block of kWarps warps, every thread of which calls and gets the result. `scratch` has
// kWarps elements in shared memory that nothing else uses between the barriers before and after the call.
template <int kWarps, class T, class Combine>
__device__ __forceinline__ T block_reduce(T value, T* scratch, Combine combine) {
  value = warp_reduce(value, combine);
  if (lane_index() == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) value = combine(value, scratch[warp]);
  return value;
}
