// Eviction: the store stays within its size, and what was used longest ago goes first, whatever the clock
// says.
#include "tests/cache/fixture.h"

namespace quern {

namespace {

constexpr uint64_t kLimit = 4 << 20;
constexpr size_t kPlan = 100000;

TestStore small_store() {
  TestStore test(temp_dir());
  test.options.max_bytes = kLimit;
  return test;
}

void the_store_stays_within_its_size(void**) {
  TestStore test = small_store();
  test.open();
  for (int i = 0; i < 200; ++i) {
    PlanPut put = test_put(i, test_bytes(i, kPlan));
    put.request = request_key(std::to_string(i), "nvrtc");
    put.timings = {test_timing("H200", 10)};
    put.programs = "programs";
    assert_ok(test->put_and_wait(std::move(put)));
    assert_true(test->stats()->live_bytes <= kLimit);
  }
  const auto stats = test->stats();
  assert_ok(stats);
  assert_int_equal(stats->plans + stats->evicted, 200);
  assert_true(stats->plans >= 30 && stats->requests == stats->plans && stats->timings == stats->plans);
  assert_true(stats->file_bytes <= 2 * kLimit);  // freed pages are used again
  // The newest are there, without a gap.
  for (int i = 0; i < 200; ++i) {
    const bool expected = i >= 200 - static_cast<int>(stats->plans);
    assert_int_equal(test->peek(test_key(i).key()).ok(), expected);
  }
  assert_int_equal(test->verify_all()->damage.size(), 0);
}

void what_is_used_stays(void**) {
  TestStore test = small_store();
  std::atomic<int64_t> now = 0;
  // A clock that runs backwards must not turn the order round.
  test.options.now_ms = [&] { return --now; };
  test.open();
  const KeyMaterial request = request_key("request", "nvrtc");
  PlanPut asked_by_request = test_put(2, test_bytes(2, kPlan));
  asked_by_request.request = request;
  assert_ok(test->put_and_wait(test_put(0, test_bytes(0, kPlan))));
  assert_ok(test->put_and_wait(test_put(1, test_bytes(1, kPlan))));
  assert_ok(test->put_and_wait(std::move(asked_by_request)));
  assert_ok(test->put_and_wait(test_put(3, test_bytes(3, kPlan))));
  for (int i = 4; i < 150; ++i) {
    assert_ok(test->get(test_key(0)));
    test->touch(test_key(1).key());
    assert_ok(test->find_request(request));
    (void)test->peek(test_key(3).key());  // no use
    assert_ok(test->put_and_wait(test_put(i, test_bytes(i, kPlan))));
    if (i == 75) test.open();  // the order survives
  }
  assert_ok(test->get(test_key(0)));
  assert_ok(test->get(test_key(1)));
  assert_ok(test->get(test_key(2)));
  assert_error(test->get(test_key(3)), ErrorCode::NOT_FOUND);
}

void uses_are_noted_without_any_write(void**) {
  TestStore test = small_store();
  test.options.touch_interval_ms = 5;
  std::atomic<int64_t> now = 1;
  test.options.now_ms = [&] { return now.load(); };
  test.open();
  assert_ok(test->put_and_wait(test_put(1, "plan")));
  now = 77;
  assert_ok(test->get(test_key(1)));
  for (int i = 0; i < 1000 && test->peek(test_key(1).key())->used_ms != 77; ++i) usleep(5000);
  assert_int_equal(test->peek(test_key(1).key())->used_ms, 77);
}

void a_group_never_evicts_what_it_stores(void**) {
  TestStore test = small_store();
  std::atomic<bool> hold = false;
  test.options.commit_fault = [&] {
    hold.wait(true);
    return 0;
  };
  test.open();
  for (int i = 0; i < 20; ++i) assert_ok(test->put_and_wait(test_put(i, test_bytes(i, kPlan))));
  hold = true;
  // One group that is larger than the limit by itself: when a plan is acknowledged, it is there.
  std::atomic<int> stored = 0, present = 0;
  for (int i = 100; i < 160; ++i)
    test->put(test_put(i, test_bytes(i, kPlan)), [&, i](Result<PutOutcome> outcome) {
      stored += outcome.ok();
      present += test->peek(test_key(i).key()).ok();
    });
  hold = false;
  hold.notify_all();
  assert_ok(test->flush());
  assert_int_equal(stored, 60);
  assert_int_equal(present, 60);
  assert_ok(test->put_and_wait(test_put(200, test_bytes(200, kPlan))));
  assert_true(test->stats()->live_bytes <= kLimit);
  assert_ok(test->get(test_key(159)));
  assert_error(test->get(test_key(19)), ErrorCode::NOT_FOUND);
}

void what_is_pinned_stays(void**) {
  TestStore test = small_store();
  test.open();
  const auto pin = [&](int plan, bool pinned) {
    Status status(ErrorCode::INTERNAL, "not called");
    test->pin(test_key(plan).key(), pinned, [&](const Status& done) { status = done; });
    assert_ok(test->flush());
    return status;
  };
  const auto fill = [&](int from) {
    for (int i = from; i < from + 100; ++i) assert_ok(test->put_and_wait(test_put(i, test_bytes(i, kPlan))));
  };
  for (int i = 0; i < 3; ++i) assert_ok(test->put_and_wait(test_put(i, test_bytes(i, kPlan))));
  assert_ok(pin(0, true));
  assert_ok(pin(1, true));
  assert_error(pin(50, true), ErrorCode::NOT_FOUND);
  fill(100);
  assert_ok(test->peek(test_key(0).key()));
  assert_ok(test->peek(test_key(1).key()));
  assert_error(test->peek(test_key(2).key()), ErrorCode::NOT_FOUND);
  assert_true(test->stats()->live_bytes <= kLimit);
  // It is written down, goes with the pin, and with the plan.
  test.open();
  assert_true(test->is_pinned(test_key(0).key()));
  assert_ok(pin(0, false));
  assert_false(test->is_pinned(test_key(0).key()));
  fill(300);
  assert_error(test->peek(test_key(0).key()), ErrorCode::NOT_FOUND);
  assert_ok(test->peek(test_key(1).key()));
  test->remove(test_key(1).key());
  assert_ok(test->put_and_wait(test_put(1, test_bytes(1, kPlan))));
  assert_false(test->is_pinned(test_key(1).key()));
  assert_int_equal(test->verify_all()->damage.size(), 0);
}

// Else a full cache would have room for nothing new.
void pins_take_half_of_the_store_at_most(void**) {
  TestStore test = small_store();
  test.open();
  size_t pinned = 0;
  Status last;
  for (int i = 0; i < 30; ++i) {
    assert_ok(test->put_and_wait(test_put(i, test_bytes(i, kPlan))));
    test->pin(test_key(i).key(), true, [&](const Status& status) {
      pinned += status.ok();
      last = status;
    });
    assert_ok(test->flush());
  }
  assert_int_equal(pinned, kLimit / 2 / kPlan);
  assert_error(last, ErrorCode::LIMIT, "half of cache-size");
}

void a_smaller_limit_takes_effect_after_reopening(void**) {
  TestStore test = small_store();
  test.open();
  for (int i = 0; i < 30; ++i) assert_ok(test->put_and_wait(test_put(i, test_bytes(i, kPlan))));
  test.options.max_bytes = 1 << 20;
  test.open();
  assert_ok(test->put_and_wait(test_put(100, "small")));
  assert_true(test->stats()->live_bytes <= 1 << 20);
  assert_ok(test->get(test_key(100)));
  assert_ok(test->get(test_key(29)));
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_store_stays_within_its_size),
      cmocka_unit_test(what_is_used_stays),
      cmocka_unit_test(uses_are_noted_without_any_write),
      cmocka_unit_test(what_is_pinned_stays),
      cmocka_unit_test(pins_take_half_of_the_store_at_most),
      cmocka_unit_test(a_group_never_evicts_what_it_stores),
      cmocka_unit_test(a_smaller_limit_takes_effect_after_reopening),
  };
  return cmocka_run_group_tests_name("cache-eviction", tests, nullptr, nullptr);
}
