// The store and what is below it: a full disk, no right to write, no descriptors, a directory that vanishes.
#include <fcntl.h>
#include <sys/file.h>
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

constexpr int kSkipped = 77;

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
    if (!Store::open(test.options).ok()) return 8;  // readers share
    // And they keep nobody out who may write: the lock is free.
    const int lock = open((directory + "/" + kLockFile).c_str(), O_RDONLY);
    return flock(lock, LOCK_EX | LOCK_NB) == 0 ? 0 : 9;
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

// The writer cannot be started again for want of descriptors: that is said, reads go on, and so do writes
// later.
void too_few_descriptors_for_a_while_are_survived(void**) {
  const std::string directory = temp_dir();
  const int result = in_child([&] {
    TestStore test(directory);
    test.open();
    if (!test->put_and_wait(test_put(1, "one")).ok()) return 1;
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    const rlimit few = {3, files.rlim_max};
    kill(engine_process(), SIGKILL);
    setrlimit(RLIMIT_NOFILE, &few);
    const Status refused = test->put_and_wait(test_put(2, "two")).status();
    if (refused.code() != ErrorCode::LIMIT || refused.message().find("ulimit -n") == std::string::npos)
      return 2;
    if (!test->get(test_key(1)).ok()) return 3;
    setrlimit(RLIMIT_NOFILE, &files);
    if (!test->put_and_wait(test_put(2, "two")).ok()) return 4;
    return test->stats()->rescues == 0 && test.open().get(test_key(2)).ok() ? 0 : 5;
  });
  assert_int_equal(result, 0);
}

// Whatever is removed: the file alone, its directory, or the directory with its parent.
void what_is_acknowledged_is_in_place(void**) {
  const std::string parent = temp_dir(), directory = parent + "/above/cache";
  TestStore test(directory);
  for (const std::string& gone : {directory + "/" + kStoreFile, directory, parent + "/above"}) {
    test.open();
    assert_ok(test->put_and_wait(test_put(1, "one")));
    std::filesystem::remove_all(gone);
    assert_ok(test->put_and_wait(test_put(2, "two")));
    assert_contains(test.reports->take().at(0), "was removed or replaced");
    test.store.reset();
    assert_text_equal(test.open().get(test_key(2))->plan, "two");
    assert_error(test->get(test_key(1)), ErrorCode::NOT_FOUND);
    test->remove(test_key(2).key());
    assert_ok(test->flush());
  }
  // Another daemon is there by now: this one may not write.
  TestStore other(directory);
  std::filesystem::remove_all(directory);
  other.open();
  assert_error(test->put_and_wait(test_put(3, "three")), ErrorCode::BUSY);
  assert_ok(other->put_and_wait(test_put(3, "three")));
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

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_real_write_error_leaves_a_good_store),
      cmocka_unit_test(a_full_disk_evicts),
      cmocka_unit_test(a_read_only_directory_still_answers),
      cmocka_unit_test(a_read_only_store_of_an_earlier_version_is_read),
      cmocka_unit_test(where_nothing_can_be_made_everything_misses),
      cmocka_unit_test(too_many_open_files_is_a_clear_error),
      cmocka_unit_test(too_few_descriptors_for_a_while_are_survived),
      cmocka_unit_test(what_is_acknowledged_is_in_place),
      cmocka_unit_test(a_small_address_space_gets_a_smaller_map),
  };
  return cmocka_run_group_tests_name("cache-disk", tests, nullptr, nullptr);
}
