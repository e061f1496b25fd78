// The store when the world is against it: damage, a full map, a full disk, no right to write, a second
// opener.
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

// Runs `body` in a child process, which may give up rights and limits for good; the child's exit status.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
constexpr int kSkipped = 77;

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
      assert_error(i % 2 ? store.find_request(request) : store.get(test_key(1)), ErrorCode::NOT_FOUND);
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
  // The list that names the damaged request is found too.
  assert_text_equal(
      tables, "plans program_timings requests request_lists usage quarantine meta meta programs tuning ");
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

// A file-size limit makes the kernel refuse real writes.
void a_real_write_error_leaves_a_good_store(void**) {
  const std::string directory = temp_dir();
  const int result = in_child([&] {
    TestStore test(directory);
    test.open();
    if (!test->put_and_wait(test_put(1, test_bytes(1, 5000))).ok()) return 1;
    const rlimit small = {test->stats()->file_bytes + 20000, RLIM_INFINITY};
    const rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    prlimit(engine_process(), RLIMIT_FSIZE, &small, nullptr);
    const auto refused = test->put_and_wait(test_put(2, test_bytes(2, 500000)));
    if (refused.status().code() != ErrorCode::STORAGE_FULL && refused.status().code() != ErrorCode::IO)
      return 2;
    if (test->get(test_key(1))->plan != test_bytes(1, 5000)) return 3;
    if (test->get(test_key(2)).ok()) return 4;
    prlimit(engine_process(), RLIMIT_FSIZE, &none, nullptr);
    if (!test->put_and_wait(test_put(2, test_bytes(2, 500000))).ok()) return 5;
    test.open();
    if (test->get(test_key(2))->plan != test_bytes(2, 500000)) return 6;
    return test->verify_all()->damage.empty() ? 0 : 7;
  });
  assert_int_equal(result, 0);
}

