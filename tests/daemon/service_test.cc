// What each request means, with neither socket nor process nor GPU.
#include "daemon/service.h"

#include "tests/daemon/harness.h"

namespace quern {

namespace {

using wire::JobState;
using wire::Origin;

void a_miss_is_compiled_and_then_hit(void**) {
  Harness test;
  const wire::PlanReply first = test.make(test_graph(1));
  assert_true(first.origin == Origin::compiled);
  assert_int_equal(first.generation, 1);
  assert_int_equal(first.unstored, 0);
  assert_int_equal(first.compile_ns, 2000);
  const auto again = test.ask<wire::PlanReply>(Harness::get(test_graph(1)));
  assert_true(again.origin == Origin::hit);
  assert_true(again.plan == first.plan && again.key == first.key);
  assert_int_equal(test.workers.started, 1);
}

void the_front_index_and_the_key_both_hit(void**) {
  Harness test;
  test.make(test_graph(1));
  const std::string renamed = "graph other\nin a: f32[2]\nb = relu(a)\nout b\n";
  assert_true(test.ask<wire::PlanReply>(Harness::get(renamed)).origin == Origin::hit);
  assert_ok(test.store->flush());
  test.ask<wire::PlanReply>(Harness::get(renamed));
  const auto stats = test.ask<wire::StatsReply>(wire::Stats{});
  std::map<std::string, uint64_t> counters;
  for (const auto& counter : stats.counters) counters[counter.name] = counter.value;
  assert_int_equal(counters["hits"], 2);
  assert_int_equal(counters["front_hits"], 1);
  assert_int_equal(counters["misses"], 1);
  assert_int_equal(counters["plans"], 1);
  assert_int_equal(test.workers.started, 1);
}

void identical_misses_share_one_job(void**) {
  Harness test;
  const std::string renamed = "graph other\nin a: f32[2]\nb = relu(a)\nout b\n";
  test.send(1, 1, Harness::get(test_graph(1)));
  test.send(2, 2, Harness::get(test_graph(1)));
  test.send(2, 3, Harness::get(renamed));
  assert_int_equal(test.workers.started, 1);
  test.workers.finish();
  // Between the compile and the commit the job still stands: whoever asks now joins it too.
  test.send(1, 4, Harness::get(test_graph(1)));
  const auto leader = test.receive_as<wire::PlanReply>(1, 1);
  assert_true(leader.origin == Origin::compiled);
  const auto shared = test.receive_as<wire::PlanReply>(2, 2);
  assert_true(shared.origin == Origin::shared && shared.plan == leader.plan && shared.key == leader.key);
  assert_true(test.receive_as<wire::PlanReply>(2, 3).plan == leader.plan);
  assert_true(test.receive_as<wire::PlanReply>(1, 4).plan == leader.plan);
  assert_int_equal(test.workers.started, 1);
}

void key_parts_make_keys(void**) {
  Harness test;
  const Hash128 key = test.make(test_graph(1)).key;
  assert_true(test.make(test_graph(2)).key != key);
  wire::Get other = Harness::get(test_graph(1));
  other.numerics = 1;
  test.send(1, 1, other);
  test.workers.finish();
  assert_true(test.receive_as<wire::PlanReply>(1, 1).key != key);
  test.send(1, 2, Harness::get(test_graph(1), 0, "sm_80"));
  test.workers.finish();
  assert_true(test.receive_as<wire::PlanReply>(1, 2).key != key);
}

void bad_requests_get_clear_errors(void**) {
  Harness test;
  assert_error(test.ask_error("graph g\nin x f32[2]\nout x\n"), ErrorCode::INVALID_GRAPH, "2:");
  assert_error(test.ask_error(std::string(wire::kMaxGraphBytes + 1, '#')), ErrorCode::LIMIT, "graph text");
  assert_error(test.ask_error(test_graph(1), 1u << 20), ErrorCode::PROTOCOL, "flags");
  assert_error(wire::to_status(test.ask<wire::Error>(Harness::get(test_graph(1), 0, "sm_12"))),
               ErrorCode::UNSUPPORTED, "sm_90a");
  wire::Get numerics = Harness::get(test_graph(1));
  numerics.numerics = 8;
  assert_error(wire::to_status(test.ask<wire::Error>(numerics)), ErrorCode::INVALID_ARGUMENT, "numerics");
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Welcome{})), ErrorCode::PROTOCOL, "Welcome");
  test.send(1, 0, wire::Ping{});
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 0)), ErrorCode::PROTOCOL, "id 0");
  test.service->handle(1, wire::Frame{static_cast<uint16_t>(wire::MessageType::Get), 5, "nonsense"});
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 5)), ErrorCode::PROTOCOL, "message Get");
  assert_int_equal(test.workers.started, 0);
  assert_text_equal(test.ask<wire::Pong>(wire::Ping{"still here"}).echo, "still here");
}

