// The host versions of CUDA's functions and of the prelude functions that hold PTX
// (core/codegen/device/*.cuh, where they are described). The text of this file stands between
// prelude_types_text() and prelude_composed_text() in every program that the emulator compiles; the library
// itself does not include it.

extern "C" {
double exp(double);
double log(double);
double sqrt(double);
double tanh(double);
double erf(double);
double pow(double, double);
double fabs(double);
double rint(double);
double copysign(double, double);
float sqrtf(float);
float expf(float);
float exp2f(float);
float expm1f(float);
float logf(float);
float log2f(float);
float log1pf(float);
float tanhf(float);
float erff(float);
float erfcf(float);
float powf(float, float);
float sinf(float);
float cosf(float);
float fabsf(float);
float floorf(float);
float ceilf(float);
float truncf(float);
float rintf(float);
float fmodf(float, float);
float fminf(float, float);
float fmaxf(float, float);
float fmaf(float, float, float);
float copysignf(float, float);
}
__device__ __forceinline__ float rsqrtf(float a) { return 1.0f / sqrtf(a); }
__device__ __forceinline__ float __expf(float a) { return expf(a); }
__device__ __forceinline__ float exp2_fast(float a) { return exp2f(a); }
__device__ __forceinline__ float divide_fast(float a, float b) { return a / b; }
__device__ __forceinline__ float sqrt_fast(float a) { return sqrtf(a); }
__device__ __forceinline__ float __logf(float a) { return logf(a); }
__device__ __forceinline__ float __log2f(float a) { return log2f(a); }
__device__ __forceinline__ float __fdividef(float a, float b) { return a / b; }
__device__ __forceinline__ float __fadd_rn(float a, float b) { return a + b; }
__device__ __forceinline__ float __fsub_rn(float a, float b) { return a - b; }
__device__ __forceinline__ float __fmul_rn(float a, float b) { return a * b; }
__device__ __forceinline__ float __fdiv_rn(float a, float b) { return a / b; }
__device__ __forceinline__ float __frcp_rn(float a) { return 1.0f / a; }
__device__ __forceinline__ float __fsqrt_rn(float a) { return sqrtf(a); }
__device__ __forceinline__ float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ bool isnan(float a) { return a != a; }
__device__ __forceinline__ bool isinf(float a) { return __builtin_isinf(a); }
__device__ __forceinline__ int min(int a, int b) { return b < a ? b : a; }
__device__ __forceinline__ int max(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
__device__ __forceinline__ unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
__device__ __forceinline__ long long min(long long a, long long b) { return b < a ? b : a; }
__device__ __forceinline__ long long max(long long a, long long b) { return a < b ? b : a; }
__device__ __forceinline__ unsigned __float_as_uint(float a) { return bit_cast<unsigned>(a); }
__device__ __forceinline__ int __float_as_int(float a) { return bit_cast<int>(a); }
__device__ __forceinline__ float __uint_as_float(unsigned a) { return bit_cast<float>(a); }
__device__ __forceinline__ float __int_as_float(int a) { return bit_cast<float>(a); }
__device__ __forceinline__ float __int2float_rn(int a) { return float(a); }
__device__ __forceinline__ int __float2int_rz(float a) {
  if (a != a) return 0;
  if (a >= 2147483648.0f) return 2147483647;
  if (a < -2147483648.0f) return -2147483647 - 1;
  return int(a);
}
template <class T>
__device__ __forceinline__ T __ldg(const T* p) {
  return *p;
}

__device__ __forceinline__ void __syncthreads() { quern::emulated::barrier(); }
__device__ __forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) {
  quern::emulated::collective(quern::emulated::Collective::sync_warp, mask, nullptr);
}

template <int kThreads>
__device__ __forceinline__ bool all_agree(bool value) {
  static_assert(kThreads % 32 == 0, "barriers count whole warps");
  quern::emulated::vote(value);
  quern::emulated::named_barrier(2, kThreads);
  return quern::emulated::voted();
}

// convert.cuh: narrow floats as their rows say; a shift keeps what a NaN holds.
template <class T>
__device__ __forceinline__ decltype(T::bits, 0.0f) to_float(T value) {
  return quern::emulated::to_float(Narrow<T>::kNumber, value.bits);
}
__device__ __forceinline__ float to_float(bf16 value) { return __uint_as_float(unsigned(value.bits) << 16); }
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(int value) { return __int2float_rn(value); }
__device__ __forceinline__ float to_float(bool value) { return value ? 1.0f : 0.0f; }

