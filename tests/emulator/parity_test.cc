// The host versions of the prelude's functions against the device versions: the same text compiles for every
// target, and where there is a GPU, it computes the same there.
#include <cmath>
#include <map>
#include <random>

#include "core/base/target.h"
#include "core/codegen/prelude.h"
#include "core/jit/compiler.h"
#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "tests/emulator/matmul_kernel.h"
#include "tests/emulator/run_support.h"
#include "tests/support/test.h"

namespace quern::emulated {

namespace {

// Conversions and arithmetic on every bit pattern of 16 bits, and on random ones of 32; one element a thread,
// x and y 32-bit words.
const char* const kConversions = R"(
extern "C" __global__ void __launch_bounds__(256) kernel(const unsigned* __restrict__ x, unsigned* __restrict__ y,
                                                         long long n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  unsigned bits = x[i], next = x[i ^ 1];
  float a = __uint_as_float(bits), b = __uint_as_float(next);
  unsigned short low = static_cast<unsigned short>(bits);
  y += i;
  y[0 * n] = __float_as_uint(to_float(f16{low}));
  y[1 * n] = __float_as_uint(to_float(bf16{low}));
  y[2 * n] = from_float<f16>(a).bits;
  y[3 * n] = from_float<bf16>(a).bits;
  y[4 * n] = from_float<int>(a);
  y[5 * n] = from_float<bool>(a) + 2 * int(from_float<float>(to_float(a > b)));
  y[6 * n] = __float_as_uint(to_float(int(bits)));
  y[7 * n] = pack<f16>(a, b);
  y[8 * n] = pack<bf16>(a, b);
  y[9 * n] = to_tf32(a) & 0xffffe000u;
  y[10 * n] = __float_as_uint(max_nan(a, b));
  y[11 * n] = __float_as_uint(min_nan(a, b));
  y[12 * n] = wrap_add(bits, next) ^ wrap_sub(bits, next) ^ wrap_mul(bits, next) ^ wrap_neg(bits) ^ wrap_abs(bits);
})";
constexpr int kConversionRows = 13;
bool is_nan_of(int row, uint32_t bits) {
  switch (row) {
    case 2:
      return (bits & 0x7fff) > 0x7c00;
    case 3:
      return (bits & 0x7fff) > 0x7f80;
    case 0:
    case 1:
    case 9:
    case 10:
    case 11:
      return (bits & 0x7fffffff) > 0x7f800000;
    default:
      return false;
  }
}

// Everything that moves data between lanes and memories. 32 threads, x and y 32-bit words.
const char* const kMovement = R"(
extern "C" __global__ void __launch_bounds__(32) kernel(const unsigned* __restrict__ x, unsigned* __restrict__ y) {
  __shared__ __align__(16) unsigned tile[4 * 32];
  unsigned* dynamic = dynamic_shared<unsigned>();
  int lane = lane_index();
  unsigned value = x[lane];
  cp_async<16>(tile + 4 * lane, x + 4 * lane);
  cp_async<4>(dynamic + 2 * lane, x + lane);
  cp_async_commit();
  cp_async<4>(dynamic + 2 * lane + 1, x + lane, 2);
  cp_async_commit();
  cp_async<8>(dynamic + 64 + 2 * lane, x + 2 * lane, 5);
  cp_async_commit();
  cp_async_wait<1>();
  cp_async_wait<0>();
  __syncthreads();
  unsigned r4[4], r2[2], r1[1], t4[4], t2[2], t1[1];
  ldmatrix<4>(r4, tile + 4 * (lane ^ 5));
  ldmatrix<2>(r2, tile + 4 * (lane ^ 9));
  ldmatrix<1>(r1, tile + 4 * (lane ^ 3));
  ldmatrix_trans<4>(t4, tile + 4 * (lane ^ 17));
  ldmatrix_trans<2>(t2, tile + 4 * (lane ^ 2));
  ldmatrix_trans<1>(t1, tile + 4 * (lane ^ 1));
  unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  unsigned out[] = {r4[0], r4[1], r4[2], r4[3], r2[0], r2[1], r1[0], t4[0], t4[1], t4[2], t4[3], t2[0], t2[1], t1[0],
                    shuffle_xor(value, 11), shuffle_down(value, 5), shuffle(value, lane * 7), shuffle_xor(value, 3, half),
                    unsigned(shuffle(int(value), 2)), unsigned(lane), warp_ballot(value & 1),
                    unsigned(warp_any(lane == 7) + 2 * warp_all(lane < 32) + 4 * warp_all(lane < 31)),
                    unsigned(warp_reduce(int(value), wrap_add)), unsigned(warp_reduce(int(value), max_int)),
                    __float_as_uint(warp_reduce(float(lane), [](float a, float b) { return a + b; })),
                    __float_as_uint(warp_reduce<8>(float(lane), max_nan)),
                    dynamic[2 * lane], dynamic[2 * lane + 1], dynamic[64 + 2 * lane], dynamic[65 + 2 * lane]};
  for (int i = 0; i < 30; ++i) y[32 * i + lane] = out[i];
  Vector<unsigned short, 8> sixteen = load_vector_streaming<unsigned short, 8>(x + 4 * lane);
  Vector<unsigned short, 4> eight = load_vector_streaming<unsigned short, 4>(x + 2 * lane);
  Vector<unsigned short, 2> four = load_vector_streaming<unsigned short, 2>(x + lane);
  sixteen[3] = eight[1] + four[1];
  store_vector_streaming<unsigned short, 8>(y + 32 * 30 + 4 * lane, sixteen);
  store_vector_streaming<unsigned short, 4>(y + 32 * 34 + 2 * lane, eight);
  store_vector_streaming<unsigned short, 2>(y + 32 * 36 + lane, four);
  store_vector<unsigned short, 2>(y + 32 * 37 + lane, load_vector<unsigned short, 2>(x + lane));
})";
constexpr int kMovementWords = 32 * 38;

