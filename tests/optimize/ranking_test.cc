// Programs that the ranking lists beside those of the enumeration.
#include "core/optimize/ranking.h"

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr const char* kGraph = R"(graph product
in x: bf16[3000, INNER]
in w: bf16[INNER, COLUMNS]
o = matmul(x, w)
out o
)";
constexpr const char* kProduct = R"(mugraph product
in x: bf16[3000, INNER]
in w: bf16[INNER, COLUMNS]
tensor o: bf16[3000, COLUMNS]
kernel grid=[40, 24] loop=16 threads=256 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  y = matmul(x0, w0)
  a = accumulate_sum(y)
  store(a, o, x=1, y=0)
}
out o
)";

// Schedules with multicast among the programs of this product: they can be emitted where their likes without
// it can.
std::vector<KernelSchedule> with_multicast(const std::string& inner, const std::string& columns) {
  auto sized = [&](const char* text) { return with(with(text, "INNER", inner), "COLUMNS", columns); };
  const auto graph = parse_graph(sized(kGraph));
  assert_ok(graph);
  const auto mugraph = parse_mugraph(sized(kProduct));
  assert_ok(mugraph);
  Candidate candidate;
  candidate.mugraph = *mugraph;
  const Target& target = **find_target("sm_90a");
  std::vector<KernelSchedule> out;
  for (const Implementation& each : rank_implementations(*graph, {candidate}, target, {}, 64)) {
    if (each.schedule.kernels[0].multicast_blocks() == 1) continue;
    Schedule alone = each.schedule;
    alone.kernels[0].multicast = {1, 1, 1};
    if (!emit_mugraph(*graph, *mugraph, alone, target)) continue;
    assert_ok(emit_mugraph(*graph, *mugraph, each.schedule, target));
    out.push_back(each.schedule.kernels[0]);
  }
  return out;
}

// Rows of 2000 and of 10000 bytes begin within a line of the cache, rows of 2048 and 8192 with one.
void pairs_of_blocks_are_tried_where_rows_straddle_lines(void**) {
  const std::vector<KernelSchedule> tried = with_multicast("1000", "5000");
  assert_true(!tried.empty());
  for (const KernelSchedule& each : tried) assert_true(each.producer && each.wgmma);
  assert_true(with_multicast("1024", "4096").empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(pairs_of_blocks_are_tried_where_rows_straddle_lines)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
