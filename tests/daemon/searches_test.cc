// The background search: when one is started, what is published and remembered, who is told, and that nobody
// waits behind one.
#include <algorithm>

#include "core/optimize/program.h"
#include "tests/daemon/harness.h"

namespace quern {

namespace {

wire::Get get_tier(const std::string& graph, Tier tier) {
  wire::Get get = Harness::get(graph);
  get.tier = static_cast<uint8_t>(tier);
  return get;
}

wire::JobDone nothing(const std::string& reason, const std::string& state = "") {
  wire::JobDone done;
  done.reason = reason;
  done.report = "report";
  done.state = state;
  return done;
}

// Lets what the last search said reach the store.
void settle(Harness& test) {
  while (test.run_posted(0)) {
  }
  assert_ok(test.store->flush());
  while (test.run_posted(100)) {
  }
}

uint64_t counter(Harness& test, const std::string& name) {
  const auto stats = test.ask<wire::StatsReply>(wire::Stats{});
  const auto found = std::find_if(stats.counters.begin(), stats.counters.end(),
                                  [&](const wire::Counter& counter) { return counter.name == name; });
  assert_true(found != stats.counters.end());
  return found->value;
}

void a_baseline_is_followed_by_a_search_and_its_clients_are_told(void**) {
  Harness test;
  const wire::PlanReply baseline = test.make(test_graph(1));
  assert_true(baseline.tier == Tier::baseline);
  assert_int_equal(test.workers.searching.size(), 1);
  const JobSpec spec = test.workers.searching[0].spec;
  assert_true(spec.kind == wire::JobKind::optimize);
  assert_true(spec.material.key() == baseline.key);
  assert_text_equal(spec.target, "sm_90a");
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{baseline.key}).state == wire::JobState::running);
  test.ask<wire::Subscribed>(wire::Subscribe{baseline.key}, 2);
  test.workers.finish_search(5000);
  const auto better = test.receive_as<wire::Better>(2, 0);
  assert_true(better.key == baseline.key);
  assert_int_equal(better.generation, 2);
  assert_true(better.tier == Tier::modelled);
  const auto hit = test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_true(hit.origin == wire::Origin::hit);
  assert_int_equal(hit.generation, 2);
  assert_true(hit.tier == Tier::modelled);
  const auto shown = test.ask<wire::ShowReply>(wire::Show{baseline.key});
  assert_text_equal(shown.cuda, "cuda 5000");
  assert_text_equal(shown.mugraph, "mugraph");
  assert_text_equal(shown.report, "report");
  assert_int_equal(test.workers.started, 1);
  assert_int_equal(counter(test, "bettered"), 1);
}

void a_waiting_client_never_waits_behind_a_search(void**) {
  Harness test;
  test.make(test_graph(1));
  assert_int_equal(test.workers.searching.size(), 1);
  // More baselines come and go while that search runs; their own searches wait for it.
  for (int i = 2; i < 5; ++i) assert_true(test.make(test_graph(i)).origin == wire::Origin::compiled);
  assert_int_equal(counter(test, "searches_running"), 1);
  assert_int_equal(counter(test, "searches_queued"), 3);
  // A key whose plan is gone gets its baseline again although its search runs.
  test.ask<wire::Removed>(wire::Remove{{test.workers.searching[0].spec.material.key()}, 0});
  assert_true(test.make(test_graph(1)).origin == wire::Origin::compiled);
}

