// Register layouts: the fragments that instructions prescribe, what threads find in registers of their own,
// and the layouts that products are planned with.
#include "core/codegen/register_layout.h"

#include <set>

#include "core/base/target.h"
#include "core/codegen/block/product_plans.h"
#include "core/schedule/fragments.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

void fragments_are_the_maps_of_instructions(void**) {
  const MmaKind half = MmaKind::m16n8k16_16bit, tf32 = MmaKind::m16n8k8_tf32;
  struct Case {
    Layout fragment;
    int64_t rows, columns;
  };
  for (const Case& each : {Case{mma_a(half, "0", "1"), 16, 16},
                           {mma_a(tf32, "0", "1"), 16, 8},
                           {mma_b(half, "0", "1"), 16, 8},
                           {mma_c("0", "1"), 16, 8},
                           {wgmma_a(half, "0", "1"), 64, 16},
                           {wgmma_accumulator(128, "0", "1"), 64, 128}}) {
    const int row_bits = bits_for(each.rows), column_bits = bits_for(each.columns);
    const RegisterLayout layout =
        fragment_layout(each.fragment, {{"0", coord_bits(0, row_bits)}, {"1", coord_bits(1, column_bits)}});
    assert_true(linear(layout, {each.rows, each.columns}, 0) == each.fragment);
    // With the two dimensions numbered the other way round it is the transposed map.
    const RegisterLayout turned =
        fragment_layout(each.fragment, {{"0", coord_bits(1, row_bits)}, {"1", coord_bits(0, column_bits)}});
    assert_true(renumbered(layout, {1, 0}) == turned);
  }
}

// Coordinates, in one number, that a thread of a layout holds.
std::set<uint64_t> held(const Layout& map, uint64_t lane, uint64_t warp) {
  std::set<uint64_t> out;
  for (uint64_t r = 0; r < uint64_t{1} << map.input_bits(kRegister); ++r) {
    const uint64_t point[] = {r, lane, warp};
    out.insert(map.apply(map.flat_input(point)));
  }
  return out;
}

void threads_are_served_by_what_they_hold(void**) {
  const Ints shape = {32, 64};
  std::vector<RegisterLayout> all;
  for (int inner : {0, 1})
    for (int vector : {0, 1, 3})
      for (int warp_bits : {1, 2}) {
        const RegisterLayout layout = blocked_layout(shape, inner, vector, warp_bits);
        all.push_back(layout);
        all.push_back(renumbered(layout, {-1, 1}));
      }
  int served = 0;
  for (const RegisterLayout& have : all)
    for (const RegisterLayout& want : all) {
      if (have.warps.size() != want.warps.size()) continue;
      const Layout from = linear(have, shape, 0), to = linear(want, shape, 0);
      bool same_threads = true;  // every thread holds all that it wants
      for (uint64_t lane = 0; lane < 32; ++lane)
        for (uint64_t warp = 0; warp < uint64_t{1} << have.warps.size(); ++warp) {
          const std::set<uint64_t> owns = held(from, lane, warp);
          for (uint64_t element : held(to, lane, warp)) same_threads &= owns.contains(element);
        }
      if (serves(have, want, shape)) {
        assert_true(same_threads);
        ++served;
      }
    }
  assert_true(served >= static_cast<int>(all.size()));
}

// Of 64 x 192 elements and four warps; of 192 x 64 and three warpgroups.
void layouts_end_before_a_power_of_two(void**) {
  auto layout = [](int rows, int columns) {
    return fragment_layout(wgmma_accumulator(columns, "0", "1"),
                           {{"0", coord_bits(0, bits_for(rows))}, {"1", coord_bits(1, bits_for(columns))}});
  };
  RegisterLayout wide = layout(64, 256);
  assert_int_equal(wide.count(), 128);
  wide.ends = {{1, 192}};
  assert_int_equal(wide.count(), 96);
  assert_int_equal(wide.extent(0), 64);
  assert_int_equal(wide.extent(1), 192);
  // As many vectors, whichever low bits they are of; of a row's values as many as it has columns.
  assert_int_equal(chunks_of(wide, 1).count(), 48);
  RegisterLayout vectors = wide;
  put_first(vectors, 1, 3, 5);
  assert_int_equal(vectors.count(), 96);
  assert_int_equal(renumbered(wide, {-1, 0}).count(), 48);
  assert_int_equal(renumbered(wide, {-1, 0}).extent(0), 192);
  assert_int_equal(renumbered(wide, {0, -1}).count(), 2);
  // Where others end nobody finds what lies beyond; what lies before it they do.
  assert_true(serves(layout(64, 256), wide, {64, 192}));
  assert_true(serves(wide, wide, {64, 192}));
  assert_false(serves(wide, layout(64, 256), {64, 192}));
  RegisterLayout shorter = wide;
  shorter.ends = {{1, 160}};
  assert_int_equal(shorter.count(), 80);
  assert_false(serves(shorter, wide, {64, 192}));
  // Where no registers are left out, warps are.
  RegisterLayout high = layout(64, 64);
  append_bits(high.warps, 0, 6, 8);
  high.ends = {{0, 192}};
  assert_int_equal(high.count(), 32);
  assert_int_equal(high.extent(0), 192);
}