void no_wait_answers_pending_and_can_be_waited_for(void**) {
  Harness test;
  const auto pending = test.ask<wire::Pending>(Harness::get(test_graph(1), wire::kGetNoWait));
  assert_true(pending.state == JobState::running);
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{pending.key}).state == JobState::running);
  test.send(2, 7, wire::Wait{pending.key, 0});
  assert_true(test.silent(2));
  test.workers.finish();
  assert_true(test.receive_as<wire::PlanReply>(2, 7).key == pending.key);
  const auto status = test.ask<wire::JobStatusReply>(wire::JobStatus{pending.key});
  assert_true(status.state == JobState::running);  // of the search for a better one
  assert_int_equal(status.generation, 1);
  assert_true(test.ask<wire::PlanReply>(wire::Wait{pending.key, 0}).origin == Origin::hit);
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Wait{Hash128{1, 2}, 0})), ErrorCode::NOT_FOUND);
}

void no_start_starts_nothing(void**) {
  Harness test;
  assert_error(test.ask_error(test_graph(1), wire::kGetNoStart), ErrorCode::NOT_FOUND);
  assert_int_equal(test.workers.started, 0);
}

void foreground_runs_before_background(void**) {
  Harness test;
  const auto ask = [&](int number, uint32_t flags, uint8_t priority) {
    wire::Get get = Harness::get(test_graph(number), flags);
    get.priority = priority;
    test.send(1, static_cast<uint64_t>(number), get);
  };
  ask(10, wire::kGetNoWait, 0);  // takes the one worker
  ask(11, wire::kGetNoWait, 0);
  ask(12, wire::kGetNoWait, 5);
  ask(13, 0, 0);
  ask(14, 0, 9);
  ask(15, wire::kGetNoWait, 0);
  ask(15, 0, 0);  // somebody waits now: no background job any more
  std::vector<std::string> order;
  while (!test.workers.running.empty()) {
    order.push_back(test.workers.running.front().spec.graph);
    test.workers.finish();
  }
  const auto canonical = [](int number) { return "in i0: f32[" + std::to_string(number + 1) + "]"; };
  const int expected[] = {10, 14, 13, 15, 12, 11};
  assert_int_equal(order.size(), std::size(expected));
  for (size_t i = 0; i < order.size(); ++i) assert_contains(order[i], canonical(expected[i]));
}

void a_client_that_left_makes_its_job_a_background_job(void**) {
  Harness test;
  test.send(1, 1, Harness::get(test_graph(1)));
  test.send(1, 2, Harness::get(test_graph(2)));  // queued by a client that leaves
  test.send(2, 3, Harness::get(test_graph(3)));
  test.service->disconnect(1);
  test.workers.finish();
  assert_contains(test.workers.running.front().spec.graph, "f32[4]");
  test.workers.finish();
  test.workers.finish();
  assert_int_equal(test.receive_as<wire::PlanReply>(2, 3).generation, 1);
  assert_true(test.silent(1));
}

