// The constructors against the formulas and figures of the PTX ISA, element by element.
#include <functional>

#include "tests/schedule/layouts.h"
#include "tests/support/test.h"

using namespace quern;

using Formula = std::function<std::pair<int, int>(int r, int lane, int warp)>;

// Every (register, lane, warp) of `layout` is at the formula's (row, column).
static void expect_fragment(const Layout& layout, int registers, int warps, const Formula& formula) {
  assert_int_equal(layout.input_bits(kRegister), __builtin_ctz(registers));
  assert_int_equal(layout.input_bits(kLane), 5);
  assert_int_equal(layout.input_bits(kWarp), __builtin_ctz(warps));
  for (int r = 0; r < registers; ++r)
    for (int lane = 0; lane < 32; ++lane)
      for (int warp = 0; warp < warps; ++warp) {
        const uint64_t flat = layout.apply(
            layout.flat_input(std::vector<uint64_t>{uint64_t(r), uint64_t(lane), uint64_t(warp)}));
        const auto [row, column] = formula(r, lane, warp);
        assert_int_equal(layout.coordinate(flat, "row"), row);
        assert_int_equal(layout.coordinate(flat, "col"), column);
      }
}

static void mma_m16n8k16(void**) {
  expect_fragment(mma_a(MmaKind::m16n8k16_16bit, "row", "col"), 8, 1, [](int i, int lane, int) {
    const int group = lane >> 2, in_group = lane % 4;
    const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
    const int col = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
    return std::pair(row, col);
  });
  expect_fragment(mma_b(MmaKind::m16n8k16_16bit, "row", "col"), 4, 1, [](int i, int lane, int) {
    const int group = lane >> 2, in_group = lane % 4;
    return std::pair(i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group);
  });
}

static void mma_m16n8k8(void**) {
  expect_fragment(mma_a(MmaKind::m16n8k8_tf32, "row", "col"), 4, 1, [](int i, int lane, int) {
    const int group = lane >> 2, in_group = lane % 4;
    return std::pair(i == 0 || i == 2 ? group : group + 8, i == 0 || i == 1 ? in_group : in_group + 4);
  });
  expect_fragment(mma_b(MmaKind::m16n8k8_tf32, "row", "col"), 2, 1, [](int i, int lane, int) {
    return std::pair(i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2);
  });
}

static void mma_accumulator(void**) {
  expect_fragment(mma_c("row", "col"), 4, 1, [](int i, int lane, int) {
    return std::pair(i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1));
  });
}

static void wgmma_fragments(void**) {
  for (int n : {8, 16, 32, 64, 128, 256})
    expect_fragment(wgmma_accumulator(n, "row", "col"), n / 2, 4, [](int i, int lane, int warp) {
      return std::pair(16 * warp + lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2);
    });
  expect_fragment(wgmma_a(MmaKind::m16n8k16_16bit, "row", "col"), 8, 4, [](int i, int lane, int warp) {
    return std::pair(16 * warp + lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2);
  });
  expect_fragment(wgmma_a(MmaKind::m16n8k8_tf32, "row", "col"), 4, 4, [](int i, int lane, int warp) {
    return std::pair(16 * warp + lane / 4 + 8 * (i % 2), lane % 4 + 4 * (i / 2));
  });
}

static void ldmatrix(void**) {
  for (int matrices : {1, 2, 4})
    for (bool transposed : {false, true}) {
      const Layout fragment = ldmatrix_fragment(matrices, transposed);
      for (int r = 0; r < 2 * matrices; ++r)
        for (int lane = 0; lane < 32; ++lane) {
          const uint64_t flat =
              fragment.apply(fragment.flat_input(std::vector<uint64_t>{uint64_t(r), uint64_t(lane)}));
          const int thread_row = lane / 4, element = 2 * (lane % 4) + r % 2;
          assert_int_equal(fragment.coordinate(flat, "matrix"), r / 2);
          assert_int_equal(fragment.coordinate(flat, "row"), transposed ? element : thread_row);
          assert_int_equal(fragment.coordinate(flat, "column"), transposed ? thread_row : element);
        }
    }
  const Layout address = ldmatrix_address();
  for (uint64_t lane = 0; lane < 32; ++lane) {
    assert_int_equal(address.coordinate(address.apply(lane), "matrix"), lane / 8);
    assert_int_equal(address.coordinate(address.apply(lane), "row"), lane % 8);
  }
}

// Four 8x8 matrices of ldmatrix.x4 are exactly an A operand.
static void ldmatrix_gives_mma_operands(void**) {
  const Layout a = mma_a(MmaKind::m16n8k16_16bit, "row", "column");
  const Layout four = ldmatrix_fragment(4, false).reshaped(
      {{"register", 3}, {"lane", 5}}, {{"column", 3}, {"row", 3}, {"high_row", 1}, {"high_column", 1}});
  for (uint64_t r = 0; r < 8; ++r)
    for (uint64_t lane = 0; lane < 32; ++lane) {
      const uint64_t at = four.apply(r | lane << 3), wanted = a.apply(r | lane << 3);
      assert_int_equal(a.coordinate(wanted, "row"),
                       four.coordinate(at, "row") | four.coordinate(at, "high_row") << 3);
      assert_int_equal(a.coordinate(wanted, "column"),
                       four.coordinate(at, "column") | four.coordinate(at, "high_column") << 3);
    }
}