const char* const kTf32 = R"(
extern "C" __global__ void __launch_bounds__(32) kernel(const float* __restrict__ x, float* __restrict__ y) {
  unsigned a[4], b[2];
  for (int r = 0; r < 4; ++r) a[r] = to_tf32(x[4 * lane_index() + r]);
  for (int r = 0; r < 2; ++r) b[r] = to_tf32(x[128 + 2 * lane_index() + r]);
  float d[4] = {1, 2, 3, 4};
  mma_m16n8k8_tf32(d, a, b);
  for (int r = 0; r < 4; ++r) y[4 * lane_index() + r] = d[r];
})";

std::unique_ptr<Compiler> open_compiler() {
  auto compiler = open_nvrtc("");
  if (!compiler.ok()) skip_test(compiler.status().message());
  return std::move(*compiler);
}

void compiles_for_every_target(void**) {
  auto compiler = open_compiler();
  for (const Target& target : all_targets()) {
    for (const std::string& text : {std::string(kConversions), std::string(kMovement), std::string(kTf32),
                                    matmul_kernel("f16"), matmul_kernel("bf16")}) {
      auto output = compiler->compile({std::string(prelude_text()) + text, target.name, {}});
      assert_ok(output.ok() ? Status() : output.status().with_context(target.name));
    }
  }
}

// What the GPU makes of the plan's only output.
Result<std::string> run_on_gpu(Compiler& compiler, Device& device, const std::string& text, Plan plan,
                               const std::vector<std::string>& inputs) {
  auto target = target_for_device(device.info().major, device.info().minor);
  if (!target.ok()) return target.status();
  auto compiled = compiler.compile({std::string(prelude_text()) + text, (*target)->name, {}});
  if (!compiled.ok()) return compiled.status();
  plan.target = (*target)->name;
  plan.cubin = compiled->cubin;
  std::vector<DeviceMemory> memory;
  std::vector<uint64_t> addresses;
  for (const std::string& input : inputs) {
    memory.push_back(*device.allocate(input.size()));
    addresses.push_back(memory.back().address());
    if (Status status = memory.back().upload(input.data(), input.size()); !status.ok()) return status;
  }
  std::string output(plan.outputs[0].span() * dtype_size(plan.outputs[0].dtype), '\0');
  memory.push_back(*device.allocate(output.size()));
  const uint64_t output_address = memory.back().address();
  Launcher launcher(device.driver(), std::make_shared<const Plan>(plan));
  Status status = launcher.launch({addresses, {&output_address, 1}, 0}, nullptr);
  if (status.ok()) status = memory.back().download(output.data(), output.size());
  if (!status.ok()) return status;
  return output;
}

// Runs the text in the emulator and on the GPU; the test is skipped after the former where there is no GPU.
struct Outputs {
  std::string gpu, emulator;
};
Outputs run_both(const std::string& text, const Plan& plan, const std::vector<std::string>& inputs) {
  static std::map<std::string, Program> programs;  // skipping leaves the test without destructors
  if (!programs.count(text)) {
    auto program = compile_program(make_source(text, plan));
    assert_ok(program);
    programs.emplace(text, *program);
  }
  auto emulated = run_plan(programs.at(text), plan, inputs);
  assert_ok(emulated);
  auto driver = Driver::open();
  if (!driver.ok()) skip_test(driver.status().message());
  auto compiler = open_compiler();
  auto device = Device::open(*driver);
  assert_ok(device);
  auto gpu = run_on_gpu(*compiler, **device, text, plan, inputs);
  assert_ok(gpu);
  return {*gpu, emulated->front()};
}