void a_worker_that_dies_is_forgiven_once(void**) {
  Harness test;
  test.send(1, 1, Harness::get(test_graph(1)));
  test.workers.finish(Status(ErrorCode::WORKER, "the worker was killed by signal 9"));
  assert_int_equal(test.workers.started, 2);
  test.workers.finish();
  assert_true(test.receive_as<wire::PlanReply>(1, 1).origin == Origin::compiled);
}

void a_success_clears_the_count_of_deaths(void**) {
  Harness test;
  for (int round = 0; round < 3; ++round) {
    test.send(1, 1, Harness::get(test_graph(1)));
    test.workers.finish(Status(ErrorCode::WORKER, "the worker was killed by signal 11"));
    test.workers.finish();
    const auto plan = test.receive_as<wire::PlanReply>(1, 1);
    assert_ok(test.store->flush());
    assert_error(test.store->find_quarantine(plan.key), ErrorCode::NOT_FOUND);
    // As eviction would: its plan is gone, and nothing else is forgotten.
    test.store->remove(plan.key);
    assert_ok(test.store->flush());
    if (round == 1) test.reopen();
  }
}

void a_death_from_outside_does_not_count(void**) {
  Harness test;
  test.send(1, 1, Harness::get(test_graph(1)));
  test.workers.finish(Status(ErrorCode::WORKER, "the worker was killed by signal 11"));
  test.workers.finish(Status(ErrorCode::CANCELLED, "the worker was killed by signal 9 from outside"));
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 1)), ErrorCode::CANCELLED, "from outside");
  test.send(1, 2, Harness::get(test_graph(1)));
  test.workers.finish(Status(ErrorCode::CANCELLED, "the worker was killed by signal 15 from outside"));
  test.workers.finish();
  assert_true(test.receive_as<wire::PlanReply>(1, 2).origin == Origin::compiled);
}

void a_graph_that_kills_twice_is_quarantined_until_it_is_removed(void**) {
  Harness test;
  test.send(1, 1, Harness::get(test_graph(1)));
  test.workers.finish(Status(ErrorCode::WORKER, "the worker was killed by signal 9"));
  test.workers.finish(Status(ErrorCode::WORKER, "the worker was killed by signal 11"));
  const auto error = test.receive_as<wire::Error>(1, 1);
  assert_error(wire::to_status(error), ErrorCode::QUARANTINED, "signal 11");
  assert_ok(test.store->flush());

  test.reopen();  // and it is remembered
  assert_error(test.ask_error(test_graph(1)), ErrorCode::QUARANTINED, "signal 11");
  assert_int_equal(test.workers.started, 2);
  wire::Explain explain;
  explain.graph = test_graph(1);
  explain.target = "sm_90a";
  const auto explained = test.ask<wire::ExplainReply>(explain);
  assert_contains(explained.quarantine, "signal 11");
  assert_true(explained.state == JobState::quarantined);

  wire::Remove remove;
  remove.keys = {error.key};
  assert_int_equal(test.ask<wire::Removed>(remove).count, 0);
  assert_ok(test.store->flush());
  assert_int_equal(test.make(test_graph(1)).generation, 1);
}

void queued_jobs_of_nobody_can_be_dropped(void**) {
  Harness test;
  std::vector<Hash128> keys;
  for (int i = 1; i <= 3; ++i)
    keys.push_back(test.ask<wire::Pending>(Harness::get(test_graph(i), wire::kGetNoWait)).key);
  wire::Remove remove;
  remove.queued = 1;
  remove.keys = {keys[0], keys[1], keys[1]};  // the first one runs
  assert_int_equal(test.ask<wire::Removed>(remove).count, 1);
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{keys[0]}).state == JobState::running);
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{keys[1]}).state == JobState::none);
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{keys[2]}).state == JobState::queued);
}