bool mount_small_disk(const std::string& directory) {
  const uid_t uid = geteuid();
  if (unshare((uid == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNS) != 0) return false;
  mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
  return mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=4m,mode=700") == 0;
}

// What was used last is kept, and what is larger than all of it is refused.
void a_full_disk_evicts(void**) {
  const std::string directory = temp_dir();
  const int result = in_child([&] {
    if (!mount_small_disk(directory)) return kSkipped;
    TestStore test(directory);
    test.open();
    for (int i = 0; i < 100; ++i)
      if (!test->put_and_wait(test_put(i, test_bytes(i, 100000))).ok()) return 1;
    const auto stats = test->stats();
    if (stats->evicted < 50 || stats->plans < 10) return 2;
    for (int i = 95; i < 100; ++i)
      if (test->get(test_key(i))->plan != test_bytes(i, 100000)) return 3;
    const auto refused = test->put_and_wait(test_put(1000, test_bytes(0, 5 << 20)));
    if (refused.status().code() != ErrorCode::STORAGE_FULL) return 4;
    if (test->stats()->plans < 10) return 5;
    // Others fill the disk: it is the same.
    std::ofstream(directory + "/other") << std::string(4 << 20, 'x');  // as much of it as there is room for
    for (int i = 200; i < 230; ++i)
      if (!test->put_and_wait(test_put(i, test_bytes(i, 100000))).ok()) return 6;
    test.open();
    if (!test->verify_all()->damage.empty()) return 7;
    return test->get(test_key(229)).ok() ? 0 : 8;
  });
  if (result == kSkipped) skip_test("this process may not mount a small disk");
  assert_int_equal(result, 0);
}

// Becomes a user without special rights, for whom permissions hold.
void become_nobody() {
  if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
}

void a_read_only_directory_still_answers(void**) {
  const std::string directory = temp_dir();
  {
    TestStore test(directory);
    test.open();
    assert_ok(test->put_and_wait(test_put(1, "plan")));
    assert_ok(test->put_and_wait(test_put(2, "damaged later")));
  }
  change_record(directory, Table::plans, key_of(2), [](std::string& bytes) { bytes.back() ^= 1; });
  for (const char* file : {"store-1.mdb", "store.lock"})
    assert_int_equal(chmod((directory + "/" + file).c_str(), 0444), 0);
  assert_int_equal(chmod(directory.c_str(), 0555), 0);
  const int result = in_child([&] {
    become_nobody();
    TestStore test(directory);
    auto opened = Store::open(test.options);
    if (!opened.ok() || !(*opened)->read_only() || !(*opened)->stats()->read_only) return 1;
    if (test.reports->take().at(0).find("read-only") == std::string::npos) return 2;
    Store& store = **opened;
    const auto got = store.get(test_key(1));
    if (!got.ok() || got->plan != "plan") return 3;
    const auto refused = store.put_and_wait(test_put(3, "plan"));
    if (refused.status().code() != ErrorCode::PERMISSION) return 4;
    if (store.get(test_key(2)).status().code() != ErrorCode::NOT_FOUND) return 5;
    if (store.get(test_key(2)).ok() || test.reports->take().size() != 1) return 6;
    if (!store.flush().ok() || store.verify_all()->damage.size() != 1) return 7;
    // Readers share; and while one reads, nobody may write.
    if (!Store::open(test.options).ok()) return 8;
    return 0;
  });
  chmod(directory.c_str(), 0700);
  assert_int_equal(result, 0);
}

// As an earlier version left it, which knew of no findings.
void drop_findings(const std::string& directory) {
  MDB_env* env = nullptr;
  MDB_txn* txn = nullptr;
  MDB_dbi table;
  assert_int_equal(mdb_env_create(&env), 0);
  mdb_env_set_maxdbs(env, kTableCount);
  assert_int_equal(mdb_env_open(env, (directory + "/" + kStoreFile).c_str(), MDB_NOSUBDIR, 0600), 0);
  assert_int_equal(mdb_txn_begin(env, nullptr, 0, &txn), 0);
  assert_int_equal(mdb_dbi_open(txn, "findings", 0, &table), 0);
  assert_int_equal(mdb_drop(txn, table, 1), 0);
  assert_int_equal(mdb_txn_commit(txn), 0);
  mdb_env_close(env);
}

void a_read_only_store_of_an_earlier_version_is_read(void**) {
  const std::string directory = temp_dir();
  {
    TestStore test(directory);
    test.open();
    assert_ok(test->put_and_wait(test_put(1, "plan")));
  }
  drop_findings(directory);
  assert_int_equal(chmod(directory.c_str(), 0755), 0);
  for (const auto& file : std::filesystem::directory_iterator(directory))
    assert_int_equal(chmod(file.path().c_str(), 0444), 0);
  assert_int_equal(chmod(directory.c_str(), 0555), 0);
  const int result = in_child([&] {
    become_nobody();
    TestStore test(directory);
    auto opened = Store::open(test.options);
    if (!opened.ok() || !(*opened)->read_only()) return 1;
    Store& store = **opened;
    if (!store.get(test_key(1)).ok()) return 2;
    if (store.findings(test_key(1).key()).status().code() != ErrorCode::NOT_FOUND) return 3;
    if (!store.stats().ok() || store.stats()->plans != 1) return 4;
    const auto report = store.verify_all();
    return report.ok() && report->damage.empty() ? 0 : 5;
  });
  chmod(directory.c_str(), 0700);
  assert_int_equal(result, 0);
  // Who may write makes the table.
  TestStore test(directory);
  for (const auto& file : std::filesystem::directory_iterator(directory)) chmod(file.path().c_str(), 0600);
  test.open();
  Findings findings;
  findings.reason = "none";
  assert_ok(wait_for([&](Store::Done done) { test->put_findings(test_key(1).key(), findings, {}, done); }));
  assert_text_equal(test->findings(test_key(1).key())->reason, "none");
}

void where_nothing_can_be_made_everything_misses(void**) {
  const std::string parent = temp_dir();
  assert_int_equal(chmod(parent.c_str(), 0555), 0);
  const int result = in_child([&] {
    become_nobody();
    TestStore test(parent + "/cache");
    auto opened = Store::open(test.options);
    if (!opened.ok() || !(*opened)->read_only()) return 1;
    if ((*opened)->get(test_key(1)).status().code() != ErrorCode::NOT_FOUND) return 2;
    if ((*opened)->put_and_wait(test_put(1, "")).status().code() != ErrorCode::PERMISSION) return 3;
    return (*opened)->stats().ok() && (*opened)->list({}).ok() && (*opened)->verify_all().ok() ? 0 : 4;
  });
  chmod(parent.c_str(), 0700);
  assert_int_equal(result, 0);
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

void too_many_open_files_is_a_clear_error(void**) {
  const std::string directory = temp_dir();
  const int result = in_child([&] {
    const rlimit few = {3, 3};
    setrlimit(RLIMIT_NOFILE, &few);
    TestStore test(directory);
    const Status status = Store::open(test.options).status();
    return status.code() == ErrorCode::LIMIT && status.message().find("ulimit -n") != std::string::npos ? 0
                                                                                                        : 1;
  });
  assert_int_equal(result, 0);
}

void a_small_address_space_gets_a_smaller_map(void**) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip_test("sanitizers need the address space for themselves");
#endif
  const std::string directory = temp_dir();
  const int result = in_child([&] {
    const rlimit space = {uint64_t{2} << 30, uint64_t{2} << 30};
    setrlimit(RLIMIT_AS, &space);
    TestStore test(directory);
    auto opened = Store::open(test.options);
    if (!opened.ok()) return 1;
    const uint64_t map = (*opened)->stats()->map_bytes;
    if (map > uint64_t{2} << 30 || map < uint64_t{256} << 20) return 2;
    if (!(*opened)->put_and_wait(test_put(1, "plan")).ok()) return 3;
    return (*opened)->get(test_key(1)).ok() ? 0 : 4;
  });
  assert_int_equal(result, 0);
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
      cmocka_unit_test(a_real_write_error_leaves_a_good_store),
      cmocka_unit_test(a_full_disk_evicts),
      cmocka_unit_test(a_read_only_directory_still_answers),
      cmocka_unit_test(a_read_only_store_of_an_earlier_version_is_read),
      cmocka_unit_test(where_nothing_can_be_made_everything_misses),
      cmocka_unit_test(a_second_opener_is_told_who_holds_it),
      cmocka_unit_test(too_many_open_files_is_a_clear_error),
      cmocka_unit_test(a_small_address_space_gets_a_smaller_map),
      cmocka_unit_test(a_file_that_is_no_store_is_set_aside),
      cmocka_unit_test(a_file_cut_short_loses_only_what_was_cut),
      cmocka_unit_test(clock_jumps_break_nothing),
  };
  return cmocka_run_group_tests_name("cache-fault", tests, nullptr, nullptr);
}