void converts_as_the_gpu_does(void**) {
  constexpr int64_t kCount = 1 << 17;
  std::mt19937 random(7);
  std::vector<uint32_t> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    // All patterns in the low half; the high half makes f32 of every size, half of them within the range of
    // f16.
    x[i] = static_cast<uint32_t>(i & 0xffff) | random() << 16;
    if (i & 0x10000) x[i] = (x[i] & 0x83ffffff) | (random() % 48 + 96) << 23;
  }
  x[5] = 0x7f800000, x[6] = 0xff800000, x[7] = 0x7fc00000, x[8] = 0, x[9] = 0x80000000, x[10] = 0x80000000;
  Plan plan = make_plan({make_tensor("x", DType::i32, kCount)},
                        {make_tensor("y", DType::i32, kCount * kConversionRows)}, {kCount / 256}, {256});
  plan.launches[0].args.push_back({LaunchArg::Kind::integer, kCount});
  Outputs outputs = run_both(kConversions, plan, {to_bytes(x)});
  auto gpu = from_bytes<uint32_t>(outputs.gpu), emulator = from_bytes<uint32_t>(outputs.emulator);
  for (size_t i = 0; i < gpu.size(); ++i) {
    const int row = i / kCount;
    // Which NaN it is may differ, also in the halves of a pair.
    if (is_nan_of(row, gpu[i]) && is_nan_of(row, emulator[i])) continue;
    if (row == 7 || row == 8) {
      const auto same = [&](int shift) {
        const uint32_t a = gpu[i] >> shift & 0xffff, b = emulator[i] >> shift & 0xffff;
        return a == b || (is_nan_of(row - 5, a) && is_nan_of(row - 5, b));
      };
      if (same(0) && same(16)) continue;
    }
    if (gpu[i] != emulator[i])
      fail_test("row " + std::to_string(row) + ", x = " + std::to_string(x[i % kCount]) + ": GPU " +
                std::to_string(gpu[i]) + ", emulator " + std::to_string(emulator[i]));
  }
}

void moves_data_as_the_gpu_does(void**) {
  std::mt19937 random(8);
  std::vector<uint32_t> x(128);
  for (uint32_t& word : x) word = random();
  Plan plan = make_plan({make_tensor("x", DType::i32, 128)}, {make_tensor("y", DType::i32, kMovementWords)},
                        {1}, {32}, 512);
  Outputs outputs = run_both(kMovement, plan, {to_bytes(x)});
  auto gpu = from_bytes<uint32_t>(outputs.gpu), emulator = from_bytes<uint32_t>(outputs.emulator);
  for (int i = 0; i < kMovementWords; ++i) {
    if (gpu[i] != emulator[i])
      fail_test("word " + std::to_string(i / 32) + " of lane " + std::to_string(i % 32) + ": GPU " +
                std::to_string(gpu[i]) + ", emulator " + std::to_string(emulator[i]));
  }
}

void assert_same_floats(const Outputs& outputs, double tolerance) {
  auto gpu = from_bytes<float>(outputs.gpu), emulator = from_bytes<float>(outputs.emulator);
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (!(std::fabs(gpu[i] - emulator[i]) <= tolerance))
      fail_test("element " + std::to_string(i) + ": GPU " + std::to_string(gpu[i]) + ", emulator " +
                std::to_string(emulator[i]));
  }
}

std::string random_tensor(DType dtype, int64_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::string bytes(length * dtype_size(dtype), '\0');
  for (int64_t i = 0; i < length; ++i) store_element(bytes.data(), dtype, i, normal(random));
  return bytes;
}

// The order of summation differs, so the results may by a few roundings.
void multiplies_as_the_gpu_does(void**) {
  constexpr int64_t kM = 45, kN = 72, kK = 104;
  for (DType dtype : {DType::f16, DType::bf16}) {
    Plan plan = make_plan({make_tensor("a", dtype, kM * kK), make_tensor("b", dtype, kK * kN)},
                          {make_tensor("c", DType::f32, kM * kN)}, {(kN + 31) / 32, (kM + 31) / 32}, {64});
    for (int64_t extent : {kM, kN, kK}) plan.launches[0].args.push_back({LaunchArg::Kind::integer, extent});
    assert_same_floats(run_both(matmul_kernel(dtype_name(dtype)), plan,
                                {random_tensor(dtype, kM * kK, 1), random_tensor(dtype, kK * kN, 2)}),
                       1e-4);
  }
  Plan plan = make_plan({make_tensor("x", DType::f32, 192)}, {make_tensor("y", DType::f32, 128)}, {1}, {32});
  assert_same_floats(run_both(kTf32, plan, {random_tensor(DType::f32, 192, 3)}), 1e-5);
}

}  // namespace

}  // namespace quern::emulated

int main() {
  using namespace quern::emulated;
  const CMUnitTest tests[] = {
      cmocka_unit_test(compiles_for_every_target),
      cmocka_unit_test(converts_as_the_gpu_does),
      cmocka_unit_test(moves_data_as_the_gpu_does),
      cmocka_unit_test(multiplies_as_the_gpu_does),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
