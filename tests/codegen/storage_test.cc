// The workspace: no two values that are needed at once share a byte, and kernels read what was stored.
#include "core/codegen/storage.h"

#include <set>

#include "core/codegen/prepare.h"
#include "core/graph/decompose.h"
#include "tests/codegen/emulated.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// Each kernel reads only what an earlier one has stored, where it has stored it.
void check_graph(const Graph& graph) {
  const Graph prepared = prepare(decompose(graph), **find_target("sm_90a"));
  const Partition parts = partition(prepared, **find_target("sm_90a"));
  const Storage storage(prepared, parts);
  const auto peak = memory_peak(storage.buffers(), storage.offsets());
  assert_ok(peak);
  assert_int_equal(*peak, storage.workspace_bytes());
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
  const CMUnitTest tests[] = {cmocka_unit_test(kernels_read_what_was_stored)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