void a_client_can_wait_for_the_search(void**) {
  Harness test;
  test.make(test_graph(1));
  const Hash128 second = test.make(test_graph(2)).key, third = test.make(test_graph(3)).key;
  test.send(1, 7, get_tier(test_graph(3), Tier::modelled));
  assert_true(test.silent(1));
  test.workers.finish_search(1000);
  settle(test);
  // It goes before the one that nobody waits for.
  assert_true(test.workers.searching[0].spec.material.key() == third);
  test.workers.finish_search(1000);
  const auto reply = test.receive_as<wire::PlanReply>(1, 7);
  assert_true(reply.tier == Tier::modelled);
  assert_int_equal(reply.generation, 2);
  // The same by key; and when the search finds nothing, what stands is the answer.
  const Hash128 key = second;
  test.send(1, 8, wire::Wait{key, 0, static_cast<uint8_t>(Tier::modelled)});
  assert_true(test.silent(1));
  test.workers.finish_search(nothing("no luck"));
  const auto stands = test.receive_as<wire::PlanReply>(1, 8);
  assert_true(stands.tier == Tier::baseline);
  assert_text_equal(test.ask<wire::JobStatusReply>(wire::JobStatus{key}).reason, "no luck");
  // Nothing is under way any more: the same question is answered at once.
  assert_true(test.ask<wire::PlanReply>(wire::Wait{key, 0, 2}).tier == Tier::baseline);
  // A miss can wait for both.
  test.send(1, 9, get_tier(test_graph(4), Tier::modelled));
  test.workers.finish();
  settle(test);
  assert_true(test.silent(1));
  test.workers.finish_search(1000);
  assert_true(test.receive_as<wire::PlanReply>(1, 9).tier == Tier::modelled);
}

void a_search_without_result_is_not_done_again(void**) {
  Harness test;
  test.make(test_graph(1));
  test.workers.finish_search(nothing("the graph is outside the algebra"));
  settle(test);
  test.reopen();
  assert_true(test.ask<wire::PlanReply>(Harness::get(test_graph(1))).tier == Tier::baseline);
  assert_int_equal(test.workers.searching.size(), 0);
  wire::Explain explain;
  explain.graph = test_graph(1);
  explain.target = "sm_90a";
  const auto explained = test.ask<wire::ExplainReply>(explain);
  assert_text_equal(explained.search, "no better plan: the graph is outside the algebra");
  assert_text_equal(explained.report, "report");
  // Once removed, it is a new graph.
  test.ask<wire::Removed>(wire::Remove{{explained.key}, 0});
  test.make(test_graph(1));
  assert_int_equal(test.workers.searching.size(), 1);
}

void a_search_that_the_daemon_did_not_live_to_see_is_done_on_the_next_use(void**) {
  Harness test;
  test.make(test_graph(1));
  test.make(test_graph(2));
  assert_int_equal(test.workers.searching.size(), 1);
  test.service->drain();
  assert_true(test.service->idle());
  test.workers.searching.clear();
  test.reopen();
  // A client that wants nothing started starts nothing.
  test.ask<wire::PlanReply>(Harness::get(test_graph(1), wire::kGetNoStart));
  assert_int_equal(test.workers.searching.size(), 0);
  for (int i = 0; i < 3; ++i) test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 1);
  assert_int_equal(counter(test, "searches_queued"), 0);
}

void an_interrupted_search_is_continued_by_the_next_daemon(void**) {
  Harness test;
  test.make(test_graph(1));
  const Hash128 key = test.workers.searching[0].spec.material.key();
  test.workers.finish_search(nothing("its time was up", "piece 0"));
  settle(test);
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 0);
  test.reopen();
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 1);
  assert_text_equal(test.workers.searching[0].spec.state, "piece 0");
  test.workers.finish_search(3000);
  settle(test);
  assert_text_equal(test.store->findings(key)->state, "");
}

wire::JobDone ran_out_of_time(const std::string& state = "") {
  wire::JobDone done = nothing("the search found nothing in its time", state);
  done.timed_out = 1;
  return done;
}

