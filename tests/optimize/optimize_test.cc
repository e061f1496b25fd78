// The background job, with a compiler that takes everything.
#include "core/optimize/optimize.h"

#include <limits>
#include <set>

#include "core/base/facts.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/explain.h"
#include "core/schedule/z3_optimizer.h"
#include "tests/support/fake_compiler.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

Result<Graph> example() { return parse_graph(read_test_file(test_root() / "examples/lora_b1.qg")); }

const Target& sm90() { return **find_target("sm_90a"); }

OptimizeResult optimized(const Graph& graph, Optimizer* optimizer) {
  FakeCompiler compiler;
  OptimizeOptions options;
  options.optimizer = optimizer;
  options.search.limit = std::chrono::seconds(20);
  auto result = optimize(graph, sm90(), compiler, options);
  assert_ok(result);
  assert_true(result->found());
  return std::move(*result);
}

void plans_are_made_again_from_what_is_said_of_them(void**) {
  const auto graph = example();
  assert_ok(graph);
  const auto optimizer = make_z3_optimizer(kChoiceLimit);
  const OptimizeResult result = optimized(*graph, optimizer.get());
  const auto mugraph = parse_mugraph(result.mugraph);
  assert_ok(mugraph);
  const auto schedule = parse_schedule(result.schedule);
  assert_ok(schedule);
  const auto again = emit_mugraph(*graph, *mugraph, *schedule, sm90());
  assert_ok(again);
  assert_text_equal(again->source, result.cuda);
}

void choices_are_explained_greedy_and_optimal(void**) {
  const auto graph = example();
  assert_ok(graph);
  const auto optimizer = make_z3_optimizer(kChoiceLimit);
  if (optimizer)
    for (const char* line :
         {"block 0, layouts: greedy ", "block 0, barriers: greedy ", "block 0, shared memory: greedy "})
      assert_contains(optimized(*graph, optimizer.get()).report, line);
  assert_contains(optimized(*graph, nullptr).report, "choices are greedy: this build has no libz3");
}

// First that there are candidates, then the plan: each counts if nothing else comes.
void what_has_been_found_so_far_is_told(void**) {
  const auto graph = example();
  assert_ok(graph);
  FakeCompiler compiler;
  OptimizeOptions options;
  std::vector<OptimizeResult> told;
  options.progress = [&](const OptimizeResult& so_far) { told.push_back(so_far); };
  const auto result = optimize(*graph, sm90(), compiler, options);
  assert_ok(result);
  assert_int_equal(told.size(), 2);
  assert_true(!told[0].found() && told[0].timed_out && !told[0].reason.empty());
  assert_true(told[1].found() && told[1].timed_out);
  assert_text_equal(told[1].cuda, result->cuda);
  assert_text_equal(told[1].mugraph, result->mugraph);
  assert_text_equal(told[1].schedule, result->schedule);
}

// Rounding operands of f32 is up to the caller, whatever it would gain.
void tf32_is_taken_where_it_is_allowed_and_pays(void**) {
  const auto graph = parse_graph(R"(graph layer
in x: f32[64, 1024]
in w: f32[1024, 2048]
h = matmul(x, w)
y = silu(h)
out y
)");
  assert_ok(graph);
  FakeCompiler compiler;
  double exact_us = std::numeric_limits<double>::infinity();  // the baseline may be as fast as any exact program
  for (bool allowed : {false, true}) {
    OptimizeOptions options;
    options.allow_tf32 = allowed;
    const auto result = optimize(*graph, sm90(), compiler, options);
    assert_ok(result);
    assert_true(result->found() || !allowed);
    for (const auto& [text, part] : {std::pair{result->schedule, " tf32=1"},
                                     {result->plan.certificate, "operands rounded to tf32"}})
      assert_int_equal(text.find(part) != std::string::npos, allowed);
    if (allowed) assert_true(result->us < exact_us);
    if (result->found()) exact_us = result->us;
  }
}

