// The host versions of the prelude's functions, one by one, against what PTX says about them.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulator/run_support.h"
#include "tests/support/test.h"

namespace quern::emulated {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

// Runs `body`, which computes y[i] from x[i], for every element of `input`, 32 threads a block.
template <class Out, class In>
std::vector<Out> map(const std::string& in, const std::string& out, const std::string& body,
                     std::vector<In> input) {
  auto program = compile_program({"extern \"C\" __global__ void kernel(const " + in + "* x, " + out +
                                      "* y) { int i = blockIdx.x * 32 + threadIdx.x; " + body + " }",
                                  {"kernel"}});
  assert_ok(program);
  input.resize((input.size() + 31) / 32 * 32);
  const int64_t bytes_in = input.size() * sizeof(In), bytes_out = input.size() * sizeof(Out);
  // As bytes: the emulator does not care for the types of buffers.
  Plan plan =
      make_plan({make_tensor("x", DType::boolean, bytes_in)}, {make_tensor("y", DType::f16, bytes_out / 2)},
                {static_cast<uint32_t>(input.size() / 32)}, {32});
  auto outputs = run_plan(*program, plan, {to_bytes(input)});
  assert_ok(outputs);
  return from_bytes<Out>(outputs->front());
}

void converts_16_bit_floats_exactly(void**) {
  std::vector<uint16_t> all(65536);
  for (int i = 0; i < 65536; ++i) all[i] = i;
  auto f16 = map<float>("f16", "float", "y[i] = to_float(x[i]);", all);
  auto bf16 = map<float>("bf16", "float", "y[i] = to_float(x[i]);", all);
  for (int i = 0; i < 65536; ++i) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    float value = exponent == 0   ? std::ldexp(fraction, -24)
                  : exponent < 31 ? std::ldexp(1024 + fraction, exponent - 25)
                  : fraction == 0 ? kInfinity
                                  : kNan;
    if (i >> 15) value = -value;
    if (std::isnan(value)) {
      assert_true(std::isnan(f16[i]));
    } else {
      assert_true(f16[i] == value && std::signbit(f16[i]) == (i >> 15 == 1));
    }
    assert_int_equal(std::bit_cast<uint32_t>(bf16[i]), static_cast<uint32_t>(i) << 16);
  }
  auto back = map<uint16_t>("f16", "f16", "y[i] = from_float<f16>(to_float(x[i]));", all);
  for (int i = 0; i < 65536; ++i) {
    if ((i & 0x7fff) <= 0x7c00) assert_int_equal(back[i], i);
  }
}

// All kinds of numbers by each other: subnormal ones, zeros, infinities, NaN and what has an exponent near the ends of its range.
void divides_by_common_divisors(void**) {
  std::vector<float> x;
  for (const float a : {0.0f, -0.0f, 1.0f, -3.0f, kInfinity, -kInfinity, kNan, 0x1p-149f, 0x1.fp-127f,
                        0x1p-64f, 0x1.fffffep-65f, 0x1p64f, 0x1.000002p64f, 0x1.fffffep127f})
    for (const float b : {0.0f, 1.0f, 3.0f, kInfinity, kNan, -0x1p-149f, 0x1.8p-130f, 0x1p-64f, 0x1.5p-65f,
                          0x1.7p64f, 0x1.fffffep127f})
      x.insert(x.end(), {a, b});
  uint32_t state = 1;
  auto random = [&] { return std::bit_cast<float>(state = state * 1664525u + 1013904223u); };
  while (x.size() < 200000) x.push_back(random());
  const auto y = map<float>("float", "float", "y[i] = divide_common(x[i], x[i ^ 1]);", x);
  for (size_t i = 0; i < x.size(); ++i) {
    const float exact = x[i] / x[i ^ 1];
    if (std::isnan(exact)) {
      assert_true(std::isnan(y[i]));
    } else if (!std::isfinite(exact) || exact == 0) {
      assert_true(y[i] == exact && std::signbit(y[i]) == std::signbit(exact));
    } else if (std::fabs(exact) < 0x1.fffffcp127f || std::isfinite(y[i])) {
      const float unit = std::max(0x1p-149f, std::nextafter(std::fabs(exact), kInfinity) - std::fabs(exact));
      if (!(std::fabs(y[i] - exact) <= 2 * unit))
        fail_test(std::to_string(x[i]) + " / " + std::to_string(x[i ^ 1]) + ": " + std::to_string(y[i]));
    }
  }
}

