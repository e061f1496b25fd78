// Which program of a list wins, and which never does, on a GPU that does what the test says.
#include "core/profile/measure.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "core/base/facts.h"
#include "core/base/hash.h"
#include "core/codegen/baseline.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/certify.h"
#include "core/optimize/optimize.h"
#include "core/profile/rounds.h"
#include "tests/profile/fake_bench.h"
#include "tests/support/fake_compiler.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const Target& target() { return **find_target("sm_90a"); }

Graph test_graph() {
  auto graph = parse_graph("graph test\nin x: f32[8, 8]\ny = relu(x)\nout y\n");
  assert_ok(graph);
  return std::move(*graph);
}

std::string plan_with_code(const std::string& code, Tier tier) {
  auto emitted = emit_baseline(test_graph(), target());
  assert_ok(emitted);
  Plan plan = std::move(emitted->plan);
  plan.tier = tier;
  plan.cubin = code;
  return encode_plan(plan);
}

// Programs whose plans have the code "baseline", "p1", "p2", ...; their modelled times rise by 1 us from 10.
std::vector<Program> programs(size_t searched) {
  std::vector<Program> out{{"", "", 20000, plan_with_code("baseline", Tier::baseline)}};
  for (size_t i = 1; i <= searched; ++i) {
    const std::string name = "p" + std::to_string(i);
    out.push_back(
        {"mugraph " + name, "schedule " + name, 9000 + 1000 * i, plan_with_code(name, Tier::modelled)});
  }
  return out;
}

struct Measured : MeasureResult {
  std::vector<MeasureProgress> progress;
  const ProgramTiming* timing(const Program& program) const {
    for (const ProgramTiming& each : timings)
      if (each.program == program.name()) return &each;
    return nullptr;
  }
  std::string code() const {
    if (plan.empty()) return "";
    auto decoded = decode_plan(plan);
    assert_ok(decoded);
    assert_int_equal(decoded->tier, Tier::measured);
    return decoded->cubin;
  }
};

Measured run(FakeBench& bench, const std::vector<Program>& list, MeasureOptions options = {},
             Compiler* compiler = nullptr) {
  Measured out;
  if (!options.cancel) options.jobs = 1;  // then programs come in their order
  options.on_progress = [&](const MeasureProgress& progress) { out.progress.push_back(progress); };
  auto result = measure(test_graph(), target(), list, compiler, bench, options);
  assert_ok(result);
  static_cast<MeasureResult&>(out) = std::move(*result);
  if (getenv("SHOW_REPORT")) print_message("%s", out.report.c_str());
  assert_false(bench.timed_unchecked);
  assert_true(bench.loaded.empty());  // everything was given back
  return out;
}

void the_fastest_wins(void**) {
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  bench.programs["p3"].us = 6;
  const auto list = programs(6);
  const Measured result = run(bench, list);
  assert_string_equal(result.code().c_str(), "p3");
  assert_true(result.replaces);
  assert_true(result.winner.name() == list[3].name());
  assert_true(std::fabs(result.cold_us - 6) < 0.1 && std::fabs(result.baseline_us - 20) < 0.5);
  assert_int_equal(result.timings.size(), 7);
  assert_true(bench.rounds["p3"] > 25);
  assert_true(bench.rounds["p5"] < 4);  // far behind: only the quick rounds
  const auto facts = parse_facts(decode_plan(result.plan)->certificate);
  assert_ok(facts);
  assert_string_equal(find_fact(*facts, "measured device")->c_str(), "Fake GPU, driver 13000");
  assert_contains(*find_fact(*facts, "measured"), "us hot, ");
  assert_contains(*find_fact(*facts, "measured inputs"), "masked");
  assert_string_equal(find_fact(*facts, "measured elements")->c_str(), "64 of 64 compared");
  assert_contains(result.report, "program 3, modelled 12.00 us: ");
  assert_contains(result.report, "us hot, the winner");
}

Program with_overlap(Program program) {
  auto plan = decode_plan(program.plan);
  assert_ok(plan);
  plan->launches[0].overlaps = true;
  program.plan = encode_plan(*plan);
  return program;
}