void a_search_that_ran_out_of_time_is_tried_again_with_more(void**) {
  Harness test;
  test.options.limits = {1000, 3000};
  test.reopen();
  const Hash128 key = test.make(test_graph(1)).key;
  uint64_t wait = Searches::kRetryNs;
  for (uint64_t factor : {1, 2, 4, 8, 8}) {
    assert_int_equal(test.workers.searching.size(), 1);
    const JobSpec spec = test.workers.searching[0].spec;
    assert_int_equal(spec.search_ms, 1000 * factor);
    assert_int_equal(spec.budget_ms, 3000 * factor);
    assert_text_equal(spec.state, factor == 1 ? "" : "piece 0");
    test.workers.finish_search(ran_out_of_time("piece 0"));
    settle(test);
    test.now += wait - 1;
    test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
    assert_int_equal(test.workers.searching.size(), 0);
    wire::Explain explain;
    explain.graph = test_graph(1);
    explain.target = "sm_90a";
    assert_contains(test.ask<wire::ExplainReply>(explain).search, "it ran out of time");
    test.now += 1;
    wait *= 2;
    test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  }
  // What it had found is kept, and who waits for a better plan does not wait for the time of the next try.
  test.workers.finish_search(ran_out_of_time("piece 1"));
  settle(test);
  assert_int_equal(test.store->findings(key)->timeouts, 6);
  assert_text_equal(test.store->findings(key)->state, "piece 1");
  test.send(1, 5, get_tier(test_graph(1), Tier::modelled));
  assert_int_equal(test.workers.searching.size(), 1);
  // A search that comes to its end is final.
  test.workers.finish_search(3000);
  assert_true(test.receive_as<wire::PlanReply>(1, 5).tier == Tier::modelled);
  assert_int_equal(test.store->tuning(key).timeouts, 0);
  test.now += 1'000 * Searches::kRetryNs;
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 0);
}

void a_search_that_ran_out_of_time_is_not_lost_with_the_daemon(void**) {
  Harness test;
  test.make(test_graph(1));
  const uint64_t first = test.workers.searching[0].spec.budget_ms;
  test.workers.finish_search(ran_out_of_time());
  settle(test);
  test.reopen();
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 1);
  assert_int_equal(test.workers.searching[0].spec.budget_ms, 2 * first);
}

void a_searcher_that_is_killed_for_its_time_loses_nothing_for_good(void**) {
  Harness test;
  const Hash128 key = test.make(test_graph(1)).key;
  test.workers.finish_search(Status(ErrorCode::TIMEOUT, "the worker took longer than it is allowed"));
  settle(test);
  assert_int_equal(test.workers.searching.size(), 0);
  assert_contains(test.store->findings(key)->reason, "took longer");
  test.now += Searches::kRetryNs;
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 1);
}

std::string programs_of(const JobSpec& spec, size_t compiled) {
  std::vector<Program> programs = {{"", "", 9000, ""}};
  for (size_t i = 1; i < 4; ++i)
    programs.push_back({"mugraph", "schedule " + std::to_string(i), 1000 * i,
                        i <= compiled ? fake_plan(spec.graph, spec.target, 5000, Tier::modelled) : ""});
  return encode_programs(programs);
}

void the_programs_of_a_search_are_stored_with_their_code(void**) {
  Harness test;
  const wire::PlanReply baseline = test.make(test_graph(1));
  const JobSpec spec = test.workers.searching[0].spec;
  wire::JobDone done = ran_out_of_time();
  done.programs = programs_of(spec, 2);
  test.workers.finish_search(done);
  settle(test);
  auto programs = decode_programs(*test.store->programs(baseline.key));
  assert_ok(programs);
  assert_int_equal(programs->size(), 4);
  assert_true((*programs)[0].plan == baseline.plan);  // known here
  assert_false((*programs)[2].plan.empty());
  assert_true((*programs)[3].plan.empty());
  // The next search compiles others: what is known of the first is not lost.
  test.now += Searches::kRetryNs;
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  done = nothing("the baseline is faster");
  done.programs = programs_of(spec, 0);
  test.workers.finish_search(done);
  settle(test);
  auto joined = decode_programs(*test.store->programs(baseline.key));
  assert_ok(joined);
  assert_true(*joined == *programs);
}

void programs_that_are_none_for_the_graph_are_not_stored(void**) {
  Harness test;
  for (int i = 1; i < 3; ++i) {
    const Hash128 key = test.make(test_graph(i)).key;
    JobSpec spec = test.workers.searching[0].spec;
    spec.graph = test_graph(9);
    wire::JobDone done = nothing("nothing better");
    done.programs = i == 1 ? "nonsense" : programs_of(spec, 1);
    test.workers.finish_search(done);
    settle(test);
    assert_error(test.store->programs(key), ErrorCode::NOT_FOUND);
    assert_contains(test.store->findings(key)->reason, "the search failed: the worker's ");
  }
}