void rounds_to_nearest_even(void**) {
  // Halfway between 1 and the next f16; just above; half of the smallest subnormal; beyond the largest.
  const std::vector<float> x = {1 + 0x1p-11f,
                                1 + 0x1p-11f + 0x1p-20f,
                                1 + 3 * 0x1p-11f,
                                0x1p-25f,
                                0x1.8p-25f,
                                65519.0f,
                                65520.0f,
                                -kInfinity,
                                kNan};
  auto f16 = map<uint16_t>("float", "f16", "y[i] = from_float<f16>(x[i]);", x);
  const uint16_t expected[] = {0x3c00, 0x3c01, 0x3c02, 0x0000, 0x0001, 0x7bff, 0x7c00, 0xfc00};
  for (size_t i = 0; i < std::size(expected); ++i) assert_int_equal(f16[i], expected[i]);
  assert_true((f16[8] & 0x7fff) > 0x7c00);

  auto bf16 = map<uint16_t>(
      "float", "bf16", "y[i] = from_float<bf16>(x[i]);",
      std::vector<float>{1 + 0x1p-8f, 1 + 0x1p-8f + 0x1p-20f, 1 + 3 * 0x1p-8f, 3.4e38f, kNan, 0x1p-133f});
  const uint16_t expected_bf16[] = {0x3f80, 0x3f81, 0x3f82, 0x7f80};
  for (size_t i = 0; i < std::size(expected_bf16); ++i) assert_int_equal(bf16[i], expected_bf16[i]);
  assert_true((bf16[4] & 0x7fff) > 0x7f80);
  assert_int_equal(bf16[5], 1);  // a subnormal

  auto tf32 = map<uint32_t>("float", "unsigned", "y[i] = to_tf32(x[i]);",
                            std::vector<float>{1 + 0x1p-11f, -1 - 0x1p-11f, 1 + 0x1p-12f, kInfinity, kNan});
  const uint32_t expected_tf32[] = {0x3f802000, 0xbf802000, 0x3f800000, 0x7f800000, 0x7fffe000};
  for (size_t i = 0; i < std::size(expected_tf32); ++i) assert_int_equal(tf32[i], expected_tf32[i]);
}

void converts_to_integers_saturating(void**) {
  auto y = map<int>("float", "int", "y[i] = from_float<int>(x[i]);",
                    std::vector<float>{1.99f, -1.99f, 3e9f, -3e9f, kNan, kInfinity, -kInfinity, 2147483520.0f,
                                       -2147483648.0f});
  const int expected[] = {1, -1, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN, 2147483520, INT32_MIN};
  for (size_t i = 0; i < std::size(expected); ++i) assert_int_equal(y[i], expected[i]);
  auto truth = map<int>("float", "int", "y[i] = from_float<bool>(x[i]) + 2 * int(to_float(x[i] > 0));",
                        std::vector<float>{0.0f, -0.0f, kNan, 1e-40f, -5});
  const int expected_truth[] = {0, 0, 1, 3, 1};
  for (size_t i = 0; i < std::size(expected_truth); ++i) assert_int_equal(truth[i], expected_truth[i]);
}

void packs_the_low_half_first(void**) {
  auto y =
      map<uint32_t>("float", "unsigned", "y[i] = i % 2 ? pack<bf16>(x[i], -1.0f) : pack<f16>(x[i], -1.0f);",
                    std::vector<float>{2, 2});
  assert_int_equal(y[0], 0xbc004000);
  assert_int_equal(y[1], 0xbf804000);
}