template <class T>
__device__ __forceinline__ T from_float(float value) {
  T result;
  result.bits = quern::emulated::from_float(Narrow<T>::kNumber, value);
  return result;
}
template <>
__forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__forceinline__ int from_float<int>(float value) {
  return __float2int_rz(value);
}
template <>
__forceinline__ bool from_float<bool>(float value) {
  return value != 0.0f;
}
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  return unsigned(from_float<T>(low).bits) | unsigned(from_float<T>(high).bits) << 16;
}
// Adding half of the last kept place rounds the magnitude to nearest, ties away; infinities pass, and a NaN
// becomes that of the GPU, without the bits that tf32 has not.
__device__ __forceinline__ unsigned to_tf32(float value) {
  unsigned bits = __float_as_uint(value);
  if (value != value) return 0x7fffe000u;
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & 0xffffe000u;
}
// Low without the bits that tensor cores do not read.
__device__ __forceinline__ unsigned tf32_high(unsigned number) {
  const float most = __uint_as_float(0x7f7fe000u);
  return (__float_as_uint(fminf(fmaxf(__uint_as_float(number), -most), most)) + 0x1000u) & 0xffffe000u;
}
__device__ __forceinline__ unsigned tf32_low(unsigned number) {
  return __float_as_uint(__uint_as_float(number) - __uint_as_float(tf32_high(number))) & 0xffffe000u;
}
__device__ __forceinline__ float max_nan(float a, float b) {
  if (a != a || b != b) return __builtin_nanf("");
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a < b ? b : a;
}
__device__ __forceinline__ float min_nan(float a, float b) {
  if (a != a || b != b) return __builtin_nanf("");
  if (a == b) return __builtin_signbit(a) ? a : b;
  return b < a ? b : a;
}

__device__ __forceinline__ unsigned join_halves(const unsigned* words, int low, int high) {
  return (words[low / 2] >> (low % 2 * 16) & 0xffffu) | (words[high / 2] >> (high % 2 * 16) << 16);
}

// memory.cuh
template <class T, int kCount, bool kStreaming>
__device__ __forceinline__ Vector<T, kCount> load_vector_written(const void* p) {
  static_assert(sizeof(T) * kCount >= 4, "4, 8 or 16 bytes");
  return *static_cast<const Vector<T, kCount>*>(p);
}
template <class T, int kCount>
__device__ __forceinline__ Vector<T, kCount> load_vector_streaming(const void* p) {
  quern::emulated::read_constant(p, sizeof(T) * kCount);
  return load_vector_written<T, kCount, true>(p);
}
template <class T, int kCount, bool kStreaming>
__device__ __forceinline__ Vector<T, kCount> load_vector_now(const void* p) {
  return load_vector_streaming<T, kCount>(p);
}
template <class T, int kCount>
__device__ __forceinline__ void store_vector_streaming(void* p, const Vector<T, kCount>& value) {
  *static_cast<Vector<T, kCount>*>(p) = value;
}
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  return static_cast<T*>(quern::emulated::dynamic_shared());
}

// warp.cuh
constexpr unsigned kFullWarp = 0xffffffffu;
__device__ __forceinline__ float fresh_register(float value) { return value; }
__device__ __forceinline__ int lane_index() { return quern::emulated::lane(); }

template <class T>
__device__ __forceinline__ T exchange(quern::emulated::Collective kind, T value, int lane, unsigned mask) {
  quern::emulated::ShuffleOperands operands{bit_cast<unsigned>(value), lane, 0};
  quern::emulated::collective(kind, mask, &operands);
  return bit_cast<T>(operands.result);
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int lane_mask, unsigned mask = kFullWarp) {
  return exchange(quern::emulated::Collective::shuffle_xor, value, lane_mask, mask);
}
template <class T>
__device__ __forceinline__ T shuffle_down(T value, int delta, unsigned mask = kFullWarp) {
  return exchange(quern::emulated::Collective::shuffle_down, value, delta, mask);
}
template <class T>
__device__ __forceinline__ T shuffle(T value, int source, unsigned mask = kFullWarp) {
  return exchange(quern::emulated::Collective::shuffle, value, source, mask);
}
template <class T>
__device__ __forceinline__ T broadcast(T value) {
  return shuffle(value, 0);
}
__device__ __forceinline__ unsigned warp_ballot(bool predicate, unsigned mask = kFullWarp) {
  return exchange(quern::emulated::Collective::ballot, unsigned(predicate), 0, mask);
}
__device__ __forceinline__ bool warp_any(bool predicate, unsigned mask = kFullWarp) {
  return warp_ballot(predicate, mask) != 0;
}
__device__ __forceinline__ bool warp_all(bool predicate, unsigned mask = kFullWarp) {
  return warp_ballot(!predicate, mask) == 0;
}