void failures_are_told_and_forgotten(void**) {
  Harness test;
  const auto pending = test.ask<wire::Pending>(Harness::get(test_graph(1), wire::kGetNoWait));
  test.workers.finish(Status(ErrorCode::COMPILE, "line 3: no such thing"));
  const auto status = test.ask<wire::JobStatusReply>(wire::JobStatus{pending.key});
  assert_true(status.state == JobState::failed);
  assert_contains(status.reason, "COMPILE: line 3");
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Wait{pending.key, 0})), ErrorCode::COMPILE,
               "line 3");
  test.make(test_graph(1));
  assert_true(test.ask<wire::JobStatusReply>(wire::JobStatus{pending.key}).state != JobState::failed);
}

void what_a_worker_says_is_checked(void**) {
  Harness test;
  for (const std::string& plan :
       {std::string("nonsense"), fake_plan(test_graph(1), "sm_80"), fake_plan(test_graph(1), "sm_90a", 0)}) {
    test.send(1, 1, Harness::get(test_graph(1)));
    test.workers.finish(wire::JobDone{plan, 0, 0});
    assert_error(wire::to_status(test.receive_as<wire::Error>(1, 1)), ErrorCode::INTERNAL, "worker's plan");
  }
}

void without_a_compiler_hits_work_and_misses_say_why(void**) {
  Harness test;
  test.make(test_graph(1));
  assert_ok(test.store->flush());
  test.workers.state = {CompilerState::Kind::missing, "", "no libnvrtc anywhere"};
  test.reopen();
  assert_true(test.ask<wire::PlanReply>(Harness::get(test_graph(1))).origin == Origin::hit);
  assert_error(test.ask_error(test_graph(2)), ErrorCode::NO_COMPILER, "no libnvrtc anywhere");
  assert_error(test.ask_error("graph g\n"), ErrorCode::INVALID_GRAPH);
  assert_true(test.workers.looked_again > 0);

  // Somebody installs it.
  test.workers.state = {CompilerState::Kind::ready, "fake 1.0", ""};
  test.service->compiler_changed();
  test.make(test_graph(2));
}

void requests_wait_for_the_first_greeting(void**) {
  Harness test;
  test.workers.state = {CompilerState::Kind::starting, "", ""};
  test.close();
  test.dir = temp_dir();
  test.open();
  test.send(1, 1, Harness::get(test_graph(1)));
  assert_true(test.silent(1));
  test.workers.state = {CompilerState::Kind::ready, "fake 2.0", ""};
  test.send(1, 2, Harness::get(test_graph(1)));  // before the service has been told
  assert_int_equal(test.workers.started, 0);
  test.service->compiler_changed();
  assert_text_equal(test.workers.running.front().spec.toolchain, "fake 2.0");
  test.workers.finish();
  test.receive_as<wire::PlanReply>(1, 1);
  test.receive_as<wire::PlanReply>(1, 2);
}

// The front index has a request under the toolchain that its plan was made with.
void a_compiler_may_become_known_while_a_graph_is_parsed(void**) {
  Harness test;
  test.workers.state = {CompilerState::Kind::starting, "", ""};
  test.close();
  test.dir = temp_dir();
  test.open();
  test.meanwhile = [&] {
    test.workers.state = {CompilerState::Kind::ready, "fake 2.0", ""};
    test.service->compiler_changed();
  };
  test.send(1, 1, Harness::get(test_graph(1)));
  test.workers.finish();
  test.receive_as<wire::PlanReply>(1, 1);
  test.meanwhile = [] { fail_test("a graph is parsed again"); };
  test.send(1, 2, Harness::get(test_graph(1)));
  assert_true(test.receive_as<wire::PlanReply>(1, 2).origin == wire::Origin::hit);
}

void another_toolchain_is_another_key(void**) {
  Harness test;
  const Hash128 key = test.make(test_graph(1)).key;
  test.workers.state.toolchain = "fake 2.0";
  test.service->compiler_changed();
  wire::Explain explain;
  explain.graph = test_graph(1);
  explain.target = "sm_90a";
  const auto explained = test.ask<wire::ExplainReply>(explain);
  assert_int_equal(explained.hit, 0);
  assert_contains(explained.reason, "toolchain \"fake 1.0\" instead of \"fake 2.0\"");
  assert_contains(explained.key_text, "fake 2.0");
  const auto made = test.make(test_graph(1));
  assert_true(made.key != key);
}

