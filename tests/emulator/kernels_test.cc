// Whole kernels, as a code generator would write them, against a plain computation in double.
#include <cmath>
#include <random>

#include "tests/emulator/matmul_kernel.h"
#include "tests/emulator/run_support.h"
#include "tests/support/test.h"

namespace quern::emulated {

namespace {

// Random elements of `dtype` as they lie in memory, and as doubles.
struct RandomTensor {
  RandomTensor(DType dtype, int64_t length, uint64_t seed)
      : bytes(length * dtype_size(dtype), '\0'), values(length) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < length; ++i) {
      store_element(bytes.data(), dtype, i, normal(random));
      values[i] = load_element(bytes.data(), dtype, i);
    }
  }
  std::string bytes;
  std::vector<double> values;
};

Program compile(const std::string& text, std::vector<std::string> kernels = {"kernel"}) {
  auto program = compile_program({text, std::move(kernels)});
  assert_ok(program);
  return std::move(*program);
}

void assert_near(double value, double expected, double tolerance) {
  if (!(std::fabs(value - expected) <= tolerance))
    fail_test("got " + std::to_string(value) + ", expected " + std::to_string(expected));
}

void check_matmul(DType dtype, int64_t m, int64_t n, int64_t k) {
  static Program programs[] = {compile(matmul_kernel("f16")), compile(matmul_kernel("bf16"))};
  RandomTensor a(dtype, m * k, 1), b(dtype, k * n, 2);
  Plan plan = make_plan({make_tensor("a", dtype, m * k), make_tensor("b", dtype, k * n)},
                        {make_tensor("c", DType::f32, m * n)},
                        {static_cast<uint32_t>((n + 31) / 32), static_cast<uint32_t>((m + 31) / 32)}, {64});
  for (int64_t extent : {m, n, k}) plan.launches[0].args.push_back({LaunchArg::Kind::integer, extent});
  auto outputs = run_plan(programs[dtype == DType::bf16], plan, {a.bytes, b.bytes});
  assert_ok(outputs);
  std::vector<float> c = from_bytes<float>(outputs->front());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += a.values[i * k + l] * b.values[l * n + j];
        magnitude += std::fabs(a.values[i * k + l] * b.values[l * n + j]);
      }
      assert_near(c[i * n + j], sum, k * magnitude * 0x1p-24);
    }
  }
}

void multiplies_whole_tiles(void**) {
  check_matmul(DType::f16, 64, 64, 96);
  check_matmul(DType::bf16, 32, 64, 64);
}
void multiplies_ragged_tiles(void**) {
  check_matmul(DType::f16, 45, 40, 72);
  check_matmul(DType::bf16, 1, 8, 8);
  check_matmul(DType::f16, 33, 72, 24);
}

void multiplies_in_tf32(void**) {
  static Program program = compile(R"(
// One warp: c (16 x 8) = a (16 x 8) * b (8 x 8).
extern "C" __global__ void kernel(const float* a, const float* b, float* c) {
  int group = lane_index() / 4, pair = lane_index() % 4;
  unsigned fragment_a[4], fragment_b[2];
  for (int r = 0; r < 4; ++r) fragment_a[r] = to_tf32(a[(group + r % 2 * 8) * 8 + pair + r / 2 * 4]);
  for (int r = 0; r < 2; ++r) fragment_b[r] = to_tf32(b[(pair + r * 4) * 8 + group]);
  float d[4] = {};
  mma_m16n8k8_tf32(d, fragment_a, fragment_b);
  for (int r = 0; r < 4; ++r) c[(group + r / 2 * 8) * 8 + pair * 2 + r % 2] = d[r];
})");
  RandomTensor a(DType::f32, 128, 3), b(DType::f32, 64, 4);
  Plan plan = make_plan({make_tensor("a", DType::f32, 128), make_tensor("b", DType::f32, 64)},
                        {make_tensor("c", DType::f32, 128)}, {1}, {32});
  auto outputs = run_plan(program, plan, {a.bytes, b.bytes});
  assert_ok(outputs);
  double largest = 0;
  for (int i = 0; i < 128; ++i) {
    double sum = 0, magnitude = 0;
    for (int l = 0; l < 8; ++l) {
      sum += a.values[i / 8 * 8 + l] * b.values[l * 8 + i % 8];
      magnitude += std::fabs(a.values[i / 8 * 8 + l] * b.values[l * 8 + i % 8]);
    }
    const double error = std::fabs(load_element(outputs->front().data(), DType::f32, i) - sum);
    assert_near(error, 0, magnitude * 0x1p-10);
    largest = std::max(largest, error);
  }
  assert_true(largest > 1e-5);  // the operands were rounded: this is not f32
}

