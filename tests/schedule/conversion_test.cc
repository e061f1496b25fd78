// Conversions between all pairs of layouts, executed element by element.
#include "core/schedule/conversion.h"

#include <algorithm>
#include <map>

#include "core/schedule/layout_text.h"
#include "tests/schedule/layout_samples.h"
#include "tests/schedule/layouts.h"
#include "tests/schedule/simulate.h"
#include "tests/support/test.h"

using namespace quern;

// Runs the exchange and compares its claims with what the simulated banks counted.
static void run_exchange(const SharedExchange& exchange, const RegisterFile& from, int element_bytes,
                         RegisterFile& to) {
  // Each value carries the number of the warp that holds it, to see whose stores a warp depends on.
  constexpr int kWarpShift = 32;
  RegisterFile tagged = from;
  for (size_t warp = 0; warp < tagged.size(); ++warp)
    for (auto& lane : tagged[warp])
      for (int64_t& value : lane) value |= static_cast<int64_t>(warp) << kWarpShift;
  std::vector<int64_t> memory(size_t{1} << exchange.memory.output_bits(), kNothing);
  const Traffic store = run_store(exchange.store, tagged, element_bytes, memory);
  const Traffic load = run_load(exchange.load, memory, element_bytes, to);
  bool crosses = false;
  for (size_t warp = 0; warp < to.size(); ++warp)
    for (auto& lane : to[warp])
      for (int64_t& value : lane) {
        if (value == kNothing) continue;  // a copy, filled in later
        crosses = crosses || value >> kWarpShift != static_cast<int64_t>(warp);
        value &= (int64_t{1} << kWarpShift) - 1;
      }
  assert_int_equal(exchange.across_warps, crosses);
  for (auto [traffic, access] : {std::pair(store, &exchange.store), {load, &exchange.load}}) {
    assert_int_equal(traffic.instructions, access->instructions * traffic.warps);
    assert_int_equal(traffic.wavefronts, access->wavefronts * traffic.warps);
  }
  assert_int_equal(load.warps, from.size());
  if (exchange.store.vector_bits == exchange.load.vector_bits)
    assert_true(exchange.store.conflicts == 1 && exchange.load.conflicts == 1);
}

static Conversion expect_converts(const Layout& source, const Layout& destination,
                                  const ConversionOptions& options) {
  const Result<Conversion> conversion = plan_conversion(source, destination, options);
  assert_ok(conversion);
  const Layout from = normalized(source, source.outputs()), to = normalized(destination, source.outputs());
  const RegisterFile given = fill(from), wanted = fill(to);
  RegisterFile result = empty_registers(to);
  switch (conversion->kind) {
    case ConversionKind::none:
    case ConversionKind::registers:
      for (size_t w = 0; w < result.size(); ++w)
        for (size_t l = 0; l < result[w].size(); ++l)
          for (size_t r = 0; r < result[w][l].size(); ++r)
            result[w][l][r] = given[w][l].at(conversion->register_source.at(r));
      break;
    case ConversionKind::shuffle:
      run_shuffle(*conversion->shuffle, conversion->filled, given, result);
      run_copies(conversion->copy_of, result);
      break;
    case ConversionKind::shared:
      run_exchange(*conversion->shared, given, options.element_bytes, result);
      run_copies(conversion->copy_of, result);
      break;
  }
  assert_true(result == wanted);
  return *conversion;
}

static void all_pairs_of_constructors(void**) {
  std::map<ConversionKind, int> seen;
  for (int warps : {1, 2, 4})
    for (auto [rows, columns] : {std::pair(16, 16), {64, 16}, {16, 64}}) {
      const std::vector<LayoutSample> samples = register_samples(rows, columns, warps);
      for (const LayoutSample& from : samples)
        for (const LayoutSample& to : samples)
          for (int element_bytes : {2, 4}) {
            const Conversion conversion =
                expect_converts(from.layout, to.layout, {.element_bytes = element_bytes});
            if (&from == &to) assert_int_equal(conversion.kind, ConversionKind::none);
            ++seen[conversion.kind];
          }
    }
  assert_int_equal(seen.size(), 4);
}

