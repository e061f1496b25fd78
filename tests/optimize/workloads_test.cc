// Random workloads all the way without a GPU: searched, ranked, emitted, run in the emulator and compared
// with the float reference; of each graph the program that is ranked first and one other.
// $QUERN_WORKLOADS_FIRST and $QUERN_WORKLOADS_COUNT choose other seeds.
#include <random>

#include "core/codegen/arithmetic_verifier.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/optimize/ranking.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/support/random_workload.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

uint64_t from_environment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

// The first program of `ranked` that can be emitted, and that the verdict on its arithmetic does not refuse.
void add_case(const std::string& label, const Graph& graph, const std::vector<Candidate>& candidates,
              std::span<const Implementation> ranked, const char* target, std::vector<MuGraphCase>& cases) {
  for (const Implementation& each : ranked) {
    const MuGraph& mugraph = candidates[each.candidate].mugraph;
    if (!emit_mugraph(graph, mugraph, each.schedule, **find_target(target))) continue;
    if (ArithmeticVerifier(graph).judge(mugraph, each.schedule).verdict == Verdict::rejected) continue;
    cases.push_back({label + " on " + target + ", " + print_schedule(each.schedule), graph, mugraph,
                     each.schedule, 1.0, target});
    return;
  }
}

void workloads_are_right(void**) {
  const uint64_t first = from_environment("QUERN_WORKLOADS_FIRST", 1),
                 count = from_environment("QUERN_WORKLOADS_COUNT", 24);
  std::vector<MuGraphCase> cases;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_workload(seed);
    const char* target = seed % 2 ? "sm_80" : "sm_90a";
    SearchOptions options;
    options.limit = std::chrono::seconds(3);
    auto result = search(graph, **find_target(target), options);
    assert_ok(result);
    const std::vector<Implementation> ranked =
        rank_implementations(graph, result->candidates, **find_target(target), {}, 64);
    const std::string label = "seed " + std::to_string(seed);
    if (ranked.empty()) continue;
    const std::span<const Implementation> all = ranked;
    add_case(label, graph, result->candidates, all, target, cases);
    add_case(label + ", another", graph, result->candidates, all.subspan(random() % all.size()), target,
             cases);
  }
  assert_true(cases.size() > count);
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(workloads_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