// A compiler that finds too few registers for anything: what it may get wrong is not taken even if that
// spills least.
void warpgroups_that_spill_are_never_taken(void**) {
  const auto graph = parse_graph(R"(graph layer
in x: f16[64, 1024]
in w: f16[1024, 1024]
y = matmul(x, w)
out y
)");
  assert_ok(graph);
  FakeCompiler compiler;
  int warpgroups = 0;
  compiler.on_compile = [&](const CompileRequest& request) {
    static const std::string kBegin = "extern \"C\" __global__ void";
    const bool own = request.source.find("wgmma<f16") != std::string::npos;
    warpgroups += own;
    std::string log;
    for (size_t at = 0; (at = request.source.find(kBegin, at)) != std::string::npos; ++at) {
      const size_t end = request.source.find("_block(", at), begin = request.source.rfind(' ', end) + 1;
      log += "Function properties for " + request.source.substr(begin, end + 6 - begin) +
             (own ? "\n    16 bytes stack frame\n" : "\n    32 bytes stack frame\n");
    }
    return Result<CompileOutput>(CompileOutput{"\177ELF", log});
  };
  const auto result = optimize(*graph, sm90(), compiler, {});
  assert_ok(result);
  assert_true(warpgroups > 0);
  assert_true(result->found());
  assert_true(result->cuda.find("wgmma<f16") == std::string::npos);
  assert_contains(result->report, "32 bytes of a thread on the stack");
}

// Programs that are wrong in the arithmetic of their kernels are passed over, and named.
void what_is_wrong_in_arithmetic_is_passed_over(void**) {
  const auto graph = example();
  assert_ok(graph);
  FakeCompiler compiler;
  OptimizeOptions options;
  const auto trusted = optimize(*graph, sm90(), compiler, options);
  assert_ok(trusted);
  assert_true(trusted->found());
  assert_contains(trusted->plan.certificate, "arithmetic: accepted\narithmetic instance: shrunk; ");
  size_t judged = 0, wrong = 1;  // so many muGraphs, in all of their schedules
  std::set<std::string> seen;
  options.judge = [&](const MuGraph& mugraph, const Schedule&) {
    ArithmeticVerdict verdict;
    ++judged;
    seen.insert(print_mugraph(mugraph));
    verdict.verdict = seen.size() <= wrong ? Verdict::rejected : Verdict::accepted;
    verdict.reason = "class masked, seed 2";
    return verdict;
  };
  const auto later = optimize(*graph, sm90(), compiler, options);
  assert_ok(later);
  assert_true(later->found());
  assert_true(judged > wrong);
  assert_true(later->us >= trusted->us && later->mugraph != trusted->mugraph);
  assert_contains(later->report, "wrong in the arithmetic of its kernels: class masked, seed 2");
  wrong = SIZE_MAX;
  const int compiled = compiler.compiles;
  const auto none = optimize(*graph, sm90(), compiler, options);
  assert_ok(none);
  assert_false(none->found());
  assert_int_equal(compiler.compiles, compiled);
  assert_contains(none->reason, "wrong in the arithmetic of its kernels: class masked, seed 2");
}

// The hash of a program's text, as its plan's certificate has it.
std::string cuda_hash(const Program& program) {
  const auto plan = decode_plan(program.plan);
  assert_ok(plan);
  const auto facts = parse_facts(plan->certificate);
  assert_ok(facts);
  const std::string* hash = find_fact(*facts, "cuda hash");
  assert_non_null(hash);
  return *hash;
}

// Whoever measures them needs nothing else: texts give the program again, and so many are compiled.
void programs_are_listed_best_first(void**) {
  const auto graph = example();
  assert_ok(graph);
  const auto optimizer = make_z3_optimizer(kChoiceLimit);
  FakeCompiler compiler;
  OptimizeOptions options;
  options.optimizer = optimizer.get();
  options.keep = 3;
  options.list = 20;
  const auto result = optimize(*graph, sm90(), compiler, options);
  assert_ok(result);
  assert_int_equal(result->programs.size(), 1 + options.list);
  assert_true(result->programs[0].is_baseline() && result->programs[0].modelled_ns > 0);
  size_t kept = 0;
  std::set<std::string> sources;
  for (size_t i = 1; i < result->programs.size(); ++i) {
    const Program& program = result->programs[i];
    assert_true(program.modelled_ns >= result->programs[1].modelled_ns);
    const auto mugraph = parse_mugraph(program.mugraph);
    assert_ok(mugraph);
    const auto schedule = parse_schedule(program.schedule);
    assert_ok(schedule);
    const auto again = emit_mugraph(*graph, *mugraph, *schedule, sm90());
    if (program.plan.empty()) {
      if (again) assert_true(sources.insert(again->source).second);
      continue;
    }
    assert_ok(again);
    assert_true(sources.insert(again->source).second);
    assert_text_equal(to_hex(hash128(again->source)), cuda_hash(program));
    if (kept++ == 0) {
      assert_true(program.plan == encode_plan(result->plan));
      assert_text_equal(program.mugraph, result->mugraph);
      assert_text_equal(program.schedule, result->schedule);
    }
  }
  assert_int_equal(kept, options.keep);
  assert_int_equal(compiler.compiles, options.keep);
}

