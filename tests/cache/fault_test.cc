// The store when the world is against it: damage, a full map, a second opener, clocks that jump.
#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "cache/lock_file.h"
#include "cache/tables.h"
#include "tests/cache/fixture.h"

namespace quern {

namespace {

std::string key_of(int number) { return table_key(test_key(number).key()); }

void every_flipped_byte_of_a_plan_is_a_reported_miss(void**) {
  TestStore test(temp_dir());
  PlanPut put = test_put(1, "the plan");
  const KeyMaterial request = request_key("request", "nvrtc");
  put.request = request;
  test.open();
  assert_true(test->put_and_wait(put)->published);
  assert_ok(test->put_and_wait(test_put(2, "untouched")));
  assert_ok(test->flush());
  test.store.reset();
  size_t size = 1;
  uint64_t generation = 1;
  for (size_t i = 0; i < size; ++i) {
    change_record(test.options.directory, Table::plans, key_of(1), [&](std::string& bytes) {
      size = bytes.size();
      bytes[i] ^= 0x10;
    });
    Store& store = test.open();
    // Through the front index or the key, in turns; twice, and reported once.
    for (int n = 0; n < 2; ++n)
      assert_error(i % 2 ? get_by_request(store, request) : store.get(test_key(1)), ErrorCode::NOT_FOUND);
    const auto reports = test.reports->take();
    assert_int_equal(reports.size(), 1);
    assert_contains(reports[0], "damaged record in the table plans under " + to_hex(test_key(1).key()));
    assert_ok(store.flush());
    assert_int_equal(store.stats()->plans, 1);
    assert_text_equal(store.get(test_key(2))->plan, "untouched");
    const auto again = store.put_and_wait(put);
    assert_ok(again);
    assert_true(again->published && again->generation == ++generation);
    test.store.reset();
  }
  assert_true(size > 100);
}

void a_plan_under_another_key_is_a_reported_miss(void**) {
  TestStore test(temp_dir());
  test.open();
  assert_ok(test->put_and_wait(test_put(1, "one")));
  assert_ok(test->put_and_wait(test_put(2, "two")));
  test.store.reset();
  std::string other;
  change_record(test.options.directory, Table::plans, key_of(2), [&](std::string& bytes) { other = bytes; });
  change_record(test.options.directory, Table::plans, key_of(1), [&](std::string& bytes) { bytes = other; });
  assert_error(test.open().get(test_key(1)), ErrorCode::NOT_FOUND);
  assert_contains(test.reports->take().at(0), "under another key");
  assert_ok(test->get(test_key(2)));
}

void verify_finds_and_removes_all_damage(void**) {
  TestStore test(temp_dir());
  test.open();
  for (int i = 0; i < 300; ++i) {
    PlanPut put = test_put(i, test_bytes(i, 200));
    put.request = request_key(std::to_string(i), "nvrtc");
    put.timings = {test_timing("H200", 10)};
    put.programs = "programs";
    put.program = Hash128{};
    test->put(std::move(put), {});
  }
  test->quarantine(test_key(7).key(), "signal 11");
  test->set_meta("name", "value");
  assert_ok(test->flush());
  assert_int_equal(test->verify_all()->damage.size(), 0);
  test.store.reset();

  const std::string& directory = test.options.directory;
  const auto flip = [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; };
  change_record(directory, Table::plans, key_of(3), flip);
  change_record(directory, Table::requests, table_key(request_key("4", "nvrtc").key()), flip);
  change_record(directory, Table::usage, key_of(5), flip);
  change_record(directory, Table::timings, timing_key(test_key(6).key(), "H200", {}), flip);
  change_record(directory, Table::quarantine, key_of(7), flip);
  change_record(directory, Table::programs, key_of(8), flip);
  change_record(directory, Table::tuning, key_of(9), flip);
  change_record(directory, Table::meta, "name", flip);
  change_record(directory, Table::meta, kCountersKey, flip);

  test.open();
  uint64_t last_done = 0, last_total = 1;
  const auto report = test->verify_all([&](uint64_t done, uint64_t total) {
    assert_true(done >= last_done && done <= total);
    last_done = done;
    last_total = total;
  });
  assert_ok(report);
  assert_true(last_done == last_total && last_done == report->records);
  std::string tables;
  for (const auto& damage : report->damage) tables += damage.table + " ";
  // Whoever writes first makes the counters anew, and that may be before they are looked at.
  if (const size_t twice = tables.find("meta meta "); twice != std::string::npos) tables.erase(twice, 5);
  // The list that names the damaged request is found too.
  assert_text_equal(tables,
                    "plans program_timings requests request_lists usage quarantine meta programs tuning ");
  assert_contains(report->damage[0].key, to_hex(test_key(3).key()));

  const auto after = test->verify_all();
  assert_ok(after);
  assert_int_equal(after->damage.size(), 0);
  assert_error(test->get(test_key(3)), ErrorCode::NOT_FOUND);
  assert_error(test->find_request(request_key("3", "nvrtc")), ErrorCode::NOT_FOUND);
  assert_error(test->find_request(request_key("4", "nvrtc")), ErrorCode::NOT_FOUND);
  for (int i : {4, 5, 6, 7, 8, 9}) assert_ok(test->get(test_key(i)));
  assert_error(test->programs(test_key(8).key()), ErrorCode::NOT_FOUND);
  assert_int_equal(test->tuning(test_key(9).key()).generation, 0);
  assert_int_equal(test->stats()->plans, 299);
  // The counters came back from the usage records: the removed plan's successor gets a higher generation.
  assert_int_equal(test->put_and_wait(test_put(3, "new"))->generation, 2);
}

void a_failed_commit_changes_nothing_and_service_goes_on(void**) {
  for (const int code : {ENOSPC, EIO, MDB_MAP_FULL, MDB_PANIC}) {
    TestStore test(temp_dir());
    std::atomic<int> fault = 0;
    test.options.commit_fault = [&] { return fault.load(); };
    test.open();
    assert_ok(test->put_and_wait(test_put(1, "old")));
    fault = code;
    const auto refused = test->put_and_wait(test_put(1, "new", Tier::modelled));
    assert_error(refused, storage_error(code, "").code());
    assert_error(test->put_and_wait(test_put(2, "two")), storage_error(code, "").code());
    assert_text_equal(test->get(test_key(1))->plan, "old");
    assert_error(test->get(test_key(2)), ErrorCode::NOT_FOUND);
    assert_true(test->stats()->failed_commits >= 2);
    fault = 0;
    assert_int_equal(test->put_and_wait(test_put(1, "new", Tier::modelled))->generation, 2);
    assert_text_equal(test.open().get(test_key(1))->plan, "new");
  }
}

void one_write_that_fails_does_not_take_its_group_along(void**) {
  TestStore test(temp_dir());
  std::atomic<bool> hold = false;
  test.options.map_bytes = 16 << 20;
  test.options.commit_fault = [&] {
    hold.wait(true);
    return 0;
  };
  test.open();
  assert_contains(test.reports->take().at(0), "at most 12 MiB");
  assert_ok(test->flush());  // the commit with which the store looks at its file is not held
  // While the first commit is held, the rest queues up into one group, which does not fit the map.
  hold = true;
  std::atomic<int> stored = 0, full = 0, other = 0;
  const auto count = [&](Result<PutOutcome> outcome) {
    ++(outcome.ok() ? stored : outcome.status().code() == ErrorCode::STORAGE_FULL ? full : other);
  };
  test->put(test_put(0, "first"), count);
  while (test->stats()->queued_writes > 0) usleep(1000);
  for (int i = 1; i < 10; ++i) test->put(test_put(i, test_bytes(i, 1000)), count);
  test->put(test_put(10, test_bytes(10, 11 << 20)), count);
  test->put(test_put(11, test_bytes(11, 11 << 20)), count);
  hold = false;
  hold.notify_all();
  assert_ok(test->flush());
  assert_int_equal(other, 0);
  // One of the large ones is evicted for the other.
  assert_int_equal(stored + full, 12);
  assert_true(stored >= 11);
  assert_int_equal(test->verify_all()->damage.size(), 0);
  assert_ok(test->put_and_wait(test_put(12, "after")));
  assert_text_equal(test->get(test_key(12))->plan, "after");
}

void a_plan_larger_than_the_cache_is_refused(void**) {
  TestStore test(temp_dir());
  test.options.max_bytes = 1 << 20;
  test.open();
  assert_error(test->put_and_wait(test_put(1, test_bytes(1, 2 << 20))), ErrorCode::LIMIT,
               "larger than the whole cache");
}

void writes_beyond_the_queue_are_refused_at_once(void**) {
  TestStore test(temp_dir());
  std::atomic<bool> hold = true;
  test.options.max_queued_bytes = 100000;
  test.options.commit_fault = [&] {
    hold.wait(true);
    return 0;
  };
  test.open();
  std::atomic<int> stored = 0, busy = 0;
  const auto count = [&](Result<PutOutcome> outcome) {
    if (outcome.ok()) ++stored;
    if (outcome.status().code() == ErrorCode::BUSY) ++busy;
  };
  for (int i = 0; i < 50; ++i) test->put(test_put(i, test_bytes(i, 10000)), count);
  assert_true(busy >= 30);
  hold = false;
  hold.notify_all();
  assert_ok(test->flush());
  assert_int_equal(stored + busy, 50);
  assert_int_equal(test->stats()->plans, stored);
}

void a_second_opener_is_told_who_holds_it(void**) {
  TestStore first(temp_dir()), second(first.options.directory);
  first.open();
  assert_error(Store::open(second.options), ErrorCode::BUSY, "process " + std::to_string(getpid()));
  const int result =
      in_child([&] { return Store::open(second.options).status().code() == ErrorCode::BUSY ? 0 : 1; });
  assert_int_equal(result, 0);
  assert_ok(first->put_and_wait(test_put(1, "plan")));
  first.store.reset();
  assert_ok(second.open().get(test_key(1)));
}

void a_file_that_is_no_store_is_set_aside(void**) {
  TestStore test(temp_dir());
  write_test_file(test.options.directory + "/" + kStoreFile, test_bytes(1, 50000));
  test.open();
  const auto reports = test.reports->take();
  assert_int_equal(reports.size(), 1);
  assert_contains(reports[0], "the cache was rebuilt with 0 plans");
  assert_ok(test->put_and_wait(test_put(1, "plan")));
  int aside = 0;
  for (const auto& file : std::filesystem::directory_iterator(test.options.directory))
    if (file.path().string().find(".damaged-") != std::string::npos) ++aside;
  assert_int_equal(aside, 1);
}

// Cut at every page: the store opens, nothing crashes, what is still whole is read, and new plans are taken.
void a_file_cut_short_loses_only_what_was_cut(void**) {
  TestStore test(temp_dir());
  test.open();
  for (int i = 0; i < 20; ++i) assert_ok(test->put_and_wait(test_put(i, test_bytes(i, 10000))));
  test.store.reset();
  const std::string path = test.options.directory + "/" + kStoreFile;
  const std::string whole = read_test_file(path);
  size_t most = 0;
  for (size_t size = 0; size < whole.size(); size += 4096) {
    const int result = in_child([&] {
      write_test_file(path, std::string_view(whole).substr(0, size));
      test.open();
      int intact = 0;
      for (int i = 0; i < 20; ++i)
        if (const auto got = test->get(test_key(i)); got.ok()) {
          if (got->plan != test_bytes(i, 10000)) return 100;
          ++intact;
        }
      (void)test->put_and_wait(test_put(30, "new"));
      (void)test->verify_all();
      test.store.reset();
      return intact;
    });
    assert_true(result <= 20);
    most = std::max<size_t>(most, result);
  }
  assert_true(most > 0);
}

void clock_jumps_break_nothing(void**) {
  TestStore test(temp_dir());
  std::atomic<int64_t> now = 1'000'000;
  test.options.now_ms = [&] { return now.load(); };
  test.open();
  for (const int64_t time : {int64_t{1'000'000}, INT64_MAX, int64_t{0}, INT64_MIN, int64_t{-5}}) {
    now = time;
    PlanPut put = test_put(1, "plan");
    put.force = true;
    assert_ok(test->put_and_wait(put));
    assert_ok(test->get(test_key(1)));
    assert_ok(test->flush());
    assert_true(test->peek(test_key(1).key())->used_ms == time);
    assert_true(test->peek(test_key(1).key())->created_ms == time);
  }
  assert_int_equal(test.open().get(test_key(1))->generation, 5);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_flipped_byte_of_a_plan_is_a_reported_miss),
      cmocka_unit_test(a_plan_under_another_key_is_a_reported_miss),
      cmocka_unit_test(verify_finds_and_removes_all_damage),
      cmocka_unit_test(a_failed_commit_changes_nothing_and_service_goes_on),
      cmocka_unit_test(one_write_that_fails_does_not_take_its_group_along),
      cmocka_unit_test(a_plan_larger_than_the_cache_is_refused),
      cmocka_unit_test(writes_beyond_the_queue_are_refused_at_once),
      cmocka_unit_test(a_second_opener_is_told_who_holds_it),
      cmocka_unit_test(a_file_that_is_no_store_is_set_aside),
      cmocka_unit_test(a_file_cut_short_loses_only_what_was_cut),
      cmocka_unit_test(clock_jumps_break_nothing),
  };
  return cmocka_run_group_tests_name("cache-fault", tests, nullptr, nullptr);
}