void a_first_launch_waits_where_that_is_faster(void**) {
  for (const double beside : {8.0, 6.0, 5.0}) {
    FakeBench bench;
    bench.programs["baseline"].us = 20;
    bench.programs["p2"].us = 6;
    bench.programs["p2"].us_beside = beside;
    auto list = programs(3);
    list[2] = with_overlap(list[2]);
    const Measured result = run(bench, list);
    assert_string_equal(result.code().c_str(), "p2");
    const auto plan = decode_plan(result.plan);
    assert_ok(plan);
    const auto facts = parse_facts(plan->certificate);
    assert_ok(facts);
    const std::string* fact = find_fact(*facts, waiting_fact(0));
    assert_int_equal(plan->launches[0].overlaps, beside <= 6);
    assert_int_equal(fact != nullptr, beside > 6);
    if (fact) assert_contains(*fact, "beside which it took ");
    assert_true(std::fabs(result.cold_us - std::min(beside, 6.0)) < 0.1);
    assert_true(decode_plan(result.programs[2].plan)->launches[0].overlaps == plan->launches[0].overlaps);
  }
}

// Clusters may end up on the SMs that the launch in front leaves free where they cannot be spread evenly; others always are.
void clusters_wait_where_that_is_faster(void**) {
  FakeBench bench;
  bench.launch_us = [](const Launch& launch) {
    return (launch.kernel == "alone" ? 40.0 : 5.0) +
           (launch.overlaps && launch.cluster.count() > 1 ? 2.0 : 0.0);
  };
  auto list = programs(1);
  auto plan = decode_plan(list[1].plan);
  assert_ok(plan);
  auto baseline = decode_plan(list[0].plan);
  assert_ok(baseline);
  for (Launch& launch : baseline->launches) launch.kernel = "alone";
  list[0].plan = encode_plan(*baseline);
  const Launch one = plan->launches[0];
  plan->launches.assign(4, one);
  for (size_t i = 1; i < 4; ++i) plan->launches[i].overlaps = true;
  plan->launches[1].cluster = plan->launches[3].cluster = {2, 1, 1};
  for (size_t i : {1, 3}) plan->launches[i].grid = {2, 1, 1};
  list[1].plan = encode_plan(*plan);
  const Measured result = run(bench, list);
  assert_string_equal(result.code().c_str(), "p1");
  const auto settled = decode_plan(result.plan);
  assert_ok(settled);
  const bool overlaps[] = {false, false, true, false};
  for (size_t i = 0; i < 4; ++i) assert_int_equal(settled->launches[i].overlaps, overlaps[i]);
  const auto facts = parse_facts(settled->certificate);
  assert_ok(facts);
  for (size_t i : {1, 3}) assert_contains(*find_fact(*facts, waiting_fact(i)), "beside which it took ");
  assert_null(find_fact(*facts, waiting_fact(2)));
  assert_true(std::fabs(result.cold_us - 20) < 0.5);
}

// However often nothing is faster, noise makes no winner.
void noise_replaces_nothing(void**) {
  for (int seed = 1; seed <= 30; ++seed) {
    FakeBench bench;
    bench.noise = 0.05;
    bench.seed(static_cast<uint64_t>(seed));
    const Measured result = run(bench, programs(8));
    if (result.replaces) fail_test("noise of seed " + std::to_string(seed) + " won: " + result.report);
    assert_string_equal(result.code().c_str(), "baseline");
  }
}

void what_stands_stays_unless_slower_than_the_baseline(void**) {
  const auto list = programs(4);
  MeasureOptions options;
  options.standing = list[2].name();
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  const Measured stays = run(bench, list, options);
  assert_string_equal(stays.code().c_str(), "p2");
  assert_false(stays.replaces);
  FakeBench slower;
  slower.programs["p2"].us = 30;
  slower.programs["p1"].us = slower.programs["p3"].us = slower.programs["p4"].us = 40;
  const Measured back = run(slower, list, options);
  assert_string_equal(back.code().c_str(), "baseline");
  assert_true(back.replaces);
  assert_true(back.winner.is_baseline());
  // It is wrong on this GPU.
  FakeBench wrong;
  wrong.programs["p2"].wrong = "random inputs, y [0, 0]: 1 instead of 2";
  const Measured replaced = run(wrong, list, options);
  assert_string_equal(replaced.code().c_str(), "baseline");
  assert_true(replaced.replaces);
  assert_contains(replaced.timing(list[2])->refusal, "1 instead of 2");
}