// What the baseline does at the speed of the memory, no search betters; the programs can still be measured.
void the_baseline_stays_where_it_is_as_fast(void**) {
  const auto graph = parse_graph(R"(graph sum
in x: f16[8192, 4096]
in y: f16[8192, 4096]
z = add(x, y)
out z
)");
  assert_ok(graph);
  FakeCompiler compiler;
  const auto result = optimize(*graph, sm90(), compiler, {});
  assert_ok(result);
  assert_false(result->found());
  assert_contains(result->reason, " than the baseline by the model: ");
  assert_contains(result->report, "baseline: ");
  assert_contains(result->report, "faster than the baseline");
  assert_true(result->programs.size() > 1 && !result->programs[1].plan.empty());
  const double us = static_cast<double>(result->programs[0].modelled_ns) / 1e3;
  assert_true(us > 40 && us < 70);  // 201 MB at 4.3 TB/s are 47 us
}

// A program that may never run is not for anybody to measure.
void refused_programs_are_not_listed(void**) {
  const auto graph = example();
  assert_ok(graph);
  FakeCompiler compiler;
  OptimizeOptions options;
  options.list = 2000;
  std::set<std::string> wrong;
  options.judge = [&](const MuGraph& mugraph, const Schedule& schedule) {
    ArithmeticVerdict verdict;
    const bool reject = wrong.size() < 2;
    if (reject) wrong.insert(print_mugraph(mugraph) + print_schedule(schedule));
    verdict.verdict = reject ? Verdict::rejected : Verdict::accepted;
    return verdict;
  };
  const auto result = optimize(*graph, sm90(), compiler, options);
  assert_ok(result);
  assert_int_equal(wrong.size(), 2);
  assert_true(result->programs.size() > 20);
  for (const Program& program : result->programs)
    assert_int_equal(wrong.count(program.mugraph + program.schedule), 0);
}

// 3xTF32 may err by too much: whoever measures finds some programs with exact f32 products at the end of the list.
void programs_without_3xtf32_are_listed(void**) {
  const auto graph = parse_graph(R"(graph gram
in x: f32[384, 1536]
t = transpose(x, perm=[1, 0])
y = matmul(x, t)
out y
)");
  assert_ok(graph);
  FakeCompiler compiler;
  OptimizeOptions options;
  options.list = 24;
  const auto result = optimize(*graph, sm90(), compiler, options);
  assert_ok(result);
  assert_int_equal(result->programs.size(), 1 + options.list);
  const auto splits = [&](size_t i) {
    return result->programs[i].schedule.find(" tf32x3=1") != std::string::npos;
  };
  assert_true(splits(1));
  assert_false(splits(options.list));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(plans_are_made_again_from_what_is_said_of_them),
                              cmocka_unit_test(choices_are_explained_greedy_and_optimal),
                              cmocka_unit_test(what_has_been_found_so_far_is_told),
                              cmocka_unit_test(tf32_is_taken_where_it_is_allowed_and_pays),
                              cmocka_unit_test(warpgroups_that_spill_are_never_taken),
                              cmocka_unit_test(what_is_wrong_in_arithmetic_is_passed_over),
                              cmocka_unit_test(programs_are_listed_best_first),
                              cmocka_unit_test(the_baseline_stays_where_it_is_as_fast),
                              cmocka_unit_test(refused_programs_are_not_listed),
                              cmocka_unit_test(programs_without_3xtf32_are_listed)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
