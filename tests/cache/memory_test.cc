// Allocations and writes that fail, one after the other: in the process that has the store open, and in the
// one that writes. Each is an error or a miss, what was stored stays, and the next put is stored.
#include <cstdlib>
#include <new>

#include "tests/cache/fixture.h"

namespace {

std::atomic<long> allocations_left = 0;  // until one fails; 0: none does

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left > 0 && --allocations_left == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace quern {

namespace {

bool is_harmless(const Status& status) {
  return status.ok() || status.code() == ErrorCode::OUT_OF_MEMORY || status.code() == ErrorCode::NOT_FOUND;
}

void every_allocation_of_a_get_may_fail(void**) {
  TestStore test(temp_dir());
  test.options.recent_bytes = 1 << 20;
  test.open();
  PlanPut put = test_put(1, test_bytes(1, 20000));
  const KeyMaterial request = request_key("request", "nvrtc"), key = test_key(1);
  put.request = request;
  assert_ok(test->put_and_wait(put));
  assert_ok(test->flush());
  int failed = 0;
  for (long n = 1; n < 100; ++n) {
    allocations_left = n;
    const auto look = [&](const auto& got, const auto& plan) {
      const bool hit = allocations_left.exchange(0) > 0;
      assert_true(is_harmless(got.status()));
      if (got.ok()) assert_true(plan(*got) == test_bytes(1, 20000));
      failed += !got.ok();
      if (hit) assert_ok(got);
    };
    if (n % 2)
      look(test->get(key), [](const StoredPlan& plan) { return plan.plan; });
    else
      look(test->find_request(request), [](const auto& plan) { return plan->plan; });
  }
  assert_true(failed > 3);
  assert_ok(test->get(key));
  assert_int_equal(test->stats()->rescues, 0);
}

void every_allocation_of_a_put_may_fail(void**) {
  TestStore test(temp_dir());
  test.open();
  assert_ok(test->put_and_wait(test_put(0, "stays")));
  int failed = 0;
  for (int n = 1; n < 300; ++n) {
    PlanPut put = test_put(n, test_bytes(n, 3000));
    put.request = request_key(std::to_string(n), "nvrtc");
    std::atomic<bool> answered = false;
    Status answer;
    const std::function<void(Result<PutOutcome>)> done = [&](Result<PutOutcome> result) {
      allocations_left = 0;
      answer = result.status();
      answered = true;
      answered.notify_one();
    };
    Store::PutDone copy = done;
    allocations_left = n;
    test->put(std::move(put), std::move(copy));
    answered.wait(false);
    assert_true(is_harmless(answer));
    failed += !answer.ok();
    if (answer.ok()) assert_true(test->get(test_key(n))->plan == test_bytes(n, 3000));
    assert_ok(test->get(test_key(0)));
  }
  print_message("%d of 299 puts lacked memory\n", failed);
  assert_true(failed > 30);
  assert_ok(test->put_and_wait(test_put(1000, "after")));
  assert_int_equal(test->verify_all()->damage.size(), 0);
  assert_int_equal(test->stats()->rescues, 0);
  assert_text_equal(test.open().get(test_key(1000))->plan, "after");
}

// In the process that writes.
void with_faults(const char* variable, int first, int last, int step) {
  TestStore test(temp_dir());
  test.open();
  for (int i = 0; i < 20; ++i) assert_ok(test->put_and_wait(test_put(i, test_bytes(i, 5000))));
  int failed = 0;
  for (int n = first; n < last; n += step) {
    test.store.reset();
    setenv(variable, std::to_string(n).c_str(), 1);
    test.options.engine = FAULTY_STORE_BUILT;
    auto opened = Store::open(test.options);
    // Where the writer cannot start, what is there is read.
    assert_ok(opened);
    test.store = std::move(*opened);
    for (int i = 0; i < 20; ++i) assert_true(test->get(test_key(i))->plan == test_bytes(i, 5000));
    const auto put = test->put_and_wait(test_put(100 + n, test_bytes(n, 5000)));
    failed += !put.ok();
    const auto again = test->put_and_wait(test_put(100 + n, test_bytes(n, 5000)));
    if (again.ok()) assert_true(test->get(test_key(100 + n))->plan == test_bytes(n, 5000));
    unsetenv(variable);
    test.options.engine.clear();
    assert_ok(test.open().put_and_wait(test_put(100 + n, test_bytes(n, 5000))));
    for (int i = 0; i < 20; ++i) assert_true(test->get(test_key(i))->plan == test_bytes(i, 5000));
    assert_int_equal(test->verify_all()->damage.size(), 0);
  }
  print_message("%s: %d puts failed\n", variable, failed);
  assert_true(failed > 3);
}

void the_writer_may_lack_memory(void**) { with_faults("QUERN_STORE_NOMEM", 1, 90, 1); }
void the_disk_may_fail(void**) { with_faults("QUERN_STORE_EIO", 1, 12, 1); }

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_allocation_of_a_get_may_fail),
      cmocka_unit_test(every_allocation_of_a_put_may_fail),
      cmocka_unit_test(the_writer_may_lack_memory),
      cmocka_unit_test(the_disk_may_fail),
  };
  return cmocka_run_group_tests_name("cache-memory", tests, nullptr, nullptr);
}
