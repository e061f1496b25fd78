// What value_real.h and noisy.h need of the standard library and of core/base/dtype_info.h, for programs on a GPU. Stands in
// front of their texts, behind the rows of dtypes (reference_program.cc); needs device/types.cuh and the functions of CUDA.

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

__device__ inline bool is_narrow(DType dtype) { return dtype_info(dtype).kind == DTypeClass::narrow; }
__device__ inline bool is_float(DType dtype) { return is_narrow(dtype) || dtype == DType::f32; }
__device__ inline double power_of_two(int exponent) {
  return bit_cast<double>(static_cast<long long>(exponent + 1023) << 52);
}
__device__ inline double relative_rounding(DType dtype) { return power_of_two(-1 - dtype_info(dtype).mantissa); }
__device__ inline double least_rounding(DType dtype) {
  return power_of_two(dtype_info(dtype).least_exponent - dtype_info(dtype).mantissa - 1);
}

// To nearest even, in one step.
__device__ inline double round_to_narrow(double value, const DTypeInfo& to) {
  if (value != value) return value;
  int exponent = int(bit_cast<long long>(value) >> 52 & 0x7ff) - 1023;
  if (exponent < to.least_exponent) exponent = to.least_exponent;
  const double unit = power_of_two(exponent - to.mantissa);
  const double rounded = std::isfinite(value) ? std::rint(value / unit) * unit : value;
  if (std::fabs(rounded) <= to.largest) return rounded;
  return std::copysign(to.infinities ? std::numeric_limits<double>::infinity() : to.largest, value);
}

__device__ inline double round_to(DType dtype, double value) {
  switch (dtype_info(dtype).kind) {
    case DTypeClass::narrow:
      return round_to_narrow(value, dtype_info(dtype));
    case DTypeClass::wide:
      return static_cast<float>(value);
    case DTypeClass::integer:
      if (value != value) return 0;
      return value <= -2147483648.0 ? -2147483648.0 : value >= 2147483647.0 ? 2147483647.0 : double(int(value));
    default:
      return value != 0;
  }
}

}  // namespace exact