void a_store_that_fails_still_gives_plans(void**) {
  Harness test;
  test.commit_error = ENOSPC;
  test.send(1, 1, Harness::get(test_graph(1)));
  test.workers.finish();
  const auto plan = test.receive_as<wire::PlanReply>(1, 1);
  assert_int_equal(plan.unstored, 1);
  assert_int_equal(plan.generation, 0);
  assert_contains(plan.warning, "not stored");
  assert_ok(decode_plan(plan.plan));
  test.commit_error = 0;
  assert_int_equal(test.make(test_graph(1)).unstored, 0);
}

void without_a_store_plans_are_still_made(void**) {
  Harness test(false);
  const auto plan = test.make(test_graph(1));
  assert_int_equal(plan.unstored, 1);
  assert_contains(plan.warning, "the disk is gone");
  assert_true(test.make(test_graph(1)).origin == Origin::compiled);
  assert_error(wire::to_status(test.ask<wire::Error>(wire::List{})), ErrorCode::IO, "the disk is gone");
  bool told = false;
  for (const auto& fact : test.ask<wire::StatsReply>(wire::Stats{}).facts)
    told = told || (fact.name == "store" && fact.text == "none: the disk is gone");
  assert_true(told);
}

void requests_have_a_time_and_a_number(void**) {
  Harness test;
  test.options.max_open_requests = 2;
  test.reopen();
  wire::Get get = Harness::get(test_graph(1));
  get.timeout_ms = 50;
  test.send(1, 1, get);
  test.send(1, 2, Harness::get(test_graph(2)));
  test.send(1, 3, Harness::get(test_graph(3)));
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 3)), ErrorCode::BUSY, "2 requests");
  assert_int_equal(*test.service->next_deadline_ns(), test.now + 50'000'000);
  test.now += 50'000'000;
  test.service->expire();
  const auto late = test.receive_as<wire::Error>(1, 1);
  assert_error(wire::to_status(late), ErrorCode::TIMEOUT, "50 ms");
  assert_true(late.key != Hash128{});
  test.workers.finish();  // the job goes on, and nobody is told twice
  test.workers.finish();
  test.receive_as<wire::PlanReply>(1, 2);
  assert_true(test.silent(1));
  assert_true(test.ask<wire::PlanReply>(Harness::get(test_graph(1))).origin == Origin::hit);
  assert_false(test.service->next_deadline_ns().has_value());
}

void the_queue_has_an_end(void**) {
  Harness test;
  test.options.max_queued_jobs = 2;
  test.reopen();
  for (int i = 0; i < 3; ++i) test.ask<wire::Pending>(Harness::get(test_graph(i), wire::kGetNoWait));
  assert_error(test.ask_error(test_graph(3), wire::kGetNoWait), ErrorCode::BUSY, "2 jobs");
}

void subscribers_are_told_of_a_risen_generation(void**) {
  Harness test;
  const Hash128 key = test.make(test_graph(1)).key;
  assert_int_equal(test.ask<wire::Subscribed>(wire::Subscribe{key}, 2).generation, 1);
  wire::Remove remove;
  remove.keys = {key};
  assert_int_equal(test.ask<wire::Removed>(remove).count, 1);
  assert_int_equal(test.make(test_graph(1)).generation, 2);
  const auto better = test.receive_as<wire::Better>(2, 0);
  assert_true(better.key == key);
  assert_int_equal(better.generation, 2);
  test.ask<wire::Ack>(wire::Unsubscribe{key}, 2);
  test.ask<wire::Ack>(wire::Unsubscribe{key}, 2);
  test.ask<wire::Removed>(remove);
  assert_int_equal(test.make(test_graph(1)).generation, 3);
  assert_true(test.silent(2));
}