void what_is_refused_is_neither_timed_nor_published(void**) {
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  for (const char* name : {"p1", "p2", "p3", "p4", "p5"}) bench.programs[name].us = 1;
  bench.programs["p1"].wrong = "masked inputs, y [3, 1]: nan instead of 0";
  bench.programs["p2"].check = Status(ErrorCode::WORKER, "it hung: no answer in 2 s");
  bench.programs["p3"].add = Status(ErrorCode::CUDA, "no kernel image");
  bench.programs["p4"].time = Status(ErrorCode::WORKER, "it faulted");
  bench.programs["p5"].check = Status(ErrorCode::OUT_OF_MEMORY, "allocating 7 bytes");
  const auto list = programs(6);
  const Measured result = run(bench, list);
  assert_string_equal(result.code().c_str(), "p6");
  const char* reasons[] = {"nan instead of 0", "it hung", "no kernel image", "it faulted",
                           "allocating 7 bytes"};
  for (size_t i = 1; i <= 5; ++i) {
    assert_contains(result.timing(list[i])->refusal, reasons[i - 1]);
    assert_true(result.timing(list[i])->cold_ns == 0);
    assert_true(result.programs[i].plan.empty());
  }
  for (const MeasureProgress& progress : result.progress)
    if (!progress.plan.empty()) assert_string_equal(decode_plan(progress.plan)->cubin.c_str(), "p6");
  assert_int_equal(result.end, MeasureEnd::finished);
}

// A program may be right and still hang when it runs often.
void one_of_several_that_hangs_is_found(void**) {
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  bench.programs["p1"].us = 5;
  int times = 0;
  bench.programs["p1"].on_time = [&] {
    if (++times > 2) bench.programs["p1"].time = Status(ErrorCode::WORKER, "it hung");
  };
  const auto list = programs(3);
  const Measured result = run(bench, list);
  assert_true(result.code() == "p2" || result.code() == "p3");
  assert_contains(result.timing(list[1])->refusal, "it hung");
}

void a_first_better_plan_is_reported_once(void**) {
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  bench.programs["p1"].us = 15;
  bench.programs["p4"].us = 5;
  const Measured result = run(bench, programs(5));
  std::string published;
  for (const MeasureProgress& progress : result.progress)
    if (!progress.plan.empty()) published += decode_plan(progress.plan)->cubin + " ";
  assert_string_equal(published.c_str(), "p1 ");
  assert_string_equal(result.code().c_str(), "p4");
  assert_int_equal(result.progress.back().tried, 6);
  assert_int_equal(result.progress.back().programs, 6);
}

void the_budget_ends_it_with_the_best_so_far(void**) {
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  for (size_t i = 1; i <= 40; ++i) bench.programs["p" + std::to_string(i)].seconds = 0.05;
  bench.programs["p2"].us = 4;
  MeasureOptions options;
  options.budget = std::chrono::milliseconds(500);
  const Measured result = run(bench, programs(40), options);
  assert_int_equal(result.end, MeasureEnd::budget);
  assert_string_equal(result.code().c_str(), "p2");
  assert_contains(result.reason, "programs not tried");
  assert_true(result.timings.size() < 20);
}

// Of which rounds later on take much less.
void a_slow_first_time_does_not_use_up_the_budget(void**) {
  FakeBench bench;
  bench.programs["baseline"].us = 20;
  bench.programs["p2"].us = 4;
  bool first = true;
  bench.programs["baseline"].on_time = [&] {
    if (std::exchange(first, false)) std::this_thread::sleep_for(std::chrono::milliseconds(250));
  };
  MeasureOptions options;
  options.budget = std::chrono::milliseconds(1500);
  const Measured result = run(bench, programs(6), options);
  assert_int_equal(result.end, MeasureEnd::finished);
  assert_string_equal(result.code().c_str(), "p2");
}

void it_can_be_cancelled(void**) {
  FakeBench bench;
  std::atomic<bool> cancel = false;
  bench.programs["p2"].on_time = [&] { cancel = true; };
  MeasureOptions options;
  options.cancel = &cancel;
  const Measured result = run(bench, programs(30), options);
  assert_int_equal(result.end, MeasureEnd::cancelled);
  assert_true(result.plan.empty());
  assert_true(result.timings.size() < 10);
  for (const Program& program : result.programs) assert_false(program.plan.empty());  // what was made is kept
}