void propagates_nan_in_max_and_min(void**) {
  auto y = map<float>(
      "float", "float",
      "y[i] = i == 0 ? max_nan(x[0], 1.0f) : i == 1 ? min_nan(1.0f, x[0]) : i == 2 ? max_nan(-0.0f, 0.0f) :"
      "i == 3 ? max_nan(0.0f, -0.0f) : i == 4 ? min_nan(0.0f, -0.0f) : i == 5 ? max_nan(-3.0f, x[1]) :"
      "i == 6 ? min_nan(-3.0f, x[1]) : warp_reduce<1>(x[1], max_nan);",
      std::vector<float>{kNan, -2});
  assert_true(std::isnan(y[0]) && std::isnan(y[1]));
  assert_true(!std::signbit(y[2]) && !std::signbit(y[3]) && std::signbit(y[4]));
  assert_true(y[5] == -2 && y[6] == -3 && y[7] == -2);
}

void wraps_integers(void**) {
  auto y = map<int>("int", "int",
                    "int a = x[0]; y[i] = i == 0 ? wrap_add(a, 1) : i == 1 ? wrap_sub(wrap_neg(a), 2) : i == "
                    "2 ? wrap_mul(a, 2) :"
                    "i == 3 ? wrap_abs(x[1]) : i == 4 ? wrap_neg(x[1]) : wrap_abs(-7);",
                    std::vector<int>{INT32_MAX, INT32_MIN});
  const int expected[] = {INT32_MIN, INT32_MAX, -2, INT32_MIN, INT32_MIN, 7};
  for (size_t i = 0; i < std::size(expected); ++i) assert_int_equal(y[i], expected[i]);
}

void exchanges_lanes(void**) {
  std::vector<int> x(64);
  for (int i = 0; i < 64; ++i) x[i] = 100 + i;
  struct Exchange {
    const char* body;
    int (*source)(int lane);
  };
  const Exchange exchanges[] = {
      {"y[i] = shuffle_xor(x[i], 5);", [](int lane) { return lane ^ 5; }},
      {"y[i] = shuffle_down(x[i], 7);", [](int lane) { return lane + 7 < 32 ? lane + 7 : lane; }},
      {"y[i] = shuffle(x[i], 35);", [](int) { return 3; }},
      {"y[i] = int(shuffle_xor(float(x[i]), 16));", [](int lane) { return lane ^ 16; }},
  };
  for (const Exchange& exchange : exchanges) {
    auto y = map<int>("int", "int", exchange.body, x);
    for (int i = 0; i < 64; ++i) assert_int_equal(y[i], 100 + i / 32 * 32 + exchange.source(i % 32));
  }
  auto votes = map<unsigned>("int", "unsigned", "y[i] = warp_ballot(x[i] % 3 == 0, 0xffffffffu);", x);
  for (int i = 0; i < 64; ++i) {
    unsigned expected = 0;
    for (int lane = 0; lane < 32; ++lane) expected |= unsigned(x[i / 32 * 32 + lane] % 3 == 0) << lane;
    assert_int_equal(votes[i], expected);
  }
  auto any = map<int>("int", "int", "y[i] = warp_any(x[i] == 100) + 2 * warp_all(x[i] < 132);", x);
  for (int i = 0; i < 64; ++i) assert_int_equal(any[i], i < 32 ? 3 : 0);
}

void reduces_groups_of_lanes(void**) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[i] = i * i;
  auto sums =
      map<float>("float", "float", "y[i] = warp_reduce<8>(x[i], [](float a, float b) { return a + b; });", x);
  auto largest = map<float>("float", "float", "y[i] = warp_reduce(-x[i], max_nan);", x);
  auto integers = map<int>(
      "float", "int", "y[i] = warp_reduce(int(x[i]), wrap_add) + warp_reduce<4>(-int(x[i]), max_int);", x);
  for (int i = 0; i < 32; ++i) {
    float sum = 0;
    for (int j = 0; j < 8; ++j) sum += x[i / 8 * 8 + j];
    assert_true(sums[i] == sum && largest[i] == 0);
    assert_int_equal(integers[i], 31 * 32 * 63 / 6 - (i / 4 * 4) * (i / 4 * 4));
  }
}

