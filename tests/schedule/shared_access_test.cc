// Accesses to given memory layouts: which instruction fits, and conflicts against counted banks.
#include "core/schedule/shared_access.h"

#include "tests/schedule/layout_samples.h"
#include "tests/schedule/layouts.h"
#include "tests/schedule/simulate.h"
#include "tests/support/test.h"

using namespace quern;

static std::vector<int64_t> memory_image(const Layout& memory) {
  std::vector<int64_t> result(size_t{1} << memory.output_bits(), kNothing);
  for (uint64_t element = 0; element >> memory.input_bits() == 0; ++element)
    result[memory.apply(element)] = static_cast<int64_t>(element);
  return result;
}

// `registers` has the memory's inputs as outputs, in the same order.
static void expect_loads(const Layout& registers, const Layout& memory, int element_bytes,
                         const SharedAccess& access) {
  RegisterFile result = empty_registers(registers);
  const Traffic traffic = run_load(access, memory_image(memory), element_bytes, result);
  assert_int_equal(traffic.wavefronts, access.wavefronts * traffic.warps);
  F2Span independent(registers.columns(kRegister));
  std::vector<int> copy_of;
  for (uint64_t r = 0; r >> registers.input_bits(kRegister) == 0; ++r)
    copy_of.push_back(static_cast<int>(*independent.express(registers.apply(r))));
  run_copies(copy_of, result);
  assert_true(result == fill(registers));
}

static Layout over(const Layout& registers, const Layout& memory) {
  return normalized(registers, memory.inputs());
}

// All samples, all memories, all widths that fit: the right elements, the claimed wavefronts.
static void every_access_that_fits_is_right(void**) {
  const std::vector<LayoutSample> samples = register_samples(64, 64, 4);
  int accesses = 0, conflicting = 0;
  for (int element_bytes : {2, 4}) {
    std::vector<Layout> memories;
    const DimSize rows[] = {{"n", 64}, {"m", 64}}, columns[] = {{"m", 64}, {"n", 64}};
    memories.push_back(dense_memory(rows));
    memories.push_back(dense_memory(columns));
    for (int swizzle : {32, 64, 128}) {
      memories.push_back(swizzled_panels(element_bytes, swizzle, {"n", 64}, {"m", 64}));
      memories.push_back(swizzled_panels(element_bytes, swizzle, {"m", 64}, {"n", 64}));
    }
    for (const Layout& memory : memories)
      for (const LayoutSample& sample : samples) {
        const Layout registers = over(sample.layout, memory);
        for (int bits = 0; bits <= 3 && element_bytes << bits <= 16; ++bits)
          if (auto access = shared_access(registers, memory, element_bytes, AccessKind::load, bits)) {
            expect_loads(registers, memory, element_bytes, *access);
            ++accesses;
            conflicting += access->conflicts > 1;
          }
        const SharedAccess store = best_access(registers, memory, element_bytes, AccessKind::store);
        std::vector<int64_t> stored(size_t{1} << memory.output_bits(), kNothing);
        const Traffic traffic = run_store(store, fill(registers), element_bytes, stored);
        assert_true(stored == memory_image(memory));
        assert_int_equal(traffic.wavefronts, store.wavefronts * traffic.warps);
      }
  }
  print_message("%d accesses, %d with conflicts\n", accesses, conflicting);
  assert_true(accesses > 500 && conflicting > 100);
}

static void copies_are_stored_once(void**) {
  const Layout registers = Layout::zeros(kRegister, 1) * Layout::identity(kLane, "m", 3) *
                           Layout::zeros(kLane, 2) * Layout::zeros(kWarp, 1);
  const Layout layout = normalized(registers, registers.outputs());
  const DimSize sizes[] = {{"m", 8}};
  const SharedAccess store = best_access(layout, dense_memory(sizes), 4, AccessKind::store);
  assert_int_equal(store.idle_lanes, 24);
  assert_int_equal(store.idle_warps, 1);
  assert_int_equal(store.instructions, 1);
  std::vector<int64_t> memory(8, kNothing);
  run_store(store, fill(layout), 4, memory);
  for (int i = 0; i < 8; ++i) assert_int_equal(memory[i], i);
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_access_that_fits_is_right),
                              cmocka_unit_test(copies_are_stored_once)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