// The model is right about the order: the last programs need not be tried.
void it_stops_when_nothing_better_can_be_expected(void**) {
  FakeBench bench;
  auto list = programs(40);
  for (size_t i = 1; i <= 40; ++i) bench.programs["p" + std::to_string(i)].us = 9 + static_cast<double>(i);
  bench.programs["baseline"].us = 30;
  const Measured result = run(bench, list);
  assert_string_equal(result.code().c_str(), "p1");
  assert_int_equal(result.end, MeasureEnd::finished);
  assert_contains(result.reason, "expects nothing better");
  assert_true(result.timings.size() < 30);
}

void a_busy_gpu_is_not_measured(void**) {
  FakeBench busy;
  busy.disturbed = 0.5;
  const Measured result = run(busy, programs(3));
  assert_int_equal(result.end, MeasureEnd::disturbed);
  assert_true(result.plan.empty() && result.timings.empty());
  MeasureOptions always;
  always.most_disturbance = 1;
  assert_int_equal(run(busy, programs(3), always).end, MeasureEnd::finished);
  // Now and then something else runs: those rounds are discarded.
  FakeBench bumpy;
  bumpy.programs["p2"].us = 5;
  bumpy.slowdown = [](int round) { return round % 5 == 4 ? 1.5 : 1.0; };
  const Measured bumped = run(bumpy, programs(3));
  assert_string_equal(bumped.code().c_str(), "p2");
  assert_true(bumped.cold_us < 5.2);
  // Always another thing: nothing can be said.
  FakeBench noisy;
  noisy.slowdown = [](int round) { return round % 2 ? 3.0 : 1.0; };
  assert_int_equal(run(noisy, programs(3)).end, MeasureEnd::disturbed);
  assert_int_equal(run(noisy, programs(3), always).end, MeasureEnd::finished);
}

void a_lost_gpu_refuses_no_program(void**) {
  FakeBench bench;
  bench.programs["p2"].on_time = [&] { bench.lost = Status(ErrorCode::NO_DEVICE, "GPU 0 is lost"); };
  const Measured result = run(bench, programs(5));
  assert_int_equal(result.end, MeasureEnd::lost);
  assert_contains(result.reason, "GPU 0 is lost");
  assert_true(result.plan.empty());
  for (const ProgramTiming& timing : result.timings) assert_string_equal(timing.refusal.c_str(), "");
}

void programs_without_code_need_a_compiler(void**) {
  FakeBench bench;
  auto list = programs(2);
  list[2].plan.clear();
  const Measured result = run(bench, list);
  assert_contains(result.timing(list[2])->refusal, "no compiler");
  assert_string_equal(run(bench, list).code().c_str(), "baseline");
  // Nobody has the baseline's code, and nothing else is right.
  assert_true(run(bench, {Program{}}).plan.empty());
}

// What is compiled here has a certificate that holds for it.
void code_is_made_from_the_texts(void**) {
  const auto graph = parse_graph(read_test_file(test_root() / "examples/lora_b1.qg"));
  assert_ok(graph);
  FakeCompiler compiler;
  OptimizeOptions how;
  const auto found = optimize(*graph, target(), compiler, how);
  assert_ok(found);
  assert_true(found->found());
  const std::vector<Program> list = {{"", "", 0, ""}, {found->mugraph, found->schedule, 1000, ""}};
  FakeBench bench;
  bench.programs[found->plan.cubin].us = 5;
  const int before = compiler.compiles;
  auto result = measure(*graph, target(), list, &compiler, bench, {});
  assert_ok(result);
  assert_int_equal(compiler.compiles - before, 2);
  auto plan = decode_plan(result->plan);
  assert_ok(plan);
  assert_true(plan->cubin == found->plan.cubin);
  const PlanSource source{print_graph(*graph), found->mugraph, found->schedule, found->cuda};
  for (const std::string& fault : certificate_faults(*plan, source, Depth::program)) fail_test(fault);
  // With the code that came back nothing is compiled again, and the baseline can win, too.
  bench.programs[found->plan.cubin].us = 50;
  result = measure(*graph, target(), result->programs, nullptr, bench, {});
  assert_ok(result);
  plan = decode_plan(result->plan);
  assert_ok(plan);
  assert_int_equal(compiler.compiles - before, 2);
  assert_true(result->winner.is_baseline() && plan->tier == Tier::measured);
  for (const std::string& fault :
       certificate_faults(*plan, {print_graph(*graph), "", "", ""}, Depth::program))
    fail_test(fault);
}

