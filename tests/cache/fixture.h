// What the cache's tests share: a store whose reports are kept, and plans that say what they are.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/database.h"
#include "cache/store.h"
#include "tests/support/test.h"

namespace quern {

// Reports of a store; shared with the store's threads.
class Reports {
 public:
  void add(const std::string& message) {
    std::lock_guard lock(mutex_);
    messages_.push_back(message);
  }
  std::vector<std::string> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

struct TestStore {
  StoreOptions options;
  std::shared_ptr<Reports> reports = std::make_shared<Reports>();
  std::unique_ptr<Store> store;

  explicit TestStore(const std::string& directory) {
    options.directory = directory;
    options.recent_bytes = 0;  // what is read is in the file
    options.report = [reports = reports](const std::string& message) { reports->add(message); };
  }
  // Closes and opens again; fails the test if that fails.
  Store& open() {
    store.reset();
    auto opened = Store::open(options);
    assert_ok(opened);
    store = std::move(*opened);
    return *store;
  }
  Store* operator->() { return store.get(); }
};

inline KeyMaterial test_key(int number) {
  return plan_key("graph number " + std::to_string(number), "sm_90a", 0, "nvrtc 13.0");
}

inline Result<StoredPlan> get_by_request(Store& store, const KeyMaterial& request) {
  auto found = store.find_request(request);
  if (!found) return found.status();
  return **found;
}

// Bytes that follow from `seed`, so that whoever knows it can tell whether all of them came back.
inline std::string test_bytes(uint64_t seed, size_t size) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

inline PlanPut test_put(int number, std::string plan, Tier tier = Tier::baseline) {
  PlanPut put;
  put.material = test_key(number);
  put.tier = tier;
  put.plan = std::move(plan);
  return put;
}

inline Timing test_timing(const std::string& device, double cold_ns, uint64_t program = 0) {
  Timing timing;
  timing.device = device;
  timing.program = {program, 0};
  timing.cold_ns = cold_ns;
  timing.samples = 100;
  return timing;
}

// Runs `body` in a child process, which may give up rights and limits for good; the child's exit status.
template <class Body>
inline int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// The one quern-store that a process has started; 0 when there is none.
inline pid_t engine_process(pid_t of = getpid()) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string name, state;
    pid_t number = 0, parent = 0;
    if (stat >> number >> name >> state >> parent && parent == of && name == "(quern-store)" && state != "Z")
      return number;
  }
  return 0;
}

// Waits for a write that answers with a Status.
template <class Start>
Status wait_for(Start start) {
  std::atomic<bool> answered = false;
  Status answer;
  start([&](Status status) {
    answer = std::move(status);
    answered = true;
    answered.notify_one();
  });
  answered.wait(false);
  return answer;
}

// Changes the stored bytes of a record behind the back of any store; the store must be closed.
template <class Change>
void change_record(const std::string& directory, Table table, std::string_view key, Change change) {
  auto database = Database::open({directory + "/" + kStoreFile, uint64_t{1} << 30, false, {}, {}, {}});
  assert_ok(database);
  auto txn = Txn::begin(**database, Txn::Mode::write);
  assert_ok(txn);
  auto found = txn->get(table, key);
  assert_ok(found);
  std::string bytes(*found);
  change(bytes);
  assert_ok(txn->put(table, key, bytes));
  assert_ok(txn->commit());
}

}  // namespace quern