void of_two_modelled_plans_the_faster_one_stands(void**) {
  Harness test;
  test.make(test_graph(1));
  const Hash128 key = test.workers.searching[0].spec.material.key();
  uint64_t generation = 1;
  for (uint64_t ns : {3000u, 4000u, 3000u, 2000u}) {
    const bool better = ns == 2000 || generation == 1;
    wire::JobDone done;
    done.plan = fake_plan(test.workers.searching[0].spec.graph, "sm_90a", 20000 + ns, Tier::modelled);
    done.modelled_ns = ns;
    done.schedule = "schedule " + std::to_string(20000 + ns + generation);
    done.cuda = std::to_string(ns);
    done.state = "to be continued";
    test.workers.finish_search(done);
    settle(test);
    generation += better;
    assert_int_equal(test.store->peek(key)->generation, generation);
    assert_text_equal(test.store->findings(key)->cuda, ns == 2000 ? "2000" : "3000");
    test.reopen();
    test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
    assert_int_equal(test.workers.searching.size(), 1);
  }
}

void a_search_that_kills_its_worker_twice_leaves_the_baseline(void**) {
  Harness test;
  const wire::PlanReply baseline = test.make(test_graph(1));
  for (int i = 0; i < 2; ++i) {
    assert_int_equal(test.workers.searching.size(), 1);
    test.workers.finish_search(Status(ErrorCode::WORKER, "the worker was killed by signal 9"));
  }
  settle(test);
  assert_int_equal(test.workers.searching.size(), 0);
  const auto hit = test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_true(hit.plan == baseline.plan);
  assert_contains(test.ask<wire::JobStatusReply>(wire::JobStatus{hit.key}).reason, "signal 9");
  test.reopen();
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 0);
}

void a_failure_of_the_moment_is_not_remembered(void**) {
  Harness test;
  test.make(test_graph(1));
  test.workers.finish_search(Status(ErrorCode::NO_COMPILER, "the compiler is being replaced"));
  settle(test);
  test.service->compiler_changed();
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 1);
}

void a_search_that_others_killed_is_done_by_a_later_use(void**) {
  Harness test;
  test.make(test_graph(1));
  for (int i = 0; i < 2; ++i)
    test.workers.finish_search(Status(ErrorCode::CANCELLED, "the worker was killed by signal 15"));
  settle(test);
  test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_int_equal(test.workers.searching.size(), 0);
  // At once for somebody who waits for it.
  test.send(1, 5, get_tier(test_graph(1), Tier::modelled));
  assert_int_equal(test.workers.searching.size(), 1);
  test.workers.finish_search(3000);
  assert_true(test.receive_as<wire::PlanReply>(1, 5).tier == Tier::modelled);
}

void a_plan_that_is_none_for_the_graph_is_not_published(void**) {
  Harness test;
  const std::string wrong[] = {"nonsense", fake_plan(test_graph(9), "sm_90a", 20000, Tier::modelled),
                               fake_plan(test_graph(3), "sm_80", 20000, Tier::modelled),
                               fake_plan(test_graph(4), "sm_90a")};
  for (int i = 0; i < 4; ++i) {
    const wire::PlanReply baseline = test.make(test_graph(i + 1));
    wire::JobDone done;
    done.plan = wrong[i];
    done.modelled_ns = 1;
    test.workers.finish_search(done);
    settle(test);
    assert_true(test.ask<wire::PlanReply>(Harness::get(test_graph(i + 1))).plan == baseline.plan);
    assert_contains(test.store->findings(baseline.key)->reason, "the search failed: the worker's plan is");
  }
}

void a_plan_that_was_removed_meanwhile_stays_removed(void**) {
  Harness test;
  const Hash128 key = test.make(test_graph(1)).key;
  test.ask<wire::Removed>(wire::Remove{{key}, 0});
  test.workers.finish_search(1000);
  settle(test);
  assert_error(test.store->peek(key), ErrorCode::NOT_FOUND);
}