// Two launches: every block sums a part into the workspace, one block sums the parts.
void reduces_through_the_workspace(void**) {
  static Program program = compile(R"(
__device__ float block_sum(float value, float* scratch) {
  value = warp_reduce(value, [](float a, float b) { return a + b; });
  if (lane_index() == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < int(blockDim.x) / 32; ++warp) sum += scratch[warp];
  return sum;
}
extern "C" __global__ void partial(const f16* __restrict__ x, float* __restrict__ parts, long long n) {
  __shared__ float scratch[4];
  float sum = 0;
  for (long long i = blockIdx.x * 128 + threadIdx.x; i < n; i += 128 * gridDim.x) sum += to_float(x[i]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
extern "C" __global__ void total(const float* __restrict__ parts, f16* __restrict__ y, long long count) {
  __shared__ float scratch[1];
  float sum = block_sum(threadIdx.x < count ? parts[threadIdx.x] : 0.0f, scratch);
  if (threadIdx.x == 0) *y = from_float<f16>(sum);
})",
                                   {"partial", "total"});
  constexpr int64_t kLength = 1027, kBlocks = 3;
  RandomTensor x(DType::f16, kLength, 5);
  Plan plan =
      make_plan({make_tensor("x", DType::f16, kLength)}, {make_tensor("y", DType::f16, 1)}, {}, {}, 0, 512);
  using Kind = LaunchArg::Kind;
  plan.launches = {
      {"partial",
       {kBlocks},
       {128},
       {},
       0,
       {{Kind::input, 0}, {Kind::workspace, 256}, {Kind::integer, kLength}}},
      {"total", {1}, {32}, {}, 0, {{Kind::workspace, 256}, {Kind::output, 0}, {Kind::integer, kBlocks}}}};
  auto outputs = run_plan(program, plan, {x.bytes});
  assert_ok(outputs);
  double sum = 0;
  for (double value : x.values) sum += value;
  assert_near(load_element(outputs->front().data(), DType::f16, 0), sum, std::fabs(sum) * 0x1p-11 + 1e-3);

  std::swap(plan.launches[0], plan.launches[1]);
  assert_error(run_plan(program, plan, {x.bytes}), ErrorCode::INTERNAL,
               "uninitialised read of the workspace");
}

// Every coordinate of a launch in three dimensions, with a block that is no multiple of a warp.
void numbers_threads_and_blocks(void**) {
  static Program program = compile(R"(
extern "C" __global__ void kernel(const int* x, int* y) {
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int threads = blockDim.x * blockDim.y * blockDim.z;
  y[block * threads + thread] = x[0] + block * 1000 + thread + (lane_index() == thread % 32 ? 0 : -1);
})");
  Plan plan = make_plan({make_tensor("x", DType::i32, 1)}, {make_tensor("y", DType::i32, 24 * 42)}, {2, 3, 4},
                        {7, 3, 2});
  auto outputs = run_plan(program, plan, {to_bytes(std::vector<int>{5})});
  assert_ok(outputs);
  for (int i = 0; i < 24 * 42; ++i)
    assert_int_equal(static_cast<int>(load_element(outputs->front().data(), DType::i32, i)),
                     5 + i / 42 * 1000 + i % 42);
}

// Empty tensors have buffers of no bytes; gaps between the elements of an output need not be written.
void takes_empty_and_strided_tensors(void**) {
  static Program program = compile(R"(
extern "C" __global__ void kernel(const f16* x, const bf16* none, bool* y, float* nothing) {
  y[3 * threadIdx.x] = to_float(x[2 * threadIdx.x]) > 0;
})");
  Plan plan = make_plan({{"x", DType::f16, {4}, {2}}, {"none", DType::bf16, {0, 7}, {7, 1}}},
                        {{"y", DType::boolean, {4}, {3}}, {"nothing", DType::f32, {3, 0}, {0, 1}}}, {1}, {4});
  std::string x(14, '\0');
  for (int i = 0; i < 4; ++i) store_element(x.data(), DType::f16, 2 * i, i % 2 ? 1 : -1);
  auto outputs = run_plan(program, plan, {x, ""});
  assert_ok(outputs);
  assert_int_equal(outputs->at(0).size(), 10);
  for (int i = 0; i < 4; ++i) assert_int_equal(outputs->at(0)[3 * i], i % 2);
  assert_true(outputs->at(1).empty());
}

void reads_constants(void**) {
  static Program program = compile(R"(
__constant__ int kPrimes[5] = {2, 3, 5, 7, 11};
extern "C" __global__ void kernel(const int* x, int* y) { y[threadIdx.x] = kPrimes[x[threadIdx.x]]; })");
  Plan plan = make_plan({make_tensor("x", DType::i32, 5)}, {make_tensor("y", DType::i32, 5)}, {1}, {5});
  auto outputs = run_plan(program, plan, {to_bytes(std::vector<int>{4, 3, 2, 1, 0})});
  assert_ok(outputs);
  assert_true(outputs->front() == to_bytes(std::vector<int>{11, 7, 5, 3, 2}));
  assert_error(run_plan(program, plan, {to_bytes(std::vector<int>{4, 3, 5, 1, 0})}), ErrorCode::INTERNAL,
               "index out of the bounds of an array");
}

}  // namespace

}  // namespace quern::emulated

int main() {
  using namespace quern::emulated;
  const CMUnitTest tests[] = {
      cmocka_unit_test(multiplies_whole_tiles),
      cmocka_unit_test(multiplies_ragged_tiles),
      cmocka_unit_test(multiplies_in_tf32),
      cmocka_unit_test(reduces_through_the_workspace),
      cmocka_unit_test(numbers_threads_and_blocks),
      cmocka_unit_test(takes_empty_and_strided_tensors),
      cmocka_unit_test(reads_constants),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