// The reference takes long to compile: programs are compiled meanwhile, and that is not of the budget.
void programs_are_compiled_while_the_bench_opens(void**) {
  const auto graph = parse_graph(read_test_file(test_root() / "examples/lora_b1.qg"));
  assert_ok(graph);
  FakeCompiler compiler;
  const std::vector<Program> list = {{"", "", 0, ""}};
  FakeBench bench;
  MeasureOptions options;
  options.budget = std::chrono::milliseconds(1500);
  const auto result = measure(
      *graph, target(), list, &compiler,
      [&]() -> Result<Bench*> {
        const auto begin = std::chrono::steady_clock::now();
        while (compiler.compiles == 0 || std::chrono::steady_clock::now() - begin < options.budget) {
          if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20))
            fail_test("nothing is compiled while the bench opens");
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return &bench;
      },
      options);
  assert_ok(result);
  assert_int_equal(result->end, MeasureEnd::finished);
  // What cannot be opened is said, and nothing is left running.
  const auto failed = measure(
      *graph, target(), list, &compiler,
      []() -> Result<Bench*> { return Status(ErrorCode::NO_DEVICE, "there is none"); }, options);
  assert_error(failed, ErrorCode::NO_DEVICE, "there is none");
}

Graph two_products() {
  auto graph = parse_graph(R"(graph layer
in x: bf16[16, 1024]
in w: bf16[1024, 4096] const
in v: bf16[4096, 1024] const
h = matmul(x, w)
g = gelu(h)
z = matmul(g, v)
out z
)");
  assert_ok(graph);
  return std::move(*graph);
}

// Its shape alone says what a launch takes, in no order that the model knows.
double us_of_shape(const Launch& launch) {
  const std::string shape = launch.kernel.substr(0, 2) +
                            std::to_string(launch.grid.count() * launch.cluster.x) + " " +
                            std::to_string(launch.block.x) + " " + std::to_string(launch.shared_bytes);
  return 5 + static_cast<double>(hash128(shape).low % 1000) / 100;
}

// The best kernels of several programs make one that was not in the list.
void the_best_kernels_make_a_program(void**) {
  const Graph graph = two_products();
  FakeCompiler compiler;
  const auto found = optimize(graph, target(), compiler, {});
  assert_ok(found);
  assert_true(found->found() && found->plan.launches.size() > 1);
  FakeBench bench;
  bench.noise = 0.001;
  bench.launch_us = us_of_shape;
  MeasureOptions options;
  options.budget = std::chrono::minutes(3);
  const auto result = measure(graph, target(), found->programs, &compiler, bench, options);
  assert_ok(result);
  assert_int_equal(result->end, MeasureEnd::finished);
  assert_int_equal(result->programs.size(), found->programs.size() + 1);
  const Program& made = result->programs.back();
  assert_true(result->winner.name() == made.name());
  for (const Program& listed : found->programs) assert_true(listed.name() != made.name());
  // No launch of a program of as many takes less.
  std::map<std::string, double> least, own;
  auto note = [&](const Program& program, std::map<std::string, double>& us) {
    const auto emitted =
        emit_mugraph(graph, *parse_mugraph(program.mugraph), *parse_schedule(program.schedule), target());
    assert_ok(emitted);
    for (const Launch& launch : emitted->plan.launches) {
      const auto at = us.emplace(launch.kernel, us_of_shape(launch)).first;
      at->second = std::min(at->second, us_of_shape(launch));
    }
  };
  note(made, own);
  for (const Program& program : result->programs)
    if (program.mugraph == made.mugraph) note(program, least);
  assert_true(own == least && own.size() > 1);
}