const char kProduct[] = R"(mugraph product
in x: f16[128, 256]
in w: f16[256, 64]
tensor z: f16[128, 64]
kernel grid=[1] loop=4 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z)
}
out z
)";

struct Planned {
  bool tensor_cores, wgmma;
  RegisterLayout a, b, d;
  unsigned partial_warps;
};

Planned plan(const char* target, const std::string& schedule, DType dtype) {
  const MuGraph mugraph = mugraph_of(dtype == DType::f32 ? with(kProduct, "f16", "f32") : kProduct);
  const auto schedules = parse_schedule("kernel " + schedule + "\n");
  assert_ok(schedules);
  std::vector<TensorPlace> places;
  for (const MuTensor& tensor : mugraph.tensors)
    places.push_back(
        {tensor.name, tensor.type.dtype, tensor.type.shape, dense_strides(tensor.type.shape), {}});
  const MuKernel& kernel = mugraph.kernels[0];
  const BlockFacts facts(kernel, lower_block(mugraph, kernel), places, schedules->kernels[0], true,
                         **find_target(target), false, {});
  const ProductPlans plans(facts);
  assert_int_equal(plans.all().size(), 1);
  const MatmulPlan& own = plans.all().begin()->second;
  return {own.tensor_cores, own.wgmma, own.a, own.b, own.d, own.partial_warps};
}

// Every element of the result is in a register; without parts, in one alone.
void expect_sums_of_all(const Planned& planned) {
  const Layout map = linear(planned.d, {128, 64}, 0);
  assert_true(map.is_surjective());
  if (planned.partial_warps == 0) assert_true(map.is_injective());
}

void products_are_planned_for_all_elements(void**) {
  const Planned mma = plan("sm_80", "warps=[2, 2, 1] stages=2", DType::f16);
  assert_true(mma.tensor_cores && !mma.wgmma);
  expect_sums_of_all(mma);
  assert_true(linear(mma.a, {128, 64}, 0).is_surjective());
  assert_true(linear(mma.b, {64, 64}, 0).is_surjective());
  // Warps that share the inner dimension have parts of all sums.
  const Planned parts = plan("sm_80", "warps=[1, 2, 2] stages=2", DType::f16);
  assert_int_equal(parts.partial_warps, 2);
  expect_sums_of_all(parts);
  const Planned groups = plan("sm_90a", "warps=[4, 1, 1] stages=2 tma=1 wgmma=1", DType::f16);
  assert_true(groups.tensor_cores && groups.wgmma);
  expect_sums_of_all(groups);
  const Planned fma = plan("sm_80", "warps=[2, 2, 1] stages=2", DType::f32);
  assert_false(fma.tensor_cores);
  expect_sums_of_all(fma);
}

// What mma takes of a row of the left operand, the same lanes have of the result's row.
void rows_of_operands_are_rows_of_sums(void**) {
  const Planned mma = plan("sm_80", "warps=[2, 2, 1] stages=2", DType::f16);
  for (size_t lane = 0; lane < mma.a.lanes.size(); ++lane) {
    const CoordBit &of_a = mma.a.lanes[lane], &of_d = mma.d.lanes[lane];
    assert_int_equal(of_a.dim == 0, of_d.dim == 0);
    if (of_a.dim == 0) assert_int_equal(of_a.bit, of_d.bit);
  }
  for (size_t warp = 0; warp < mma.a.warps.size(); ++warp)
    if (mma.a.warps[warp].dim == 0) assert_true(mma.a.warps[warp] == mma.d.warps[warp]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(fragments_are_the_maps_of_instructions),
      cmocka_unit_test(threads_are_served_by_what_they_hold),
      cmocka_unit_test(layouts_end_before_a_power_of_two),
      cmocka_unit_test(products_are_planned_for_all_elements),
      cmocka_unit_test(rows_of_operands_are_rows_of_sums),
  };
  return cmocka_run_group_tests_name("register_layout", tests, nullptr, nullptr);
}
