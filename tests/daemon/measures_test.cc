// Measuring in the background: when it is started, what is published, put off and given up, who is told.
#include "core/optimize/program.h"
#include "tests/daemon/harness.h"

namespace quern {

namespace {

constexpr const char* kDevice = "NVIDIA H200, driver 580.1";

GpuState gpu(const std::string& target = "sm_90a", const std::string& device = kDevice, int number = 0) {
  return {number, GpuState::Kind::ready, device, target, ""};
}

std::vector<Program> programs_for(const JobSpec& spec) {
  std::vector<Program> programs = {{"", "", 9000, ""}};
  for (size_t i = 1; i < 4; ++i)
    programs.push_back({"mugraph", "schedule " + std::to_string(i), 1000 * i,
                        i < 3 ? fake_plan(spec.graph, spec.target, 5000, Tier::modelled) : ""});
  return programs;
}

wire::JobDone searched(const JobSpec& spec, bool finds = true) {
  wire::JobDone done;
  done.report = "search: 3 candidates\n";
  done.programs = encode_programs(programs_for(spec));
  if (!finds) {
    done.reason = "the model says that the baseline is faster";
    return done;
  }
  done.plan = fake_plan(spec.graph, spec.target, 5000, Tier::modelled);
  done.modelled_ns = 1000;
  done.mugraph = "mugraph";
  done.schedule = "schedule 1";
  done.cuda = "cuda 1";
  return done;
}

wire::TimingRow timing(const Program& program, uint64_t ns, const std::string& refusal = "") {
  wire::TimingRow row;
  row.program = program.name();
  row.cold_ps = ns * 1000;
  row.hot_ps = ns * 900;
  row.samples = 25;
  row.error_ppb = 1000;
  row.refusal = refusal;
  return row;
}

// Program `winner` won, of times in the order of the list; 0 is refused.
wire::JobDone measured(const JobSpec& spec, size_t winner, std::vector<uint64_t> ns,
                       const std::string& device = kDevice) {
  const auto programs = *decode_programs(spec.programs);
  wire::JobDone done;
  done.device = device;
  done.plan = fake_plan(spec.graph, spec.target, 6000 + winner, Tier::measured);
  done.mugraph = programs[winner].mugraph;
  done.schedule = programs[winner].schedule;
  done.reason = "program " + std::to_string(winner) + " is the fastest";
  for (size_t i = 0; i < ns.size(); ++i)
    done.timings.push_back(timing(programs[i], ns[i], ns[i] ? "" : "wrong in one element"));
  return done;
}

void settle(Harness& test) {
  while (test.run_posted(0)) {
  }
  assert_ok(test.store->flush());
  while (test.run_posted(100)) {
  }
}

// A harness with one GPU, whose graph was searched.
struct Searched : Harness {
  Hash128 key;
  explicit Searched(std::vector<GpuState> devices = {gpu()}, bool finds = true) {
    workers.devices = std::move(devices);
    reopen();
    search(1, finds);
  }
  void search(int number, bool finds = true) {
    key = make(test_graph(number)).key;
    // Where nothing can be measured, code is kept for a place where it can.
    const bool here = !workers.devices.empty() && workers.devices[0].target == "sm_90a";
    assert_int_equal(workers.searching[0].spec.keep, here ? 1 : Searches::kKeep);
    workers.finish_search(searched(workers.searching[0].spec, finds));
    settle(*this);
  }
  const JobSpec& spec() {
    assert_int_equal(workers.measuring.size(), 1);
    return workers.measuring[0].spec;
  }
  wire::ExplainReply explain(int number = 1) {
    wire::Explain request;
    request.graph = test_graph(number);
    request.target = "sm_90a";
    return ask<wire::ExplainReply>(request);
  }
  void use(int number = 1) { ask<wire::PlanReply>(get(test_graph(number))); }
  void tick(uint64_t ns) {
    now += ns;
    service->expire();
  }
  std::string fact(const std::string& name) {
    for (const auto& each : ask<wire::StatsReply>(wire::Stats{}).facts)
      if (each.name == name) return each.text;
    return "";
  }
};

void a_search_is_followed_by_a_measuring(void**) {
  Searched test;
  const JobSpec spec = test.spec();
  assert_true(spec.kind == wire::JobKind::measure && spec.material.key() == test.key);
  assert_int_equal(spec.budget_ms, 30000);
  assert_false(spec.any_load);
  const auto programs = *decode_programs(spec.programs);
  assert_int_equal(programs.size(), 4);
  assert_false(programs[0].plan.empty());  // the baseline's code is known here
  assert_true(spec.standing == programs[1].name());
  test.ask<wire::Subscribed>(wire::Subscribe{test.key}, 2);
  test.workers.finish_measure(measured(spec, 2, {9000, 5000, 3000, 0}));
  const auto better = test.receive_as<wire::Better>(2, 0);
  assert_true(better.tier == Tier::measured && better.generation == 3);
  settle(test);
  const auto shown = test.ask<wire::ShowReply>(wire::Show{test.key});
  assert_text_equal(shown.schedule, "schedule 2");
  assert_text_equal(shown.cuda, "");  // it was of the other program
  assert_contains(shown.report, "search: 3 candidates\nmeasured on NVIDIA H200, driver 580.1: program 2");
  assert_int_equal(shown.programs.size(), 4);
  assert_true(shown.programs[2].stands && !shown.programs[1].stands && shown.programs[0].baseline);
  assert_int_equal(shown.timings.size(), 4);
  const auto explained = test.explain();
  assert_text_equal(explained.measuring, std::string("done on ") + kDevice + ": 3 programs timed, 1 refused");
  // Once is enough, in the next daemon too.
  test.use();
  test.reopen();
  test.use();
  assert_int_equal(test.workers.measuring.size(), 0);
}

void the_baseline_can_win(void**) {
  Searched test;
  test.workers.finish_measure(measured(test.spec(), 0, {2000, 5000, 3000, 0}));
  settle(test);
  const auto hit = test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_true(hit.tier == Tier::measured && hit.generation == 3);
  const auto shown = test.ask<wire::ShowReply>(wire::Show{test.key});
  assert_text_equal(shown.mugraph, "");
  assert_true(shown.programs[0].stands);
  assert_contains(shown.reason, "program 0 is the fastest");
}

void what_the_model_refused_is_measured_too(void**) {
  Searched test({gpu()}, false);
  assert_true(test.spec().standing == Program().name());
  test.workers.finish_measure(measured(test.spec(), 1, {9000, 4000}));
  settle(test);
  assert_true(test.store->peek(test.key)->tier == Tier::measured);
}

void a_better_plan_is_published_before_the_end(void**) {
  Searched test;
  const JobSpec spec = test.spec();
  const auto programs = *decode_programs(spec.programs);
  wire::JobProgress progress;
  progress.tried = 2;
  progress.programs = 4;
  progress.best_ps = 4'000'000;
  progress.device = kDevice;
  test.workers.measuring[0].on_progress(progress);
  settle(test);
  assert_int_equal(test.store->peek(test.key)->generation, 2);
  progress.plan = fake_plan(spec.graph, spec.target, 7000, Tier::measured);
  progress.program = programs[3].name();
  progress.cuda = "cuda 3";
  test.workers.measuring[0].on_progress(progress);
  settle(test);
  const auto early = test.store->peek(test.key);
  assert_true(early->tier == Tier::measured && early->generation == 3 && early->plan == progress.plan);
  assert_text_equal(test.store->findings(test.key)->cuda, "cuda 3");
  // The end confirms it: nothing changes.
  test.workers.finish_measure(measured(spec, 3, {9000, 5000, 4500, 4100}));
  settle(test);
  assert_true(test.store->peek(test.key)->plan == progress.plan);
  assert_int_equal(test.store->timings(test.key)->size(), 5);  // and the model's
}

void an_early_plan_that_is_none_is_not_published(void**) {
  Searched test;
  const JobSpec spec = test.spec();
  wire::JobProgress progress;
  progress.device = kDevice;
  progress.best_ps = 1;
  const std::string right = fake_plan(spec.graph, spec.target, 7000, Tier::measured);
  const Hash128 known = (*decode_programs(spec.programs))[2].name();
  for (const auto& [plan, program] : {std::pair{std::string("nonsense"), known},
                                      {fake_plan(test_graph(7), spec.target, 7000, Tier::measured), known},
                                      {fake_plan(spec.graph, spec.target, 7000, Tier::modelled), known},
                                      {right, Hash128{1, 2}}}) {
    progress.plan = plan;
    progress.program = program;
    test.workers.measuring[0].on_progress(progress);
  }
  settle(test);
  assert_int_equal(test.store->peek(test.key)->generation, 2);
}

// A measuring is won by a program more, which is handed back behind those that were asked for. All of them.
std::vector<Program> win_with_one_more(Searched& test) {
  auto programs = *decode_programs(test.spec().programs);
  programs.push_back({"mugraph", "schedule of all", 900, ""});
  wire::JobDone done = measured(test.spec(), 1, {9000, 5000, 3000});
  done.schedule = programs.back().schedule;
  done.timings.push_back(timing(programs.back(), 2000));
  done.programs = encode_programs(programs);
  test.workers.finish_measure(done);
  settle(test);
  return programs;
}

// Made of the best kernels of the others.
void a_program_more_can_win(void**) {
  Searched test;
  win_with_one_more(test);
  assert_true(test.store->peek(test.key)->tier == Tier::measured);
  const auto shown = test.ask<wire::ShowReply>(wire::Show{test.key});
  assert_text_equal(shown.schedule, "schedule of all");
  assert_int_equal(shown.programs.size(), 5);
  assert_true(shown.programs.back().stands);
}

// A search that comes to its end later, or another node, lists programs without it.
void a_program_more_that_stands_is_measured_with_every_list(void**) {
  Searched test;
  const std::string list = test.spec().programs;
  const std::vector<Program> programs = win_with_one_more(test);
  auto findings = test.store->findings(test.key);
  assert_ok(findings);
  test.store->put_findings(test.key, *findings, list, [](const Status& status) { assert_ok(status); });
  settle(test);
  test.send(1, 5, wire::Tune{test.key, 600'000, 0, 0, 0});
  const auto now = *decode_programs(test.spec().programs);
  assert_true(test.spec().standing == programs.back().name());
  assert_int_equal(now.size(), programs.size());
  assert_true(now.back().name() == programs.back().name());
  const auto plan = decode_plan(now.back().plan);
  assert_ok(plan);
  assert_int_equal(plan->tier, Tier::modelled);
}

void what_a_worker_says_is_checked(void**) {
  const auto wrong = [](Harness& test, int which) {
    const JobSpec spec = test.workers.measuring[0].spec;
    wire::JobDone done = measured(spec, 2, {9000, 5000, 3000});
    if (which == 0) done.plan = "nonsense";
    if (which == 1) done.plan = fake_plan(test_graph(8), spec.target, 6000, Tier::measured);
    if (which == 2) done.plan = fake_plan(spec.graph, "sm_80", 6000, Tier::measured);
    if (which == 3) done.schedule = "another";
    if (which == 4) done.timings[2].refusal = "wrong";
    if (which == 5) done.timings[0].program = {5, 5};
    if (which == 6) done.device = "model";
    if (which == 7) done.programs = "nonsense";
    if (which > 7) {
      // Two more, or one of another muGraph.
      auto programs = *decode_programs(spec.programs);
      for (int more = 0; more < 2; ++more)
        programs.push_back(
            {which == 8 ? "mugraph" : "another", "schedule " + std::to_string(50 + more), 900, ""});
      if (which == 9) programs.pop_back();
      done.timings.push_back(timing(programs.back(), 2000));
      done.programs = encode_programs(programs);
    }
    return done;
  };
  for (int which = 0; which < 10; ++which) {
    Searched test;
    test.workers.finish_measure(wrong(test, which));
    settle(test);
    assert_int_equal(test.store->peek(test.key)->generation, 2);
    assert_contains(test.explain().measuring, "given up");
  }
}

void two_dead_workers_give_up_on_this_gpu_only(void**) {
  Searched test;
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(test.workers.measuring.size(), 1);
    test.workers.finish_measure(Status(ErrorCode::WORKER, "the worker was killed by signal 11"));
  }
  settle(test);
  assert_contains(test.explain().measuring, "measuring was given up");
  assert_contains(test.explain().measuring, "signal 11");
  test.reopen();
  test.use();  // the plan is still there, and not set aside
  assert_int_equal(test.workers.measuring.size(), 0);
  assert_text_equal(test.explain().quarantine, "");
  // Another driver may do better.
  test.workers.devices = {gpu("sm_90a", "NVIDIA H200, driver 581")};
  test.service->gpus_changed();
  test.use();
  assert_int_equal(test.workers.measuring.size(), 1);
}

void another_driver_measures_again_and_compiles_nothing(void**) {
  Searched test;
  wire::JobDone done = measured(test.spec(), 2, {9000, 5000, 3000, 2500});
  auto programs = *decode_programs(test.spec().programs);
  programs[3].plan = fake_plan(test.spec().graph, "sm_90a", 5000, Tier::modelled);
  done.programs = encode_programs(programs);
  test.workers.finish_measure(done);
  settle(test);
  test.workers.devices = {gpu("sm_90a", "NVIDIA H200, driver 581")};
  test.reopen();
  test.use();
  const JobSpec again = test.spec();
  assert_true(*decode_programs(again.programs) == programs);  // all with their code
  assert_true(again.standing == programs[2].name());
  assert_int_equal(test.workers.searching.size(), 0);
  assert_int_equal(test.workers.started, 1);
  // There another program is the fastest: of one tier, on one device.
  test.workers.finish_measure(measured(again, 3, {9000, 5000, 3000, 2000}, "NVIDIA H200, driver 581"));
  settle(test);
  assert_text_equal(test.ask<wire::ShowReply>(wire::Show{test.key}).schedule, "schedule 3");
  assert_int_equal(test.store->timings(test.key)->size(), 9);
}

void a_busy_gpu_puts_it_off(void**) {
  Searched test;
  uint64_t wait = Measures::kRetryNs;
  for (int i = 0; i < 3; ++i) {
    test.workers.finish_measure(Status(ErrorCode::BUSY, "others use 80 % of the GPU"));
    settle(test);
    assert_int_equal(test.workers.measuring.size(), 0);
    assert_contains(test.explain().measuring, "put off: others use 80 % of the GPU; tried again in");
    test.use();
    assert_int_equal(test.workers.measuring.size(), 0);
    assert_int_equal(*test.service->next_deadline_ns(), test.now + wait);
    test.tick(wait - 1);
    assert_int_equal(test.workers.measuring.size(), 0);
    test.tick(1);
    assert_int_equal(test.workers.measuring.size(), 1);
    wait *= 2;
  }
  test.workers.finish_measure(measured(test.spec(), 2, {9000, 5000, 3000}));
  settle(test);
  assert_true(test.store->peek(test.key)->tier == Tier::measured);
  assert_false(test.service->next_deadline_ns().has_value());
}

void a_lost_gpu_is_said_and_nothing_is_lost(void**) {
  Searched test;
  test.search(2);  // queued behind the first
  test.workers.devices = {{0, GpuState::Kind::missing, "", "", "the GPU is lost: fell off the bus"}};
  test.service->gpus_changed();
  test.workers.finish_measure(Status(ErrorCode::NO_DEVICE, "the GPU is lost: fell off the bus"));
  settle(test);
  assert_int_equal(test.workers.measuring.size(), 0);
  assert_text_equal(test.fact("gpu 0"), "none: the GPU is lost: fell off the bus");
  assert_contains(test.explain(2).measuring, "fell off the bus");
  assert_true(test.store->peek(test.key)->tier == Tier::modelled);
  test.workers.devices = {gpu()};
  test.service->gpus_changed();
  test.tick(Measures::kRetryNs);
  assert_int_equal(test.workers.measuring.size(), 1);
}

void without_a_gpu_of_the_target_it_waits_for_one(void**) {
  Searched test({gpu("sm_80", "NVIDIA A100, driver 580.1")});
  assert_int_equal(test.workers.measuring.size(), 0);
  assert_text_equal(
      test.explain().measuring,
      "nothing can be measured for sm_90a: GPU 0: NVIDIA A100, driver 580.1 is of target sm_80");
  test.workers.devices.push_back(gpu("sm_90a", kDevice, 1));
  test.service->gpus_changed();
  test.use();
  assert_int_equal(test.workers.measuring.size(), 1);
}

void gpus_measure_side_by_side(void**) {
  Searched test({gpu(), gpu("sm_90a", kDevice, 1), gpu("sm_80", "A100", 2)});
  test.search(2);
  test.search(3);
  assert_int_equal(test.workers.measuring.size(), 2);
  // One that waits for its GPU does not hold up another's.
  test.send(1, 50, Harness::get(test_graph(4), 0, "sm_80"));
  test.workers.finish();
  test.receive_as<wire::PlanReply>(1, 50);
  test.workers.finish_search(searched(test.workers.searching[0].spec));
  settle(test);
  assert_int_equal(test.workers.measuring.size(), 3);
}

void it_can_be_turned_off(void**) {
  Harness off;
  off.workers.devices = {gpu()};
  off.options.measuring.when = MeasureSettings::When::never;
  off.reopen();
  const Hash128 key = off.make(test_graph(1)).key;
  off.workers.finish_search(searched(off.workers.searching[0].spec));
  settle(off);
  assert_int_equal(off.workers.measuring.size(), 0);
  assert_true(off.store->programs(key).ok());
  assert_error(wire::to_status(off.ask<wire::Error>(wire::Tune{key, 0, 0, 0, 0})), ErrorCode::NO_DEVICE,
               "measure = never");
  // Later, where it is on, it is made good without another search.
  off.options.measuring = {MeasureSettings::When::always, 5000};
  off.reopen();
  off.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(off.workers.searching.size(), 0);
  assert_int_equal(off.workers.measuring.size(), 1);
  assert_true(off.workers.measuring[0].spec.any_load);
  assert_int_equal(off.workers.measuring[0].spec.budget_ms, 5000);
}

void a_client_can_wait_for_a_measured_plan(void**) {
  Harness test;
  test.workers.devices = {gpu()};
  test.reopen();
  wire::Get get = Harness::get(test_graph(1));
  get.tier = static_cast<uint8_t>(Tier::measured);
  test.send(1, 7, get);
  test.workers.finish();
  settle(test);
  test.workers.finish_search(searched(test.workers.searching[0].spec));
  settle(test);
  assert_true(test.silent(1));  // modelled by now
  test.workers.finish_measure(measured(test.workers.measuring[0].spec, 2, {9000, 5000, 3000}));
  const auto reply = test.receive_as<wire::PlanReply>(1, 7);
  assert_true(reply.tier == Tier::measured);
  // Nothing under way: what stands is the answer.
  test.workers.devices.clear();
  test.reopen();
  test.make(test_graph(2));
  get.graph = test_graph(2);
  test.send(1, 8, get);
  test.workers.finish_search(searched(test.workers.searching[0].spec));
  assert_true(test.receive_as<wire::PlanReply>(1, 8).tier == Tier::modelled);
  // A drain does not leave anybody waiting.
  test.workers.devices = {gpu()};
  test.reopen();
  test.send(1, 9, get);
  assert_true(test.silent(1));
  test.service->drain();
  assert_true(test.receive_as<wire::PlanReply>(1, 9).tier == Tier::modelled);
}

wire::Get get_measured(int number, uint32_t timeout_ms = 0) {
  wire::Get get = Harness::get(test_graph(number));
  get.tier = static_cast<uint8_t>(Tier::measured);
  get.timeout_ms = timeout_ms;
  return get;
}

void a_client_waits_while_measuring_is_put_off(void**) {
  Searched test;
  test.send(1, 7, get_measured(1, 90'000));
  for (int i = 0; i < 2; ++i) {
    test.workers.finish_measure(Status(ErrorCode::BUSY, "others use 99 % of the GPU"));
    settle(test);
    // One that comes meanwhile, and has less time.
    test.send(2, 8, get_measured(1, 12'000));
    assert_true(test.silent(1) && test.silent(2));
    test.tick(12'000'000'000);
    const Status late = wire::to_status(test.receive_as<wire::Error>(2, 8));
    assert_error(late, ErrorCode::TIMEOUT, "12000 ms");
    assert_error(late, ErrorCode::TIMEOUT,
                 "put off: others use 99 % of the GPU; tried again in " + std::to_string(48 + 60 * i) + " s");
    assert_true(test.silent(1));
    if (i == 0) test.tick(48'000'000'000);
  }
  // Its own time is over while others still use the GPU; nothing of it is left.
  test.tick(18'000'000'000);
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 7)), ErrorCode::TIMEOUT, "put off");
  assert_true(test.service->idle());
  // Who has time enough is answered when the next try ends, whoever else has left by then.
  test.send(1, 9, get_measured(1, 600'000));
  test.send(2, 10, get_measured(1, 600'000));
  assert_true(test.silent(1) && test.silent(2));
  test.service->disconnect(2);
  test.tick(120'000'000'000);
  test.workers.finish_measure(measured(test.spec(), 2, {9000, 5000, 3000}));
  assert_true(test.receive_as<wire::PlanReply>(1, 9).tier == Tier::measured);
  assert_true(test.service->idle());
}

void who_waits_for_a_put_off_measuring_is_told_when_there_will_be_none(void**) {
  const auto busy = [](Searched& test) {
    test.workers.finish_measure(Status(ErrorCode::BUSY, "others use 99 % of the GPU"));
    settle(test);
    test.send(1, 7, get_measured(1));
    assert_true(test.silent(1));
  };
  const auto told = [](Searched& test, Tier tier) {
    assert_true(test.receive_as<wire::PlanReply>(1, 7).tier == tier);
    assert_true(test.service->idle());
  };
  {
    Searched test;
    busy(test);
    test.service->drain();
    told(test, Tier::modelled);
  }
  {
    Searched test;
    busy(test);
    test.workers.devices = {{0, GpuState::Kind::missing, "", "", "the GPU is lost"}};
    test.service->gpus_changed();
    told(test, Tier::modelled);
  }
  {
    Searched test;
    busy(test);
    test.ask<wire::Removed>(wire::Remove{{test.key}, 0}, 2);
    told(test, Tier::modelled);
  }
  // Somebody else has it measured now.
  Searched test;
  busy(test);
  test.send(2, 8, wire::Tune{test.key, 0, 0, 0, 0});
  test.workers.finish_measure(measured(test.spec(), 2, {9000, 5000, 3000}));
  told(test, Tier::measured);
}

void a_wish_is_kept_until_the_gpu_is_found(void**) {
  const GpuState starting = {0, GpuState::Kind::starting, "", "", ""};
  Searched test(std::vector<GpuState>{});
  test.search(2);
  test.workers.devices = {starting};
  test.reopen();  // as after a crash
  test.use(2);    // nobody waits for this one
  test.send(1, 7, get_measured(1));
  assert_true(test.silent(1));
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{test.key}, 2).state == wire::JobState::queued);
  test.workers.devices = {gpu(), gpu("sm_90a", kDevice, 1)};
  test.service->gpus_changed();
  assert_true(test.service->next_deadline_ns().value_or(UINT64_MAX) <= test.now);
  test.tick(0);
  assert_int_equal(test.workers.measuring.size(), 2);
  assert_int_equal(test.workers.searching.size(), 0);
  for (int i = 0; i < 2; ++i)
    test.workers.finish_measure(measured(test.workers.measuring[0].spec, 2, {9000, 5000, 3000}));
  assert_true(test.receive_as<wire::PlanReply>(1, 7).tier == Tier::measured);
  settle(test);
  // What was measured is not measured again.
  test.workers.devices = {starting};
  test.reopen();
  test.use();
  test.workers.devices = {gpu()};
  test.service->gpus_changed();
  test.tick(0);
  assert_int_equal(test.workers.measuring.size(), 0);
  // Where there is none after all, what stands is the answer.
  test.workers.devices.clear();
  test.search(3);
  test.workers.devices = {starting};
  test.reopen();
  test.send(1, 8, get_measured(3));
  assert_true(test.silent(1));
  test.workers.devices = {{0, GpuState::Kind::missing, "", "", "no driver"}};
  test.service->gpus_changed();
  assert_true(test.receive_as<wire::PlanReply>(1, 8).tier == Tier::modelled);
}

void a_measuring_that_others_killed_is_tried_again(void**) {
  Searched test;
  for (int i = 0; i < 2; ++i)
    test.workers.finish_measure(Status(ErrorCode::CANCELLED, "the worker was killed by signal 15"));
  settle(test);
  assert_int_equal(test.workers.measuring.size(), 0);
  assert_contains(test.explain().measuring, "put off: the worker was killed by signal 15");
  test.tick(Measures::kRetryNs);
  assert_int_equal(test.workers.measuring.size(), 1);
}

void tuning_measures_again_with_its_own_budget(void**) {
  Searched test({gpu(), gpu("sm_90a", kDevice, 1)});
  test.workers.finish_measure(measured(test.spec(), 2, {9000, 5000, 3000}));
  settle(test);
  test.send(1, 5, wire::Tune{test.key, 600'000, 2, 0, 1});
  const JobSpec spec = test.spec();
  assert_int_equal(spec.budget_ms, 600'000);
  assert_int_equal(spec.gpu, 1);
  assert_true(spec.any_load);
  wire::JobProgress progress;
  progress.tried = 1;
  progress.programs = 4;
  progress.best_ps = 4'000'000;
  test.workers.measuring[0].on_progress(progress);
  const auto seen = test.receive_as<wire::Progress>(1, 5);
  assert_true(seen.done == 1 && seen.total == 4 && seen.best_ps == 4'000'000);
  test.workers.finish_measure(measured(spec, 3, {9000, 5000, 3000, 2000}));
  const auto reply = test.receive_as<wire::TuneReply>(1, 5);
  assert_true(reply.generation == 4 && reply.tier == static_cast<uint8_t>(Tier::measured));
  assert_true(reply.best_ps == 2'000'000 && reply.baseline_ps == 9'000'000 && reply.timed == 4);
  assert_contains(reply.reason, "program 3");
}

void tuning_waits_for_the_search(void**) {
  Harness test;
  test.workers.devices = {gpu()};
  test.reopen();
  const Hash128 key = test.make(test_graph(1)).key;
  test.send(1, 5, wire::Tune{key, 0, 0, 0, 0});
  assert_true(test.silent(1));
  test.workers.finish_search(searched(test.workers.searching[0].spec));
  settle(test);
  test.workers.finish_measure(measured(test.workers.measuring[0].spec, 2, {9000, 5000, 3000}));
  assert_int_equal(test.receive_as<wire::TuneReply>(1, 5).generation, 3);
}

void tuning_waits_for_the_gpu_to_be_found(void**) {
  Searched test({{0, GpuState::Kind::starting, "", "", ""}});
  test.send(1, 5, wire::Tune{test.key, 0, 0, 0, 0});
  test.send(1, 6, wire::Tune{test.key, 0, 0, 0, 0});
  assert_true(test.silent(1));
  test.workers.devices = {gpu()};
  test.service->gpus_changed();
  test.workers.finish_measure(measured(test.spec(), 2, {9000, 5000, 3000}));
  assert_int_equal(test.receive_as<wire::TuneReply>(1, 5).generation, 3);
  assert_int_equal(test.receive_as<wire::TuneReply>(1, 6).generation, 3);
  // Or it is not there.
  test.workers.devices = {{0, GpuState::Kind::starting, "", "", ""}};
  test.reopen();
  test.send(1, 7, wire::Tune{test.key, 0, 0, 0, 0});
  assert_true(test.silent(1));
  test.workers.devices = {{0, GpuState::Kind::missing, "", "", "no driver"}};
  test.service->gpus_changed();
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 7)), ErrorCode::NO_DEVICE, "GPU 0: no driver");
}

void tuning_says_what_is_missing(void**) {
  Searched test(std::vector<GpuState>{});
  const auto error = [&](const Hash128& key, uint32_t number) {
    return wire::to_status(test.ask<wire::Error>(wire::Tune{key, 0, number, 0, 0}));
  };
  assert_error(error({1, 2}, 0), ErrorCode::NOT_FOUND);
  assert_error(error(test.key, 0), ErrorCode::NO_DEVICE, "there is no GPU");
  test.workers.devices = {{0, GpuState::Kind::missing, "", "", "no driver"}};
  test.service->gpus_changed();
  assert_error(error(test.key, 0), ErrorCode::NO_DEVICE, "GPU 0: no driver");
  assert_error(error(test.key, 4), ErrorCode::NO_DEVICE, "there is no GPU 3");
  test.workers.devices = {gpu()};
  test.service->gpus_changed();
  const Hash128 other = test.make(test_graph(2)).key;
  wire::JobDone nothing;
  nothing.reason = "outside the algebra";
  test.workers.finish_search(nothing);
  settle(test);
  // They are searched again, as those of plans that were stored before programs were.
  test.send(1, 9, wire::Tune{other, 0, 0, 0, 0});
  assert_true(test.silent(1));
  assert_int_equal(test.workers.searching.size(), 1);
  assert_true(test.workers.searching[0].spec.material.key() == other);
  test.workers.finish_search(nothing);
  settle(test);
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 9)), ErrorCode::NOT_FOUND,
               "no programs to measure: outside the algebra");
}

// A cache of an earlier version has plans without programs.
void tuning_searches_for_programs_that_are_not_stored(void**) {
  Searched test;
  const Hash128 other = test.make(test_graph(2)).key;
  test.workers.finish_search(5000);
  settle(test);
  assert_error(test.store->programs(other), ErrorCode::NOT_FOUND);
  const JobSpec first = test.spec();
  test.workers.finish_measure(measured(first, 2, {9000, 5000, 3000}));
  settle(test);
  test.send(1, 9, wire::Tune{other, 0, 0, 0, 0});
  assert_int_equal(test.workers.searching.size(), 1);
  // Those of a plan that has some are not searched again.
  test.send(1, 10, wire::Tune{test.key, 0, 0, 0, 0});
  assert_int_equal(test.workers.searching.size(), 1);
}

void a_plan_that_was_removed_meanwhile_stays_removed(void**) {
  Searched test;
  const JobSpec spec = test.spec();
  test.ask<wire::Removed>(wire::Remove{{test.key}, 0});
  test.workers.finish_measure(measured(spec, 2, {9000, 5000, 3000}));
  settle(test);
  assert_error(test.store->peek(test.key), ErrorCode::NOT_FOUND);
  assert_int_equal(test.store->verify_all()->damage.size(), 0);
}

void a_failed_job_is_told_to_subscribers(void**) {
  Harness test;
  test.send(1, 3, Harness::get(test_graph(1), wire::kGetNoWait));
  const Hash128 key = test.receive_as<wire::Pending>(1, 3).key;
  assert_int_equal(test.ask<wire::Subscribed>(wire::Subscribe{key}).ended, 0);
  test.workers.finish(Status(ErrorCode::COMPILE, "line 7"));
  assert_true(test.receive_as<wire::Failed>(1, 0).key == key);
  // And to who subscribes a moment later.
  assert_int_equal(test.ask<wire::Subscribed>(wire::Subscribe{key}, 2).ended, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_search_is_followed_by_a_measuring),
      cmocka_unit_test(the_baseline_can_win),
      cmocka_unit_test(what_the_model_refused_is_measured_too),
      cmocka_unit_test(a_better_plan_is_published_before_the_end),
      cmocka_unit_test(an_early_plan_that_is_none_is_not_published),
      cmocka_unit_test(a_program_more_can_win),
      cmocka_unit_test(a_program_more_that_stands_is_measured_with_every_list),
      cmocka_unit_test(what_a_worker_says_is_checked),
      cmocka_unit_test(two_dead_workers_give_up_on_this_gpu_only),
      cmocka_unit_test(another_driver_measures_again_and_compiles_nothing),
      cmocka_unit_test(a_busy_gpu_puts_it_off),
      cmocka_unit_test(a_lost_gpu_is_said_and_nothing_is_lost),
      cmocka_unit_test(without_a_gpu_of_the_target_it_waits_for_one),
      cmocka_unit_test(gpus_measure_side_by_side),
      cmocka_unit_test(it_can_be_turned_off),
      cmocka_unit_test(a_client_can_wait_for_a_measured_plan),
      cmocka_unit_test(a_client_waits_while_measuring_is_put_off),
      cmocka_unit_test(who_waits_for_a_put_off_measuring_is_told_when_there_will_be_none),
      cmocka_unit_test(a_wish_is_kept_until_the_gpu_is_found),
      cmocka_unit_test(a_measuring_that_others_killed_is_tried_again),
      cmocka_unit_test(tuning_measures_again_with_its_own_budget),
      cmocka_unit_test(tuning_waits_for_the_search),
      cmocka_unit_test(tuning_waits_for_the_gpu_to_be_found),
      cmocka_unit_test(tuning_says_what_is_missing),
      cmocka_unit_test(tuning_searches_for_programs_that_are_not_stored),
      cmocka_unit_test(a_plan_that_was_removed_meanwhile_stays_removed),
      cmocka_unit_test(a_failed_job_is_told_to_subscribers),
  };
  return cmocka_run_group_tests_name("daemon-measures", tests, nullptr, nullptr);
}