// The shared-memory path for every pair, also where something cheaper exists.
static void all_pairs_through_shared_memory(void**) {
  int pairs = 0, conflicting = 0;
  for (int warps : {1, 4})
    for (auto [rows, columns] : {std::pair(16, 16), {64, 32}}) {
      const std::vector<LayoutSample> samples = register_samples(rows, columns, warps);
      for (const LayoutSample& from : samples)
        for (const LayoutSample& to : samples)
          for (int element_bytes : {1, 2, 4}) {
            const Layout source = normalized(from.layout, from.layout.outputs());
            const Layout destination = normalized(to.layout, from.layout.outputs());
            const SharedExchange exchange = plan_exchange(source, destination, element_bytes, 16);
            RegisterFile result = empty_registers(destination);
            run_exchange(exchange, fill(source), element_bytes, result);
            F2Span registers(destination.columns(kRegister));
            std::vector<int> copy_of;
            for (uint64_t r = 0; r >> destination.input_bits(kRegister) == 0; ++r)
              copy_of.push_back(static_cast<int>(*registers.express(destination.apply(r))));
            run_copies(copy_of, result);
            assert_true(result == fill(destination));
            ++pairs;
            conflicting += exchange.store.conflicts > 1 || exchange.load.conflicts > 1;
          }
    }
  print_message("%d of %d exchanges have conflicts\n", conflicting, pairs);
  assert_true(conflicting * 20 < pairs);
}

// Memory layouts that people write by hand: the tensor's bits in any order, with an XOR swizzle. None is
// faster for any pair of samples than the one computed for it.
static void no_handwritten_swizzle_is_faster(void**) {
  std::mt19937_64 random(22);
  const std::vector<LayoutSample> samples = register_samples(64, 16, 2);
  for (int element_bytes : {2, 4})
    for (const LayoutSample& from : samples)
      for (const LayoutSample& to : samples) {
        const Layout source = normalized(from.layout, from.layout.outputs());
        const Layout destination = normalized(to.layout, from.layout.outputs());
        const SharedExchange exchange = plan_exchange(source, destination, element_bytes, 16);
        for (int i = 0; i < 12; ++i) {
          F2Matrix order = f2_identity(source.output_bits());
          std::shuffle(order.columns.begin() + i % 4, order.columns.end(), random);
          const Layout memory = Layout(source.outputs(), {{std::string(kOffset), order.rows}}, order)
                                    .then(xor_swizzle(order.rows, i % 4, random() % 4, 3 + random() % 2));
          const SharedAccess store = best_access(source, memory, element_bytes, AccessKind::store);
          const SharedAccess load = best_access(destination, memory, element_bytes, AccessKind::load);
          const int cost = store.wavefronts + store.instructions + load.wavefronts + load.instructions;
          if (exchange.wavefronts() + exchange.instructions() > cost)
            fail_test(from.name + " to " + to.name + " is faster by hand: " + std::to_string(cost) +
                      " instead of " + std::to_string(exchange.wavefronts() + exchange.instructions()) +
                      " with " + print_layout(memory));
        }
      }
}