void the_store_can_be_listed_shown_verified_and_emptied(void**) {
  Harness test;
  std::vector<Hash128> keys;
  for (int i = 0; i < 5; ++i) keys.push_back(test.make(test_graph(i)).key);
  std::sort(keys.begin(), keys.end());
  wire::List list;
  list.limit = 2;
  std::vector<Hash128> listed;
  for (bool more = true; more;) {
    const auto page = test.ask<wire::ListReply>(list);
    assert_true(page.rows.size() <= 2);
    for (const auto& row : page.rows) listed.push_back(row.key);
    list.after = listed.back();
    more = page.more;
  }
  assert_true(listed == keys);

  const auto shown = test.ask<wire::ShowReply>(wire::Show{keys[0]});
  assert_true(shown.row.key == keys[0]);
  assert_text_equal(shown.row.target, "sm_90a");
  assert_text_equal(shown.toolchain, "fake 1.0");
  assert_contains(shown.graph, "relu");
  assert_ok(decode_plan(shown.plan));
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Show{Hash128{1, 2}})), ErrorCode::NOT_FOUND);

  wire::Verify verify;
  verify.progress = 1;
  test.send(1, 77, verify);
  wire::Frame frame = test.receive(1);
  while (frame.type == static_cast<uint16_t>(wire::MessageType::Progress)) frame = test.receive(1);
  const auto report = wire::decode_as<wire::VerifyReply>(frame);
  assert_ok(report);
  assert_true(report.value().checked >= 5);
  assert_int_equal(report.value().damaged, 0);

  wire::Remove all;
  all.all = 1;
  assert_int_equal(test.ask<wire::Removed>(all).count, 5);
  assert_int_equal(test.ask<wire::ListReply>(wire::List{}).rows.size(), 0);
  assert_int_equal(test.ask<wire::Removed>(all).count, 0);
}

void explain_does_nothing(void**) {
  Harness test;
  wire::Explain explain;
  explain.graph = test_graph(1);
  explain.target = "sm_90a";
  const auto miss = test.ask<wire::ExplainReply>(explain);
  assert_int_equal(miss.hit, 0);
  assert_text_equal(miss.reason, "nothing like it is stored");
  assert_int_equal(test.workers.started, 0);
  const auto made = test.make(test_graph(1));
  const auto hit = test.ask<wire::ExplainReply>(explain);
  assert_int_equal(hit.hit, 1);
  assert_int_equal(hit.front, 1);
  assert_true(hit.key == made.key);
  explain.target = "sm_80";
  assert_contains(test.ask<wire::ExplainReply>(explain).reason, "target \"sm_90a\" instead of \"sm_80\"");
  explain.graph = "graph";
  assert_error(wire::to_status(test.ask<wire::Error>(explain)), ErrorCode::INVALID_GRAPH);
}

void draining_finishes_what_is_waited_for_and_refuses_the_rest(void**) {
  Harness test;
  test.make(test_graph(9));
  test.send(1, 1, Harness::get(test_graph(1)));
  test.send(1, 2, Harness::get(test_graph(2)));
  test.ask<wire::Pending>(Harness::get(test_graph(3), wire::kGetNoWait), 2);
  test.service->drain();
  assert_error(test.ask_error(test_graph(4)), ErrorCode::BUSY, "about to exit");
  assert_true(test.ask<wire::PlanReply>(Harness::get(test_graph(9))).origin == Origin::hit);
  assert_false(test.service->idle());
  test.workers.finish();
  test.receive_as<wire::PlanReply>(1, 1);
  test.workers.finish();
  test.receive_as<wire::PlanReply>(1, 2);
  assert_true(test.workers.running.empty());  // the background job is gone
  assert_true(test.service->idle());
}

void giving_up_tells_those_who_wait(void**) {
  Harness test;
  test.send(1, 1, Harness::get(test_graph(1)));
  test.send(1, 2, Harness::get(test_graph(2)));
  test.service->drain();
  test.service->give_up();
  assert_error(wire::to_status(test.receive_as<wire::Error>(1, 2)), ErrorCode::CANCELLED);
}

