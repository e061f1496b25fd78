// From graphs to cubins with the real compiler, for both families of targets: what comes out is whole, can be
// made again from its texts, and is the same every time. Skipped where there is no NVRTC.
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/optimize.h"
#include "core/schedule/z3_optimizer.h"
#include "core/verify/verifier.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Case {
  const char *graph, *target;
};
constexpr Case kCases[] = {{"ntrans_b8", "sm_80"}, {"lora_b1", "sm_90a"}, {"gqa_b1", "sm_90a"}};

std::unique_ptr<Compiler> compiler() {
  auto opened = open_nvrtc("");
  if (!opened) skip_test("there is no NVRTC: " + opened.status().message());
  return std::move(*opened);
}

Graph example(const char* name) {
  auto graph = parse_graph(read_test_file(test_root() / "examples" / (std::string(name) + ".qg")));
  assert_ok(graph);
  return std::move(*graph);
}

OptimizeResult optimized(const Case& which, Compiler& compiler, Optimizer* optimizer) {
  OptimizeOptions options;
  options.optimizer = optimizer;
  // Long enough that nothing depends on the time that it takes.
  options.limit = std::chrono::seconds(100);
  options.search.limit = std::chrono::seconds(60);
  auto result = optimize(example(which.graph), **find_target(which.target), compiler, options);
  assert_ok(result);
  return std::move(*result);
}

void a_plan_is_whole_and_can_be_made_again(void**) {
  const auto nvrtc = compiler();
  const auto optimizer = make_z3_optimizer(kChoiceLimit);
  for (const Case& which : kCases) {
    const Graph graph = example(which.graph);
    const OptimizeResult result = optimized(which, *nvrtc, optimizer.get());
    assert_text_equal(result.reason, "");
    assert_true(result.found() && result.state.empty());
    assert_true(result.plan.tier == Tier::modelled && result.us > 0);
    assert_text_equal(result.plan.target, which.target);
    assert_text_equal(result.plan.cubin.substr(1, 3), "ELF");
    assert_true(result.plan.inputs == graph.input_descs() && result.plan.outputs == graph.output_descs());
    assert_contains(result.plan.certificate, "verdict: accepted");
    assert_contains(result.plan.certificate, "compiler: nvrtc");
    assert_contains(result.report, ": taken, ");
    assert_contains(result.report, "programs compiled: ");
    const auto mugraph = parse_mugraph(result.mugraph);
    const auto schedule = parse_schedule(result.schedule);
    assert_ok(mugraph);
    assert_ok(schedule);
    assert_true(verify(graph, *mugraph, {}).verdict == Verdict::accepted);
    const auto again = emit_mugraph(graph, *mugraph, *schedule, **find_target(which.target));
    assert_ok(again);
    assert_text_equal(again->source, result.cuda);
    assert_true(again->plan.launches == result.plan.launches);
  }
}

void the_same_graph_gets_the_same_plan(void**) {
  const auto nvrtc = compiler();
  for (const Case& which : {kCases[0], kCases[2]}) {
    const OptimizeResult one = optimized(which, *nvrtc, nullptr), other = optimized(which, *nvrtc, nullptr);
    assert_text_equal(one.mugraph, other.mugraph);
    assert_text_equal(one.schedule, other.schedule);
    assert_text_equal(one.cuda, other.cuda);
    assert_true(one.plan.cubin == other.plan.cubin);
    assert_true(one.plan.launches == other.plan.launches && one.us == other.us);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_plan_is_whole_and_can_be_made_again),
                              cmocka_unit_test(the_same_graph_gets_the_same_plan)};
  return cmocka_run_group_tests_name("optimize-nvrtc", tests, nullptr, nullptr);
}