void a_drain_answers_those_who_wait_for_a_search(void**) {
  Harness test;
  test.make(test_graph(1));
  test.send(1, 5, get_tier(test_graph(1), Tier::modelled));
  assert_true(test.silent(1));
  assert_false(test.service->idle());
  test.service->drain();
  assert_true(test.receive_as<wire::PlanReply>(1, 5).tier == Tier::baseline);
  assert_true(test.service->idle());
  // What the worker says after all is still taken.
  test.workers.finish_search(1000);
  settle(test);
  assert_int_equal(counter(test, "bettered"), 1);
}

void searches_can_be_turned_off(void**) {
  Harness test;
  test.options.search = false;
  test.reopen();
  test.make(test_graph(1));
  assert_int_equal(test.workers.searching.size(), 0);
  assert_true(test.ask<wire::PlanReply>(get_tier(test_graph(1), Tier::modelled)).tier == Tier::baseline);
}

void constraints_are_part_of_the_key(void**) {
  Harness test;
  const Hash128 free = test.make(test_graph(1)).key;
  const auto ask = [&](const std::string& constraints) {
    wire::Get get = Harness::get(test_graph(1));
    get.constraints = constraints;
    test.send(1, 5, get);
    if (!test.workers.running.empty()) test.workers.finish();
    return test.receive_as<wire::PlanReply>(1, 5);
  };
  const auto constrained = ask("franges 8 4; griddims 16");
  assert_true(constrained.origin == wire::Origin::compiled);
  assert_true(constrained.key != free);
  // Other words for the same; none at all is the key of always.
  assert_true(ask("griddims 16,1,1 16; franges 4 8").key == constrained.key);
  assert_true(ask("franges 4").key != constrained.key);
  assert_true(ask("").key == free);
  assert_true(ask(" ; ").key == free);
  test.workers.finish_search(1000);
  settle(test);
  assert_text_equal(test.workers.searching[0].spec.constraints, "griddims 16,1,1; franges 4 8");
  wire::Get wrong = Harness::get(test_graph(1));
  wrong.constraints = "griddims 16,x";
  assert_error(wire::to_status(test.ask<wire::Error>(wrong)), ErrorCode::INVALID_ARGUMENT, "griddims");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_baseline_is_followed_by_a_search_and_its_clients_are_told),
      cmocka_unit_test(a_waiting_client_never_waits_behind_a_search),
      cmocka_unit_test(a_client_can_wait_for_the_search),
      cmocka_unit_test(a_search_without_result_is_not_done_again),
      cmocka_unit_test(a_search_that_the_daemon_did_not_live_to_see_is_done_on_the_next_use),
      cmocka_unit_test(an_interrupted_search_is_continued_by_the_next_daemon),
      cmocka_unit_test(a_search_that_ran_out_of_time_is_tried_again_with_more),
      cmocka_unit_test(a_search_that_ran_out_of_time_is_not_lost_with_the_daemon),
      cmocka_unit_test(a_searcher_that_is_killed_for_its_time_loses_nothing_for_good),
      cmocka_unit_test(the_programs_of_a_search_are_stored_with_their_code),
      cmocka_unit_test(programs_that_are_none_for_the_graph_are_not_stored),
      cmocka_unit_test(of_two_modelled_plans_the_faster_one_stands),
      cmocka_unit_test(a_search_that_kills_its_worker_twice_leaves_the_baseline),
      cmocka_unit_test(a_failure_of_the_moment_is_not_remembered),
      cmocka_unit_test(a_search_that_others_killed_is_done_by_a_later_use),
      cmocka_unit_test(a_plan_that_is_none_for_the_graph_is_not_published),
      cmocka_unit_test(a_plan_that_was_removed_meanwhile_stays_removed),
      cmocka_unit_test(a_drain_answers_those_who_wait_for_a_search),
      cmocka_unit_test(searches_can_be_turned_off),
      cmocka_unit_test(constraints_are_part_of_the_key),
  };
  return cmocka_run_group_tests_name("daemon-searches", tests, nullptr, nullptr);
}
