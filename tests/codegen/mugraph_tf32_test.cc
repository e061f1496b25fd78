// Products of f32 operands in tf32, and in three products in tf32 that lose nothing: every data path, operands
// of both orders, chains of products, tiles that all warps make together and operands of mixed dtypes, in the
// emulator against the float reference within what tf32 may differ by, or within what f32 may.
#include <bit>
#include <cmath>

#include "core/base/random.h"
#include "core/schedule/enumerate.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

KernelSchedule way(std::array<int, 3> warps, int stages, bool tma = false, bool ahead = true) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = tma;
  out.prefetch = ahead;
  out.tf32 = true;
  return out;
}

// All are on tensor cores, and right, in tf32 as well as exact by three products.
void all_are_right_in_tf32(std::vector<MuGraphCase> cases) {
  for (const bool exact : {false, true}) {
    for (MuGraphCase& test : cases) {
      for (KernelSchedule& kernel : test.schedule.kernels) {
        kernel.tf32 = !exact;
        kernel.tf32x3 = exact;
      }
      const std::string text = emitted(test).kernels;
      assert_contains(text, "mma_fragment<float");
      assert_int_equal(text.find("tf32_low(") != std::string::npos, exact);
      assert_true(text.find("multiply_add(") == std::string::npos);
    }
    all_are_right(cases);
  }
}

void norms_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "5", "256", "64", "2", "2"},
                             {"f32", "16", "128", "64", "2", "2"},
                             {"f32", "20", "200", "72", "1", "4"},
                             {"f32", "1", "67", "45", "2", "3"}})
    for (const KernelSchedule& each : {way({1, 1, 4}, 0), way({1, 2, 2}, 0, false, false), way({1, 1, 4}, 2),
                                       way({2, 2, 1}, 3), way({1, 1, 4}, 3, true), way({1, 2, 2}, 2, true)})
      cases.push_back(sized_case("norm", kNormGraph, kNorm, sizes, each));
  all_are_right_in_tf32(cases);
}

const char kProductGraph[] = R"(graph product
in x: TYPE[ROWS, INNER] LEFT
in w: TYPE[INNER, COLUMNS] RIGHT
z = matmul(x, w)
out z
)";
const char kProduct[] = R"(mugraph product
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1)
}
out z
)";

// Rows and columns of either operand may be what lies side by side in memory.
void operands_of_both_orders_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* left : {"", "strides[1, 32]"})
    for (const char* right : {"", "strides[1, 128]"}) {
      std::string graph = kProductGraph;
      graph.replace(graph.find("LEFT"), 4, left);
      graph.replace(graph.find("RIGHT"), 5, right);
      for (const KernelSchedule& each :
           {way({1, 2, 2}, 0), way({2, 2, 1}, 2), way({1, 4, 1}, 3, true), way({1, 1, 4}, 3, true)})
        cases.push_back(sized_case("product" + std::string(left) + right, graph, kProduct,
                                   {"f32", "32", "128", "64", "2", "2"}, each));
    }
  all_are_right_in_tf32(cases);
}

void attention_is_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "64", "64", "128", "2", "2"},
                             {"f32", "16", "16", "32", "2", "2"},
                             {"f32", "40", "24", "100", "2", "2"}})
    for (const KernelSchedule& each :
         {way({2, 1, 1}, 0), way({2, 1, 1}, 2), way({1, 1, 2}, 3), way({1, 2, 1}, 0, false, false),
          way({2, 1, 1}, 2, true), way({1, 1, 2}, 3, true)})
      cases.push_back(sized_case("attention", kAttentionGraph, kAttention, sizes, each));
  all_are_right_in_tf32(cases);
}

// A norm of what the loop brings: a tile that all warps make together.
const char kMadeGraph[] = R"(graph made
in p: TYPE[ROWS, INNER]
in v: TYPE[INNER, COLUMNS]
n = rms_norm(v, axis=-1, eps=1e-5)
o = matmul(p, n)
out o
)";
const char kMade[] = R"(mugraph made
in p: TYPE[ROWS, INNER]
in v: TYPE[INNER, COLUMNS]
tensor o: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  p0 = load(p, x=0, loop=1)
  v0 = load(v, loop=0)
  n = rms_norm(v0, axis=[1], eps=1e-05)
  pn = matmul(p0, n)
  a = accumulate_sum(pn)
  store(a, o, x=0)
}
out o
)";

void tiles_made_by_all_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "64", "128", "64", "2", "2"}, {"f32", "48", "104", "40", "1", "2"}})
    for (const KernelSchedule& each :
         {way({2, 1, 1}, 2), way({4, 1, 1}, 2), way({1, 2, 2}, 3), way({4, 1, 1}, 2, true)})
      cases.push_back(sized_case("made", kMadeGraph, kMade, sizes, each));
  all_are_right_in_tf32(cases);
}

