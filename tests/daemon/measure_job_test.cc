// The job of a worker on a GPU, with a GPU that does what the test says: what it sends, and which errors.
#include "daemon/measure_job.h"

#include "core/base/target.h"
#include "core/codegen/baseline.h"
#include "core/graph/text.h"
#include "core/optimize/program.h"
#include "tests/profile/fake_bench.h"
#include "tests/support/test.h"

namespace quern {

namespace {

constexpr const char* kGraph = "graph test\nin x: f32[8, 8]\ny = relu(x)\nout y\n";

std::string plan_with_code(const std::string& code, Tier tier) {
  auto emitted = emit_baseline(*parse_graph(kGraph), **find_target("sm_90a"));
  assert_ok(emitted);
  Plan plan = std::move(emitted->plan);
  plan.tier = tier;
  plan.cubin = code;
  return encode_plan(plan);
}

// Three programs, the last of which the search did not compile.
wire::Job test_job() {
  wire::Job job;
  job.graph = kGraph;
  job.target = "sm_90a";
  job.kind = wire::JobKind::measure;
  job.budget_ms = 3000;
  job.toolchain = "another compiler";
  job.standing = Program().name();
  job.programs = encode_programs({{"", "", 20000, plan_with_code("baseline", Tier::baseline)},
                                  {"m", "s 1", 10000, plan_with_code("p1", Tier::modelled)},
                                  {"m", "s 2", 11000, plan_with_code("p2", Tier::modelled)},
                                  {"m", "s 3", 12000, ""}});
  return job;
}

struct Run {
  std::function<void(FakeBench&)> prepare = [](FakeBench&) {};
  std::vector<wire::JobProgress> progress;

  Result<wire::JobDone> operator()(const wire::Job& job) {
    const OpenGraphBench open = [this](const Graph&, bool) -> Result<std::unique_ptr<Bench>> {
      auto made = std::make_unique<FakeBench>();
      for (const auto& [name, us] : {std::pair{"baseline", 20.0}, {"p1", 12.0}, {"p2", 9.0}})
        made->programs[name].us = us;
      prepare(*made);
      return std::unique_ptr<Bench>(std::move(made));
    };
    return run_measure(nullptr, open, job, [this](const wire::JobProgress& now) { progress.push_back(now); });
  }
};

void the_fastest_is_sent_with_all_timings(void**) {
  Run run;
  const wire::Job job = test_job();
  const auto done = run(job);
  assert_ok(done);
  assert_text_equal(done->device, "Fake GPU, driver 13000");
  assert_text_equal(done->mugraph, "m");
  assert_text_equal(done->schedule, "s 2");
  const auto plan = decode_plan(done->plan);
  assert_ok(plan);
  assert_true(plan->tier == Tier::measured && plan->cubin == "p2");
  // What has no code and no compiler is refused; the rest is timed, in picoseconds.
  assert_int_equal(done->timings.size(), 4);
  const auto programs = *decode_programs(job.programs);
  for (const wire::TimingRow& row : done->timings) {
    assert_int_equal(row.cold_ps == 0, row.program == programs[3].name());
    assert_int_equal(row.refusal.empty(), row.cold_ps > 0);
    if (row.program == programs[0].name()) assert_in_range(row.cold_ps, 19'000'000, 21'000'000);
  }
  assert_int_equal(decode_programs(done->programs)->size(), 4);
  assert_false(done->reason.empty());
}

void a_better_plan_is_sent_before_the_end(void**) {
  Run run;
  assert_ok(run(test_job()));
  const auto programs = *decode_programs(test_job().programs);
  size_t plans = 0;
  for (const wire::JobProgress& now : run.progress) {
    assert_int_equal(now.programs, 4);
    if (now.plan.empty()) continue;
    ++plans;
    assert_text_equal(now.device, "Fake GPU, driver 13000");
    assert_true(now.program == programs[1].name() || now.program == programs[2].name());
    assert_true(now.best_ps > 0 && now.best_ps < now.baseline_ps);
  }
  assert_int_equal(plans, 1);
}

void a_wrong_program_is_refused_and_never_timed(void**) {
  Run run;
  run.prepare = [](FakeBench& bench) { bench.programs["p2"].wrong = "element 7 is 3, not 4"; };
  const auto done = run(test_job());
  assert_ok(done);
  assert_text_equal(done->schedule, "s 1");
  for (const wire::TimingRow& row : done->timings)
    if (row.program == (*decode_programs(test_job().programs))[2].name()) {
      assert_contains(row.refusal, "element 7 is 3, not 4");
      assert_int_equal(row.cold_ps, 0);
    }
}

void a_busy_gpu_is_an_error_unless_it_was_asked_for(void**) {
  Run run;
  run.prepare = [](FakeBench& bench) { bench.disturbed = 0.8; };
  assert_error(run(test_job()), ErrorCode::BUSY, "others use 80");
  wire::Job job = test_job();
  job.any_load = 1;
  assert_ok(run(job));
}

void a_lost_gpu_is_an_error(void**) {
  Run run;
  run.prepare = [](FakeBench& bench) { bench.lost = Status(ErrorCode::NO_DEVICE, "fell off the bus"); };
  assert_error(run(test_job()), ErrorCode::NO_DEVICE, "fell off the bus");
}

void bad_jobs_are_refused(void**) {
  Run run;
  wire::Job job = test_job();
  job.programs = "nonsense";
  assert_error(run(job), ErrorCode::CORRUPT);
  job = test_job();
  job.target = "sm_1";
  assert_error(run(job), ErrorCode::UNSUPPORTED);
  job = test_job();
  job.graph = "nonsense";
  assert_error(run(job), ErrorCode::INVALID_GRAPH);
}

void without_a_driver_there_is_a_reason(void**) {
  setenv("QUERN_LIBCUDA", "/nowhere/libcuda.so", 1);
  uint32_t count = 7;
  const GpuState gpu = find_gpu(0, count);
  assert_true(gpu.kind == GpuState::Kind::missing && count == 0);
  assert_contains(gpu.reason, "/nowhere/libcuda.so");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_fastest_is_sent_with_all_timings),
      cmocka_unit_test(a_better_plan_is_sent_before_the_end),
      cmocka_unit_test(a_wrong_program_is_refused_and_never_timed),
      cmocka_unit_test(a_busy_gpu_is_an_error_unless_it_was_asked_for),
      cmocka_unit_test(a_lost_gpu_is_an_error),
      cmocka_unit_test(bad_jobs_are_refused),
      cmocka_unit_test(without_a_driver_there_is_a_reason),
  };
  return cmocka_run_group_tests_name("daemon-measure-job", tests, nullptr, nullptr);
}