// mma.cuh
// What a collective reads and writes in registers is touched here, where the emulator sees it.
template <class T, int kCount>
__device__ __forceinline__ void copy_registers(T (&to)[kCount], const T (&from)[kCount]) {
  for (int i = 0; i < kCount; ++i) to[i] = from[i];
}
template <int kA, int kB>
__device__ __forceinline__ void mma_of_warp(quern::emulated::Collective kind, float (&d)[4],
                                            const unsigned (&a)[kA], const unsigned (&b)[kB]) {
  float sums[4];
  copy_registers(sums, d);
  quern::emulated::MmaOperands operands{sums, a, b};
  quern::emulated::collective(kind, kFullWarp, &operands);
  copy_registers(d, sums);
}

template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
__forceinline__ void mma_m16n8k16<f16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma_of_warp(quern::emulated::Collective::mma_f16, d, a, b);
}
template <>
__forceinline__ void mma_m16n8k16<bf16>(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma_of_warp(quern::emulated::Collective::mma_bf16, d, a, b);
}
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2]) {
  mma_of_warp(quern::emulated::Collective::mma_tf32, d, a, b);
}
template <int kCount>
__device__ __forceinline__ void ldmatrix(unsigned (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "ldmatrix loads 1, 2 or 4 matrices");
  unsigned loaded[kCount];
  quern::emulated::LdmatrixOperands operands{loaded, row, kCount};
  quern::emulated::collective(quern::emulated::Collective::ldmatrix, kFullWarp, &operands);
  copy_registers(r, loaded);
}
template <int kCount, bool kTrans>
__device__ __forceinline__ void stmatrix(void* row, const unsigned (&r)[kCount]) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "stmatrix stores 1, 2 or 4 matrices");
  quern::emulated::StmatrixOperands operands{r, row, kCount};
  quern::emulated::collective(
      kTrans ? quern::emulated::Collective::stmatrix_trans : quern::emulated::Collective::stmatrix, kFullWarp,
      &operands);
}
template <int kCount>
__device__ __forceinline__ void ldmatrix_trans(unsigned (&r)[kCount], const void* row) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4, "ldmatrix loads 1, 2 or 4 matrices");
  unsigned loaded[kCount];
  quern::emulated::LdmatrixOperands operands{loaded, row, kCount};
  quern::emulated::collective(quern::emulated::Collective::ldmatrix_trans, kFullWarp, &operands);
  copy_registers(r, loaded);
}

// async_copy.cuh
template <int kBytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, int source_bytes = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  static constexpr quern::emulated::CopyInstruction kCopy{"cp_async", true, false, kBytes, "cp_async"};
  quern::emulated::copy_bytes(kCopy, shared, global, kBytes, source_bytes);
}
__device__ __forceinline__ void cp_async_commit() { quern::emulated::commit_copies("cp_async"); }
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  quern::emulated::wait_for_copies("cp_async", kPending);
}

// cluster.cuh
__device__ __forceinline__ int cluster_rank() { return quern::emulated::cluster_rank(); }
__device__ __forceinline__ void cluster_arrive() { quern::emulated::cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { quern::emulated::cluster_wait(); }
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
template <class T, int kCount>
__device__ __forceinline__ Vector<T, kCount> load_cluster(const T* own, int rank) {
  constexpr int kWords = sizeof(T) * kCount / 4;
  static_assert(kWords == 1 || kWords == 2 || kWords == 4, "4, 8 or 16 bytes");
  return *static_cast<const Vector<T, kCount>*>(quern::emulated::cluster_address(own, rank));
}

// mbarrier.cuh
using Mbarrier = unsigned long long;
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, int arrivals) {
  quern::emulated::mbarrier_init(barrier, arrivals);
}
__device__ __forceinline__ void mbarrier_init_fence() { quern::emulated::mbarrier_init_fence(); }
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
  quern::emulated::mbarrier_arrive(barrier, 0);
}
__device__ __forceinline__ void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
  quern::emulated::mbarrier_arrive(barrier, bytes);
}
__device__ __forceinline__ void mbarrier_arrive_at(Mbarrier* barrier, int rank) {
  quern::emulated::mbarrier_arrive_at(barrier, rank);
}
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity) {
  quern::emulated::mbarrier_wait(barrier, parity);
}
template <int kThreads>
__device__ __forceinline__ void barrier_of() {
  static_assert(kThreads % 32 == 0, "barriers count whole warps");
  quern::emulated::named_barrier(1, kThreads);
}
template <int kThreads>
__device__ __forceinline__ void order_arrive(int group) {
  quern::emulated::order_barrier(3 + (group + 1) % (kThreads / 128), 256, false);
}
template <int kThreads>
__device__ __forceinline__ void order_wait(int group) {
  quern::emulated::order_barrier(3 + group, 256, true);
}
template <int kThreads>
__device__ __forceinline__ void order_begin(int group) {
  if (group == kThreads / 128 - 1) order_arrive<kThreads>(group);
}
__device__ __forceinline__ void fence_proxy_async() { quern::emulated::fence_proxy(); }