// Clusters that are fast by themselves may crowd where they overlap the kernel in front, and the program is far behind then.
void launches_that_crowd_wait(void**) {
  const Graph graph = two_products();
  FakeCompiler compiler;
  const auto found = optimize(graph, target(), compiler, {});
  assert_ok(found);
  FakeBench bench;
  bench.noise = 0.001;
  bench.launch_us = [](const Launch& launch) {
    return us_of_shape(launch) / (launch.cluster.count() > 1 ? 10 : 1);
  };
  bench.crowded_us = [](const Launch& launch) {
    return launch.overlaps && launch.cluster.count() > 1 ? 100.0 : 0.0;
  };
  MeasureOptions options;
  options.budget = std::chrono::minutes(3);
  const auto result = measure(graph, target(), found->programs, &compiler, bench, options);
  assert_ok(result);
  const auto plan = decode_plan(result->plan);
  assert_ok(plan);
  size_t clusters = 0;
  for (const Launch& launch : plan->launches) {
    if (launch.cluster.count() <= 1) continue;
    ++clusters;
    assert_false(launch.overlaps);
  }
  assert_true(clusters > 0);
  for (const ProgramTiming& timing : result->timings)
    if (timing.cold_ns > 0) assert_true(1e3 * result->cold_us < 1.001 * timing.cold_ns);
}

// Kernels of one library step may have one name.
void launches_are_known_by_their_kernels(void**) {
  EmittedMuGraph emitted;
  for (const char* kernel : {"k0_points", "k0_points", "q2_joined", "q3_block", "q4_block"}) {
    emitted.plan.launches.emplace_back().kernel = kernel;
  }
  for (size_t kernel : {1, 2}) {
    EmittedBlock& block = emitted.blocks.emplace_back();
    block.kernel = kernel;
    block.function = "q2_joined";
  }
  EmittedBlock& again = emitted.blocks.emplace_back();
  again.kernel = 5;
  again.function = "q3_block";
  again.again = "q4_block";
  const auto launches = emitted.launches_of_kernels();
  assert_int_equal(launches.size(), 3);
  assert_true(launches.at(1) == (LaunchRange{2, 3}) && launches.at(2) == (LaunchRange{2, 3}));
  assert_true(launches.at(5) == (LaunchRange{3, 5}));
}

void rounds_are_compared_by_signs(void**) {
  std::vector<double> slow(11, 2.0), fast(11, 1.9);
  assert_true(is_faster(fast, slow));
  assert_false(is_faster(slow, fast));
  assert_false(is_faster(slow, slow));
  fast[3] = 100;  // an outlier decides nothing
  assert_true(is_faster(fast, slow));
  for (size_t i = 0; i < 5; ++i) fast[i] = 2.1;
  assert_false(is_faster(fast, slow));
  assert_false(is_faster({1.0, 1.0, 1.0}, {2.0, 2.0, 2.0}));  // too few rounds
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_fastest_wins),
      cmocka_unit_test(a_first_launch_waits_where_that_is_faster),
      cmocka_unit_test(clusters_wait_where_that_is_faster),
      cmocka_unit_test(noise_replaces_nothing),
      cmocka_unit_test(what_stands_stays_unless_slower_than_the_baseline),
      cmocka_unit_test(what_is_refused_is_neither_timed_nor_published),
      cmocka_unit_test(one_of_several_that_hangs_is_found),
      cmocka_unit_test(a_first_better_plan_is_reported_once),
      cmocka_unit_test(the_budget_ends_it_with_the_best_so_far),
      cmocka_unit_test(a_slow_first_time_does_not_use_up_the_budget),
      cmocka_unit_test(it_can_be_cancelled),
      cmocka_unit_test(it_stops_when_nothing_better_can_be_expected),
      cmocka_unit_test(a_busy_gpu_is_not_measured),
      cmocka_unit_test(a_lost_gpu_refuses_no_program),
      cmocka_unit_test(programs_without_code_need_a_compiler),
      cmocka_unit_test(programs_are_compiled_while_the_bench_opens),
      cmocka_unit_test(code_is_made_from_the_texts),
      cmocka_unit_test(the_best_kernels_make_a_program),
      cmocka_unit_test(launches_that_crowd_wait),
      cmocka_unit_test(launches_are_known_by_their_kernels),
      cmocka_unit_test(rounds_are_compared_by_signs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