void only_the_owner_can_shut_down(void**) {
  Harness test;
  test.service->connect(9, geteuid() + 12345);
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Shutdown{}, 9)), ErrorCode::PERMISSION);
  assert_false(test.shut_down);
  test.ask<wire::Ack>(wire::Shutdown{});
  assert_true(test.shut_down);
}

void greetings_settle_the_version(void**) {
  Harness test;
  const auto greet = [&](uint32_t low, uint32_t high) {
    wire::Hello hello;
    hello.version_low = low;
    hello.version_high = high;
    wire::FrameReader reader;
    reader.append(wire::encode(1, hello));
    return test.service->greet(**reader.next());
  };
  for (uint32_t high : {wire::kProtocolVersion, wire::kProtocolVersion + 5}) {
    auto frame = greet(1, high);
    assert_ok(frame);
    wire::FrameReader reader;
    reader.append(*frame);
    const auto welcome = wire::decode_as<wire::Welcome>(**reader.next());
    assert_ok(welcome);
    assert_int_equal(welcome.value().version, wire::kProtocolVersion);
    assert_text_equal(welcome.value().toolchain, "fake 1.0");
  }
  assert_error(greet(wire::kProtocolVersion + 1, wire::kProtocolVersion + 2), ErrorCode::PROTOCOL,
               "update the older");
  assert_error(greet(0, 0), ErrorCode::PROTOCOL, "versions 0 to 0");
  assert_error(test.service->greet(wire::Frame{16, 1, ""}), ErrorCode::PROTOCOL, "Hello was expected");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_miss_is_compiled_and_then_hit),
      cmocka_unit_test(the_front_index_and_the_key_both_hit),
      cmocka_unit_test(identical_misses_share_one_job),
      cmocka_unit_test(key_parts_make_keys),
      cmocka_unit_test(bad_requests_get_clear_errors),
      cmocka_unit_test(no_wait_answers_pending_and_can_be_waited_for),
      cmocka_unit_test(no_start_starts_nothing),
      cmocka_unit_test(foreground_runs_before_background),
      cmocka_unit_test(a_client_that_left_makes_its_job_a_background_job),
      cmocka_unit_test(a_worker_that_dies_is_forgiven_once),
      cmocka_unit_test(a_success_clears_the_count_of_deaths),
      cmocka_unit_test(a_death_from_outside_does_not_count),
      cmocka_unit_test(a_graph_that_kills_twice_is_quarantined_until_it_is_removed),
      cmocka_unit_test(queued_jobs_of_nobody_can_be_dropped),
      cmocka_unit_test(failures_are_told_and_forgotten),
      cmocka_unit_test(what_a_worker_says_is_checked),
      cmocka_unit_test(without_a_compiler_hits_work_and_misses_say_why),
      cmocka_unit_test(requests_wait_for_the_first_greeting),
      cmocka_unit_test(a_compiler_may_become_known_while_a_graph_is_parsed),
      cmocka_unit_test(another_toolchain_is_another_key),
      cmocka_unit_test(a_store_that_fails_still_gives_plans),
      cmocka_unit_test(without_a_store_plans_are_still_made),
      cmocka_unit_test(requests_have_a_time_and_a_number),
      cmocka_unit_test(the_queue_has_an_end),
      cmocka_unit_test(subscribers_are_told_of_a_risen_generation),
      cmocka_unit_test(the_store_can_be_listed_shown_verified_and_emptied),
      cmocka_unit_test(explain_does_nothing),
      cmocka_unit_test(draining_finishes_what_is_waited_for_and_refuses_the_rest),
      cmocka_unit_test(giving_up_tells_those_who_wait),
      cmocka_unit_test(only_the_owner_can_shut_down),
      cmocka_unit_test(greetings_settle_the_version),
  };
  return cmocka_run_group_tests_name("service", tests, nullptr, nullptr);
}