// Matrices of elements 16 * row + column + 256 * matrix, whole and transposed.
void loads_matrices(void**) {
  for (int count : {1, 2, 4}) {
    for (bool transposed : {false, true}) {
      const std::string n = std::to_string(count);
      auto y = map<uint64_t>("int", "unsigned long long",
                             R"(
        __shared__ __align__(16) unsigned short tile[4][8][8];
        for (int j = i; j < 256; j += 32) tile[j / 64][j / 8 % 8][j % 8] = j / 64 * 256 + j / 8 % 8 * 16 + j % 8;
        __syncwarp();
        unsigned r[)" + n + "]; ldmatrix" +
                                 (transposed ? "_trans<" : "<") + n + R"(>(r, tile[i / 8][i % 8]);
        unsigned long long all = 0;
        for (int j = 0; j < )" + n +
                                 R"(; ++j) all = all * 31 + r[j];
        y[i] = all;)",
                             std::vector<int>(32));
      for (int lane = 0; lane < 32; ++lane) {
        uint64_t all = 0;
        for (uint64_t matrix = 0; matrix < static_cast<uint64_t>(count); ++matrix) {
          const uint64_t group = lane / 4, pair = lane % 4;
          const uint64_t low = transposed ? 16 * 2 * pair + group : 16 * group + 2 * pair;
          const uint64_t high = low + (transposed ? 16 : 1);
          all = all * 31 + (matrix * 256 + low + ((matrix * 256 + high) << 16));
        }
        assert_true(y[lane] == all);
      }
    }
  }
}

// Registers of the same matrices go back to where they were.
void stores_matrices(void**) {
  for (int count : {1, 2, 4}) {
    for (bool transposed : {false, true}) {
      const std::string n = std::to_string(count), kind = transposed ? ", true>" : ", false>";
      auto y = map<uint64_t>(
          "int", "unsigned long long",
          R"(
        __shared__ __align__(16) unsigned short tile[4][8][8];
        unsigned r[)" +
              n + R"(];
        for (int j = 0; j < )" +
              n +
              R"(; ++j) r[j] = (j * 256 + i / 4 * 16 + i % 4 * 2) | (j * 256 + i / 4 * 16 + i % 4 * 2 + 1) << 16;
        stmatrix<)" +
              n + kind + R"((tile[i / 8][i % 8], r);
        __syncwarp();
        unsigned long long all = 0;
        for (int j = 0; j < 8; ++j) all = all * 31 + (i < 8 * )" +
              n + R"( ? tile[i / 8][i % 8][j] : 0);
        y[i] = all;)",
          std::vector<int>(32));
      for (int lane = 0; lane < 8 * count; ++lane) {
        uint64_t all = 0;
        for (uint64_t j = 0; j < 8; ++j) {
          const uint64_t row = lane % 8, matrix = lane / 8 * 256;
          all = all * 31 + matrix + (transposed ? j * 16 + row : row * 16 + j);
        }
        assert_true(y[lane] == all);
      }
    }
  }
}

}  // namespace

}  // namespace quern::emulated

int main() {
  using namespace quern::emulated;
  const CMUnitTest tests[] = {
      cmocka_unit_test(converts_16_bit_floats_exactly),
      cmocka_unit_test(divides_by_common_divisors),
      cmocka_unit_test(rounds_to_nearest_even),
      cmocka_unit_test(converts_to_integers_saturating),
      cmocka_unit_test(packs_the_low_half_first),
      cmocka_unit_test(propagates_nan_in_max_and_min),
      cmocka_unit_test(wraps_integers),
      cmocka_unit_test(exchanges_lanes),
      cmocka_unit_test(reduces_groups_of_lanes),
      cmocka_unit_test(loads_matrices),
      cmocka_unit_test(stores_matrices),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
