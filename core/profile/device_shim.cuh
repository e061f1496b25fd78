// What value_real.h and noisy.h need of the standard library and of core/base/dtype.h, for programs on a GPU. Stands in
// front of their texts; needs device/types.cuh and the functions of CUDA.

typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;

namespace std {

__device__ inline double exp(double x) { return ::exp(x); }
__device__ inline float exp(float x) { return expf(x); }
__device__ inline double log(double x) { return ::log(x); }
__device__ inline float log(float x) { return logf(x); }
__device__ inline double sqrt(double x) { return ::sqrt(x); }
__device__ inline float sqrt(float x) { return sqrtf(x); }
__device__ inline double tanh(double x) { return ::tanh(x); }
__device__ inline float tanh(float x) { return tanhf(x); }
__device__ inline double erf(double x) { return ::erf(x); }
__device__ inline float erf(float x) { return erff(x); }
__device__ inline double pow(double x, double y) { return ::pow(x, y); }
__device__ inline float pow(float x, float y) { return powf(x, y); }
__device__ inline double fabs(double x) { return ::fabs(x); }
__device__ inline float fabs(float x) { return fabsf(x); }
__device__ inline double rint(double x) { return ::rint(x); }
__device__ inline double copysign(double x, double sign) { return ::copysign(x, sign); }
__device__ inline bool isnan(double x) { return x != x; }
__device__ inline bool isfinite(double x) { return x - x == 0; }
__device__ inline bool isinf(double x) { return x == x && x - x != 0; }
__device__ inline double max(double a, double b) { return a < b ? b : a; }

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<double> {
  __device__ static double infinity() { return bit_cast<double>(0x7ff0000000000000ll); }
};
template <>
struct numeric_limits<float> {
  __device__ static float max() { return bit_cast<float>(0x7f7fffff); }
};

}  // namespace std

namespace exact {

enum class DType : uint8_t { f16 = 1, bf16 = 2, f32 = 3, i32 = 4, boolean = 5 };
__device__ inline bool is_float(DType dtype) { return dtype <= DType::f32; }

// To a binary float of so many stored bits, whose smallest normal number is 2^least and whose largest is `largest`: to
// nearest even, in one step.
__device__ inline double round_to_float(double value, int mantissa, int least, double largest) {
  if (!std::isfinite(value)) return value;
  int exponent = int(bit_cast<long long>(value) >> 52 & 0x7ff) - 1023;
  if (exponent < least) exponent = least;
  const double unit = bit_cast<double>(static_cast<long long>(exponent - mantissa + 1023) << 52);
  const double rounded = std::rint(value / unit) * unit;
  return std::fabs(rounded) <= largest ? rounded : std::copysign(std::numeric_limits<double>::infinity(), value);
}

__device__ inline double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return round_to_float(value, 10, -14, 65504);
    case DType::bf16:
      return round_to_float(value, 7, -126, 255 * 0x1p120);
    case DType::f32:
      return static_cast<float>(value);
    case DType::i32:
      if (value != value) return 0;
      return value <= -2147483648.0 ? -2147483648.0 : value >= 2147483647.0 ? 2147483647.0 : double(int(value));
    default:
      return value != 0;
  }
}

}  // namespace exact