static void random_layouts(void**) {
  std::mt19937_64 random(21);
  std::map<ConversionKind, int> seen;
  for (int i = 0; i < 600; ++i) {
    const int registers = i % 4, warps = i % 3;
    Layout source = random_bijection(random, registers, 5, warps, 4, registers + warps + 1);
    Layout destination = random_bijection(random, registers, 5, warps, 4, registers + warps + 1);
    // Some with copies: a coordinate that was reduced away.
    if (i % 5 == 0) source = source.wrapped("m", 3), destination = destination.wrapped("m", 3);
    if (i % 7 == 0) source = source.wrapped("n", 1), destination = destination.wrapped("n", 1);
    for (int element_bytes : {1, 2, 4}) {
      ++seen[expect_converts(source, destination, {.element_bytes = element_bytes}).kind];
      for (int bytes = element_bytes; bytes <= 8; bytes *= 2) {
        const Conversion narrow = expect_converts(
            source, destination,
            {.element_bytes = element_bytes, .max_vector_bytes = bytes, .permit_shuffles = false});
        if (narrow.shared) assert_true(element_bytes << narrow.shared->load.vector_bits <= bytes);
        if (narrow.shared) assert_true(element_bytes << narrow.shared->store.vector_bits <= bytes);
      }
    }
  }
  assert_true(seen[ConversionKind::shared] > 500 && seen[ConversionKind::shuffle] > 50);
}

static void a_transpose_through_shared_memory_has_no_conflicts(void**) {
  const BlockedDim by_rows[] = {{"n", 1, 32, 1}, {"m", 1, 1, 4}},
                   by_columns[] = {{"m", 1, 32, 1}, {"n", 1, 1, 4}};
  const DimSize sizes[] = {{"m", 32}, {"n", 32}};
  const Conversion conversion = expect_converts(cover(blocked(by_rows), sizes),
                                                cover(blocked(by_columns), sizes), {.element_bytes = 4});
  assert_int_equal(conversion.kind, ConversionKind::shared);
  assert_true(conversion.shared->across_warps);
  // 1024 bytes a warp out and in, by 128: the least.
  assert_int_equal(conversion.shared->wavefronts(), 16);
  assert_int_equal(conversion.shared->load.instructions, 8);
  assert_int_equal(conversion.shared->load.vector_bits, 0);
}

static void a_split_of_warp_copies_needs_no_barrier(void**) {
  // Both warps hold all of m; each keeps its half.
  const Layout source =
      Layout::identity(kLane, "m", 5) * Layout::identity(kRegister, "m", 1) * Layout::zeros(kWarp, 1);
  const Layout destination = Layout::identity(kLane, "m", 5) * Layout::identity(kWarp, "m", 1);
  const Conversion conversion = expect_converts(source, destination, {.element_bytes = 4});
  assert_int_equal(conversion.kind, ConversionKind::shuffle);
  assert_int_equal(conversion.cost.shuffles, 0);
  assert_int_equal(conversion.cost.selects, 1);
}

static void what_cannot_be_converted_is_refused(void**) {
  const Layout source = Layout::identity(kLane, "m", 5), other = Layout::identity(kLane, "n", 5);
  assert_error(plan_conversion(source, other, {}), ErrorCode::INVALID_ARGUMENT, "dimension m differs");
  assert_error(plan_conversion(source, source * Layout::zeros(kWarp, 1), {}), ErrorCode::INVALID_ARGUMENT,
               "number of warps");
  assert_error(plan_conversion(source, source * Layout::identity(kRegister, "m", 1), {}),
               ErrorCode::INVALID_ARGUMENT, "dimension m differs");
  const Layout half({{"lane", 1}}, {{"m", 1}}, {1, {0}});
  assert_error(plan_conversion(half, Layout::identity(kLane, "m", 1), {}), ErrorCode::INVALID_ARGUMENT,
               "does not hold all elements");
  const Layout blocks = source * Layout::identity(kBlock, "m", 1);
  assert_error(plan_conversion(blocks, blocks, {}), ErrorCode::UNSUPPORTED, "block");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(all_pairs_of_constructors),
                              cmocka_unit_test(all_pairs_through_shared_memory),
                              cmocka_unit_test(no_handwritten_swizzle_is_faster),
                              cmocka_unit_test(random_layouts),
                              cmocka_unit_test(a_transpose_through_shared_memory_has_no_conflicts),
                              cmocka_unit_test(a_split_of_warp_copies_needs_no_barrier),
                              cmocka_unit_test(what_cannot_be_converted_is_refused)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