// tma.cuh
struct TensorMap {
  const void* bound;
  explicit TensorMap(unsigned long long argument) : bound(reinterpret_cast<const void*>(argument)) {}
};
template <int kRank, bool kOnce>
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Mbarrier* barrier,
                                         const int (&x)[kRank]) {
  static constexpr quern::emulated::CopyInstruction kCopy{"tma_load", true, true, 128, nullptr};
  quern::emulated::copy_box(kCopy, to, map.bound, x, kRank, barrier);
}
template <int kRank>
__device__ __forceinline__ void tma_load_multicast(void* to, const TensorMap& map, Mbarrier* barrier,
                                                   int mask, const int (&x)[kRank]) {
  static constexpr quern::emulated::CopyInstruction kCopy{"tma_load_multicast", true, true, 128, nullptr};
  quern::emulated::copy_box(kCopy, to, map.bound, x, kRank, barrier, &mask);
}
__device__ __forceinline__ void tma_prefetch(const TensorMap&) {}
template <int kRank>
__device__ __forceinline__ void tma_store(const void* from, const TensorMap& map, const int (&x)[kRank]) {
  static constexpr quern::emulated::CopyInstruction kCopy{"tma_store", false, true, 128, "tma_store"};
  quern::emulated::copy_box(kCopy, from, map.bound, x, kRank);
}
__device__ __forceinline__ void tma_store_commit() { quern::emulated::commit_copies("tma_store"); }
template <int kPending>
__device__ __forceinline__ void tma_store_wait() {
  quern::emulated::wait_for_copies("tma_store", kPending);
}

// grid.cuh
__device__ __forceinline__ void grid_wait() { quern::emulated::grid_wait(); }
__device__ __forceinline__ void grid_launch_dependents() {}

// wgmma.cuh
__device__ __forceinline__ void wgmma_collective(quern::emulated::Collective kind, int pending) {
  quern::emulated::WgmmaOperands operands{nullptr, nullptr, {}, {}, 0, false, pending};
  quern::emulated::collective(kind, kFullWarp, &operands);
}
__device__ __forceinline__ void wgmma_fence() {
  wgmma_collective(quern::emulated::Collective::wgmma_fence, 0);
}
__device__ __forceinline__ void wgmma_commit() {
  wgmma_collective(quern::emulated::Collective::wgmma_commit, 0);
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  wgmma_collective(quern::emulated::Collective::wgmma_wait, kPending);
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {}
template <int kCount>
__device__ __forceinline__ void wgmma_landed(float (&)[kCount]) {}
__device__ __forceinline__ void schedule_fence(float) {}

template <int kSwizzle, bool kTurned, int kPanel, int kStep>
struct SharedOperand {
  const void* at;
  int elements = 0;
  static_assert(kSwizzle == 32 || kSwizzle == 64 || kSwizzle == 128, "swizzles are 32, 64 or 128 bytes");
  quern::emulated::WgmmaOperand described() const {
    return {static_cast<const unsigned short*>(at) + elements, kSwizzle, kTurned, kPanel, kStep};
  }
};
template <class T>
constexpr bool kIsBf16 = false;
template <>
constexpr bool kIsBf16<bf16> = true;
__device__ __forceinline__ void take_left(quern::emulated::WgmmaOperands& operands,
                                          const unsigned* fragments) {
  operands.fragments = fragments;
}
template <int kSwizzle, bool kTurned, int kPanel, int kStep>
__device__ __forceinline__ void take_left(quern::emulated::WgmmaOperands& operands,
                                          SharedOperand<kSwizzle, kTurned, kPanel, kStep> left) {
  operands.a = left.described();
}
template <class T, int kColumns, class A, class B>
__device__ __forceinline__ void wgmma(float* sums, A a, B b, bool add = true) {
  quern::emulated::WgmmaOperands operands{sums, nullptr, {}, b.described(), kColumns, kIsBf16<T>, 0, add};
  take_left(operands, a);
  quern::emulated::collective(quern::emulated::Collective::wgmma, kFullWarp, &operands);
}
