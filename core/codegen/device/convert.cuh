// Conversions between element types and float: rounding to nearest even, subnormals kept, NaN stays NaN.

// cvt.f32.f16: exact.
__device__ __forceinline__ float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
// A shift: exact.
__device__ __forceinline__ float to_float(bf16 value) { return __uint_as_float(unsigned(value.bits) << 16); }
__device__ __forceinline__ float to_float(float value) { return value; }
// cvt.rn.f32.s32
__device__ __forceinline__ float to_float(int value) { return __int2float_rn(value); }
__device__ __forceinline__ float to_float(bool value) { return value ? 1.0f : 0.0f; }

template <class T>
__device__ __forceinline__ T from_float(float value);

// cvt.rn.f16.f32: overflow gives infinity.
template <>
__device__ __forceinline__ f16 from_float<f16>(float value) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
// cvt.rn.bf16.f32 (sm_80)
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
// cvt.rzi.s32.f32: towards zero, saturating, NaN to 0.
template <>
__device__ __forceinline__ int from_float<int>(float value) {
  return __float2int_rz(value);
}
// NaN is true.
template <>
__device__ __forceinline__ bool from_float<bool>(float value) {
  return value != 0.0f;
}

// Two floats in one 32-bit register, `low` in the low half: the order of mma fragments and of memory.
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high);

// cvt.rn.f16x2.f32 (its first source is the high half)
template <>
__device__ __forceinline__ unsigned pack<f16>(float low, float high) {
  unsigned result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
// cvt.rn.bf16x2.f32 (sm_80)
template <>
__device__ __forceinline__ unsigned pack<bf16>(float low, float high) {
  unsigned result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// cvt.rna.tf32.f32: to nearest, ties away from zero; the operand format of mma_m16n8k8_tf32.
__device__ __forceinline__ unsigned to_tf32(float value) {
  unsigned result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
}

// An f32 number as the sum of two of tf32 (3xTF32): high is the nearest one, low what it leaves, of which
// tensor cores read the bits of tf32 and no others. High is finite, so that an infinity or NaN is in low alone,
// and low * high of the other operand makes of it what the product makes; high * high and high * low have the
// same sign.
__device__ __forceinline__ unsigned tf32_high(unsigned number) {
  const float most = __uint_as_float(0x7f7fe000u);
  float finite;
#if __CUDA_ARCH__ >= 860
  asm("min.xorsign.abs.f32 %0, %1, %2;" : "=f"(finite) : "f"(__uint_as_float(number)), "f"(most));
#else
  finite = fminf(fmaxf(__uint_as_float(number), -most), most);
#endif
  return (__float_as_uint(finite) + 0x1000u) & 0xffffe000u;
}
__device__ __forceinline__ unsigned tf32_low(unsigned number) {
  return __float_as_uint(__uint_as_float(number) - __uint_as_float(tf32_high(number)));
}

// ex2.approx.ftz.f32: 2 to the power of value, exact to some 2^-22 of the result, 0 where it would be subnormal.
__device__ __forceinline__ float exp2_fast(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}
// div.full.f32, sqrt.approx.f32: exact to 2 and 1 units in the last place, without branches.
__device__ __forceinline__ float divide_fast(float a, float b) {
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float sqrt_fast(float value) {
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// max.NaN.f32, min.NaN.f32 (sm_80): NaN if either is NaN, unlike fmaxf and fminf.
__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ __forceinline__ float min_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// Elements `low` and `high` of words that hold two each, as one word: prmt.
__device__ __forceinline__ unsigned join_halves(const unsigned* words, int low, int high) {
  return __byte_perm(words[low / 2], words[high / 2], (low % 2 ? 0x32 : 0x10) | (high % 2 ? 0x7600 : 0x5400));
}
