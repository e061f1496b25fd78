// What clients may make the daemon hold, whose turn it is, and what guests may ask for.
#include "daemon/budget.h"
#include "tests/daemon/harness.h"

namespace quern {

namespace {

constexpr uid_t kGuest = 54321;

void an_account_has_its_own_and_a_part_of_the_pool(void**) {
  const auto budget = std::make_shared<Budget>(size_t{4} << 20);
  Account greedy(budget), modest(budget);
  assert_false(greedy.charge(budget->client_bytes() + 1));
  assert_true(greedy.charge(budget->client_bytes()));
  assert_false(greedy.charge(1));
  std::vector<std::unique_ptr<Account>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(std::make_unique<Account>(budget));
    assert_true(others.back()->charge(budget->client_bytes()));
  }
  // The pool is empty: what is a client's own is left.
  assert_int_equal(budget->used(), budget->pool_bytes());
  assert_false(modest.charge(Budget::kOwnBytes + 1));
  assert_true(modest.charge(Budget::kOwnBytes));
  greedy.release(budget->client_bytes() / 2);
  assert_true(modest.charge(1));
  others.clear();
  greedy.release(greedy.used());
  assert_int_equal(budget->used(), 1);
}

// A worker that is busy with what nobody here waits for.
void keep_busy(Harness& test) {
  test.service->connect(99, geteuid());
  test.send(99, 1, Harness::get(test_graph(999)));
}

std::string next_job(Harness& test) {
  test.workers.finish();
  assert_false(test.workers.running.empty());
  return test.workers.running.front().spec.graph;
}

std::string shape(int number) { return "f32[" + std::to_string(number + 1) + "]"; }

void clients_take_turns(void**) {
  Harness test;
  keep_busy(test);
  for (int i = 0; i < 20; ++i) {
    wire::Get get = Harness::get(test_graph(i));
    get.priority = 255;
    test.send(1, static_cast<uint64_t>(i + 1), get);
  }
  assert_contains(next_job(test), shape(0));
  test.send(2, 1, Harness::get(test_graph(100)));
  test.send(2, 2, Harness::get(test_graph(101)));
  assert_contains(next_job(test), shape(100));
  assert_contains(next_job(test), shape(1));
  assert_contains(next_job(test), shape(101));
  assert_contains(next_job(test), shape(2));
}

void users_take_turns_however_many_connections_they_have(void**) {
  Harness test;
  keep_busy(test);
  for (ClientId client = 10; client < 20; ++client) {
    test.service->connect(client, kGuest);
    test.send(client, 1, Harness::get(test_graph(static_cast<int>(client))));
    test.send(client, 2, Harness::get(test_graph(static_cast<int>(client) + 100)));
  }
  test.send(1, 1, Harness::get(test_graph(1)));
  test.send(1, 2, Harness::get(test_graph(2)));
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) order.push_back(next_job(test));
  const auto at = [&](int number) {
    return std::find_if(
               order.begin(), order.end(),
               [&](const std::string& text) { return text.find(shape(number)) != std::string::npos; }) -
           order.begin();
  };
  assert_true(at(1) <= 1 && at(2) <= 3);
}

void who_waits_goes_before_who_does_not(void**) {
  Harness test;
  keep_busy(test);
  test.ask<wire::Pending>(Harness::get(test_graph(1), wire::kGetNoWait));
  test.ask<wire::Pending>(Harness::get(test_graph(2), wire::kGetNoWait));
  wire::Get late = Harness::get(test_graph(2));
  late.timeout_ms = 10;
  test.send(2, 1, late);  // a foreground job as long as somebody waits for it
  test.now += 20'000'000;
  test.service->expire();
  test.receive_as<wire::Error>(2, 1);
  assert_contains(next_job(test), shape(1));
  assert_contains(next_job(test), shape(2));
}