static void blocked_layouts(void**) {
  const BlockedDim dims[] = {{"col", 4, 8, 2}, {"row", 2, 4, 1}};
  const Layout layout = blocked(dims);
  for (int r = 0; r < 8; ++r)
    for (int lane = 0; lane < 32; ++lane)
      for (int warp = 0; warp < 2; ++warp) {
        const uint64_t flat = layout.apply(
            layout.flat_input(std::vector<uint64_t>{uint64_t(r), uint64_t(lane), uint64_t(warp)}));
        assert_int_equal(layout.coordinate(flat, "col"), r % 4 + 4 * (lane % 8) + 32 * warp);
        assert_int_equal(layout.coordinate(flat, "row"), r / 4 + 2 * (lane / 8));
      }
  // Covered: 64 x 8 becomes 32 x 16 by wrapping columns and repeating rows in registers.
  const DimSize sizes[] = {{"col", 32}, {"row", 16}};
  const Layout covered = cover(layout, sizes);
  assert_true(covered.is_surjective());
  for (uint64_t r = 0; r < 16; ++r) {
    const uint64_t flat = covered.apply(covered.flat_input(std::vector<uint64_t>{r, 9, 1}));
    assert_int_equal(covered.coordinate(flat, "col"), r % 4 + 4);
    assert_int_equal(covered.coordinate(flat, "row"), r / 4 % 2 + 2 + 8 * (r / 8));
  }
}

static void a_slice_keeps_the_other_coordinate(void**) {
  const Layout rows = mma_c("row", "col").without_output("col");
  assert_true(rows.independent_bits(kRegister) == std::vector<int>{1});
  for (uint64_t r = 0; r < 4; ++r)
    for (uint64_t lane = 0; lane < 32; ++lane)
      assert_int_equal(rows.apply(r | lane << 2), lane / 4 + 8 * (r / 2));
}

// DESIGN section 7: with k permuted, lanes read 16 contiguous bytes straight into fragments.
static void direct_fragments_are_contiguous(void**) {
  struct Case {
    Layout a, b;
    uint64_t elements;  // in 16 bytes
  };
  const Layout two_steps = Layout::identity(kRegister, "k", 1);
  for (const Case& c : {Case{mma_a(MmaKind::m16n8k16_16bit, "m", "k") * two_steps,
                             mma_b(MmaKind::m16n8k16_16bit, "k", "n") * two_steps, 8},
                        Case{mma_a(MmaKind::m16n8k8_tf32, "m", "k") * two_steps,
                             mma_b(MmaKind::m16n8k8_tf32, "k", "n") * two_steps, 4}}) {
    const Layout a_order = contiguous_permutation(c.a, "k"), b_order = contiguous_permutation(c.b, "k");
    // One permutation for both operands, or the products would mix different k.
    for (uint64_t k = 0; k < 4 * c.elements; ++k)
      assert_int_equal(a_order.coordinate(a_order.apply(k << a_order.input_shift("k")), "k"),
                       b_order.coordinate(b_order.apply(k << b_order.input_shift("k")), "k"));
    for (const Layout& direct : {c.a.then(a_order), c.b.then(b_order)})
      for (uint64_t lane = 0; lane < 32; ++lane) {
        uint64_t seen = 0;
        for (uint64_t r = 0; r >> direct.input_bits(kRegister) == 0; ++r) {
          const uint64_t k =
              direct.coordinate(direct.apply(direct.flat_input(std::vector<uint64_t>{r, lane, 0})), "k");
          assert_int_equal(k / c.elements, lane % 4);
          seen |= uint64_t{1} << k % c.elements;
        }
        assert_int_equal(seen, (uint64_t{1} << c.elements) - 1);
      }
  }
}

// The byte address by the rule of CUTLASS's and the PTX ISA's figures: 16-byte unit number XOR row bits.
static void swizzled_panels_by_formula(void**) {
  for (int element_bytes : {2, 4})
    for (int swizzle : {16, 32, 64, 128})
      for (int width : {64, 128}) {
        const int rows = 32, panel = swizzle / element_bytes;
        const Layout memory = swizzled_panels(element_bytes, swizzle, {"k", width}, {"m", rows});
        assert_true(memory.is_surjective() && memory.is_injective());
        for (int m = 0; m < rows; ++m)
          for (int k = 0; k < width; ++k) {
            const int in_panel = k % panel * element_bytes, unit = in_panel / 16, units = swizzle / 16;
            // The row number as it shows in the address from bit 7 on.
            const int shown = m * swizzle / 128 % units;
            const int byte = k / panel * rows * swizzle + m * swizzle + ((unit ^ shown) * 16 + in_panel % 16);
            const std::string first = memory.inputs()[0].name;
            const uint64_t k64 = k, m64 = m;
            const uint64_t offset =
                memory.apply(memory.flat_input(first == "k" ? std::vector{k64, m64} : std::vector{m64, k64}));
            assert_int_equal(offset * element_bytes, byte);
          }
      }
}

static void xor_swizzle_by_formula(void**) {
  for (int bits = 0; bits <= 3; ++bits)
    for (int base = 0; base <= 3; ++base) {
      const Layout swizzle = xor_swizzle(10, bits, base, 3);
      for (uint64_t x = 0; x < 1024; ++x)
        assert_int_equal(swizzle.apply(x), x ^ (x >> 3 & (((1u << bits) - 1) << base)));
    }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(mma_m16n8k16),
                              cmocka_unit_test(mma_m16n8k8),
                              cmocka_unit_test(mma_accumulator),
                              cmocka_unit_test(wgmma_fragments),
                              cmocka_unit_test(ldmatrix),
                              cmocka_unit_test(ldmatrix_gives_mma_operands),
                              cmocka_unit_test(blocked_layouts),
                              cmocka_unit_test(a_slice_keeps_the_other_coordinate),
                              cmocka_unit_test(direct_fragments_are_contiguous),
                              cmocka_unit_test(swizzled_panels_by_formula),
                              cmocka_unit_test(xor_swizzle_by_formula)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
