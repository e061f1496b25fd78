// The workspace: no two values that are needed at once share a byte, by brute force; and places are used
// again.
#include "core/codegen/storage.h"

#include <random>
#include <set>

#include "core/codegen/prepare.h"
#include "core/graph/decompose.h"
#include "tests/codegen/emulated.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// Every byte that is needed at each launch, once.
void check_intervals(const std::vector<Lifetime>& intervals, int64_t size) {
  int last = 0;
  for (const Lifetime& interval : intervals) last = std::max(last, interval.last);
  for (int launch = 0; launch <= last; ++launch) {
    std::set<int64_t> taken;  // blocks of 256 bytes
    for (const Lifetime& interval : intervals) {
      if (launch < interval.first || launch > interval.last) continue;
      assert_int_equal(interval.offset % 256, 0);
      assert_true(interval.offset + interval.bytes <= size);
      for (int64_t at = interval.offset; at < interval.offset + interval.bytes; at += 256)
        assert_true(taken.insert(at).second);
    }
  }
}

void intervals_never_overlap(void**) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> intervals;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 30);
      intervals.push_back({int64_t(1 + random() % 5000), first, first + static_cast<int>(random() % 8), 0});
    }
    const int64_t size = plan_memory(intervals);
    check_intervals(intervals, size);
  }
}

void places_are_used_again(void**) {
  std::vector<Lifetime> intervals;
  for (int i = 0; i < 100; ++i) intervals.push_back({1000, i, i + 1, 0});
  assert_int_equal(plan_memory(intervals), 2048);
}

// Each kernel reads only what an earlier one has stored, where it has stored it.
void check_graph(const Graph& graph) {
  const Graph prepared = prepare(decompose(graph));
  const Partition parts = partition(prepared);
  const Storage storage(prepared, parts);
  check_intervals(storage.intervals(), storage.workspace_bytes());
  std::set<std::pair<ValueId, uint8_t>> stored;  // and in which dtype
  for (ValueId input : prepared.inputs)
    stored.insert({input, static_cast<uint8_t>(prepared.node(input).type.dtype)});
  for (const Kernel& kernel : parts.kernels) {
    for (ValueId value : kernel.reads)
      assert_true(stored.count({value, static_cast<uint8_t>(storage.source(value, Width::wide).dtype)}));
    for (ValueId value : kernel.narrow_reads)
      assert_true(stored.count({value, static_cast<uint8_t>(storage.source(value, Width::narrow).dtype)}));
    for (const auto& [value, role] : kernel.makes)
      for (const Slot& slot : storage.targets(value))
        stored.insert({value, static_cast<uint8_t>(slot.dtype)});
  }
}

void kernels_read_what_was_stored(void**) {
  for (uint64_t seed = 1; seed <= 400; ++seed) check_graph(random_graph(seed, {.max_ops = 30}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(intervals_never_overlap),
                              cmocka_unit_test(places_are_used_again),
                              cmocka_unit_test(kernels_read_what_was_stored)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