// What 16-bit floats hold is exact in tf32; products of two operands in 16 bits stay what they are.
void mixed_dtypes_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* narrow : {"f16", "bf16"})
    for (const KernelSchedule& each : {way({1, 2, 2}, 0), way({1, 2, 1}, 3), way({1, 4, 1}, 2, true)}) {
      std::string graph = kProductGraph, mugraph = kProduct;
      for (std::string* text : {&graph, &mugraph}) {
        const size_t at = text->find("in w: TYPE");
        text->replace(at + 6, 4, narrow);
      }
      graph.replace(graph.find("LEFT"), 4, "");
      graph.replace(graph.find("RIGHT"), 5, "");
      cases.push_back(sized_case("mixed " + std::string(narrow), graph, mugraph,
                                 {"f32", "16", "64", "64", "1", "2"}, each));
    }
  all_are_right_in_tf32(cases);
  assert_contains(
      emitted(sized_case("norm", kNormGraph, kNorm, {"f16", "16", "64", "64", "1", "2"}, way({1, 2, 2}, 2)))
          .kernels,
      "mma_fragment<f16");
}

// f32 numbers by the row and the column of an element.
InputKind numbers(const std::string& label,
                  const std::function<float(size_t input, int64_t row, int64_t column)>& f) {
  return {label, [f](const TensorDesc& desc, size_t input) {
            std::string bytes;
            for (int64_t row = 0; row < desc.shape[0]; ++row)
              for (int64_t column = 0; column < desc.shape[1]; ++column) {
                const float number = f(input, row, column);
                bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
              }
            return bytes;
          }};
}

// Numbers that need no second half beside one in a row that has infinities, NaN of all kinds or the largest
// numbers, in one operand and in both; and numbers of all magnitudes.
void three_products_are_exact_for_all_numbers(void**) {
  const float kSpecial[] = {INFINITY,        -INFINITY,     NAN,    std::bit_cast<float>(0x7f800001u),
                            0x1.fffffep127f, -0x1.fffp127f, 1e-30f, 0};
  auto special = [=](int64_t i) { return kSpecial[static_cast<size_t>(i) % std::size(kSpecial)]; };
  auto small = [](int64_t row, int64_t column) {
    return static_cast<float>((row * 7 + column * 3) % 5 - 2) + 0.5f;
  };
  std::vector<InputKind> kinds;
  for (const size_t in : {size_t{0}, size_t{1}, size_t{2}})
    kinds.push_back(numbers("special " + std::to_string(in), [=](size_t input, int64_t row, int64_t column) {
      if (in != 2 && in != input) return small(row, column);
      return input == 0 ? (column == 5 ? special(row) : small(row, column))
                        : (row == 5 ? special(column + column / 8) : small(row, column));
    }));
  kinds.push_back(numbers("magnitudes", [](size_t input, int64_t row, int64_t column) {
    const uint64_t bits = scramble(static_cast<uint64_t>(row * 1000 + column) * 2 + input);
    return std::ldexp(static_cast<float>(bits % 0x1000001) - 0x1p23f, static_cast<int>(bits >> 32 & 63) - 54);
  }));
  std::string graph = kProductGraph;
  graph.replace(graph.find("LEFT"), 4, "");
  graph.replace(graph.find("RIGHT"), 5, "");
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each : {way({1, 2, 2}, 0), way({2, 2, 1}, 2), way({1, 4, 1}, 3, true)}) {
    cases.push_back(sized_case("product", graph, kProduct, {"f32", "32", "128", "64", "2", "2"}, each));
    cases.back().schedule.kernels[0].tf32 = false;
    cases.back().schedule.kernels[0].tf32x3 = true;
    cases.back().inputs = kinds;
  }
  all_are_right(cases);
}

// Nobody gets tf32 who has not asked for it.
void exact_products_are_exact(void**) {
  KernelSchedule exact = way({1, 2, 2}, 2);
  exact.tf32 = false;
  const std::string text =
      emitted(sized_case("norm", kNormGraph, kNorm, {"f32", "16", "64", "64", "1", "2"}, exact)).kernels;
  assert_true(text.find("mma_fragment<") == std::string::npos);
  assert_true(text.find("tf32") == std::string::npos);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(norms_are_right),         cmocka_unit_test(operands_of_both_orders_are_right),
      cmocka_unit_test(attention_is_right),      cmocka_unit_test(tiles_made_by_all_are_right),
      cmocka_unit_test(mixed_dtypes_are_right),  cmocka_unit_test(three_products_are_exact_for_all_numbers),
      cmocka_unit_test(exact_products_are_exact)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