void what_waited_for_a_job_leaves_with_its_client(void**) {
  Harness test;
  keep_busy(test);
  const std::string text = test_graph(1) + "#" + std::string(200000, 'x') + "\n";
  const size_t before = test.service->budget().used();
  for (int round = 0; round < 300; ++round) {
    test.service->connect(50, geteuid());
    wire::Get get = Harness::get(text);
    get.timeout_ms = 10;
    test.send(50, 1, get);
    if (round % 2) {
      test.now += 20'000'000;
      test.service->expire();
      test.receive_as<wire::Error>(50, 1);
    }
    test.service->disconnect(50);
  }
  // The job itself stays, once, at its user's expense.
  assert_true(test.service->budget().used() <= before + 800000);
  assert_contains(next_job(test), shape(1));
  test.workers.finish();
  assert_ok(test.store->flush());
  test.run_posted(1000);
  assert_int_equal(test.service->budget().used(), before);
}

void what_is_too_much_for_one_client_is_not_for_another(void**) {
  Harness test;
  test.options.max_client_memory = 8 << 20;
  test.reopen();
  keep_busy(test);
  const std::string filler = "#" + std::string(300000, 'x') + "\n";
  Status status;
  int taken = 0;
  for (; taken < 100 && status.ok(); ++taken) {
    test.send(1, static_cast<uint64_t>(taken + 1), Harness::get(test_graph(taken) + filler));
    if (!test.silent(1))
      status = wire::to_status(test.receive_as<wire::Error>(1, static_cast<uint64_t>(taken + 1)));
  }
  assert_error(status, ErrorCode::BUSY, "memory");
  assert_true(taken > 1 && taken < 10);
  test.send(2, 1, Harness::get(test_graph(200) + filler));
  assert_true(test.silent(2));
  test.service->disconnect(1);
  test.service->connect(1, geteuid());
  test.send(1, 1, Harness::get(test_graph(300) + filler));
  assert_true(test.silent(1));
}

void subscriptions_are_paid_for(void**) {
  Harness test;
  test.options.max_client_memory = 8 << 20;
  test.reopen();
  uint64_t number = 0;
  for (bool taken = true; taken && number < 100000; ++number) {
    test.send(1, number + 1, wire::Subscribe{Hash128{number, 1}});
    const wire::Frame frame = test.receive(1);
    taken = frame.type == static_cast<uint16_t>(wire::MessageType::Subscribed);
  }
  assert_true(number > 1000 && number < 20000);
  assert_int_equal(test.ask<wire::Subscribed>(wire::Subscribe{Hash128{1, 1}}, 2).generation, 0);
}

void guests_may_ask_and_not_remove(void**) {
  Harness test;
  const Hash128 key = test.make(test_graph(1)).key;
  test.service->connect(7, kGuest);
  assert_true(test.ask<wire::PlanReply>(Harness::get(test_graph(1)), 7).key == key);
  test.ask<wire::Pending>(Harness::get(test_graph(2), wire::kGetNoWait), 7);
  test.ask<wire::StatsReply>(wire::Stats{}, 7);
  wire::Remove all;
  all.all = 1;
  assert_error(wire::to_status(test.ask<wire::Error>(all, 7)), ErrorCode::PERMISSION, "Remove");
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Verify{}, 7)), ErrorCode::PERMISSION);
  wire::Tune tune;
  tune.key = key;
  assert_error(wire::to_status(test.ask<wire::Error>(tune, 7)), ErrorCode::PERMISSION);
  assert_error(wire::to_status(test.ask<wire::Error>(wire::Shutdown{}, 7)), ErrorCode::PERMISSION);
  assert_false(test.shut_down);
  assert_int_equal(test.ask<wire::Removed>(all).count, 1);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_account_has_its_own_and_a_part_of_the_pool),
      cmocka_unit_test(clients_take_turns),
      cmocka_unit_test(users_take_turns_however_many_connections_they_have),
      cmocka_unit_test(who_waits_goes_before_who_does_not),
      cmocka_unit_test(what_waited_for_a_job_leaves_with_its_client),
      cmocka_unit_test(what_is_too_much_for_one_client_is_not_for_another),
      cmocka_unit_test(subscriptions_are_paid_for),
      cmocka_unit_test(guests_may_ask_and_not_remove),
  };
  return cmocka_run_group_tests_name("bounds", tests, nullptr, nullptr);
}
