// A power cut: of the writes since the last sync any may be on the disk and any may not. Every plan that was
// acknowledged before is there.
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "tests/cache/fixture.h"
#include "tests/cache/recorded_writes.h"

namespace quern {

namespace {

int rounds() {
  const char* text = std::getenv("QUERN_POWER_ROUNDS");
  return text ? std::atoi(text) : 200;
}

struct Acknowledged {
  int key;
  uint32_t version;
  size_t writes;  // how many there were by then
};

std::string plan_of(int key, uint32_t version) {
  return test_bytes(uint64_t(key) << 32 | version, 200 + version * 911 % 20000);
}

struct Recording {
  std::vector<RecordedWrite> writes;
  std::vector<Acknowledged> acknowledged;
};

// Puts, replacements, removals and evictions.
Recording record() {
  Recording recording;
  const std::string directory = temp_dir(), file = directory + "/record";
  setenv("QUERN_STORE_RECORD", file.c_str(), 1);
  TestStore test(directory + "/cache");
  test.options.engine = FAULTY_STORE_BUILT;
  test.options.max_bytes = 1 << 20;
  test.open();
  for (uint32_t n = 1; n <= 150; ++n) {
    const int key = n % 3 == 0 ? static_cast<int>(n % 5) : 1000 + static_cast<int>(n);
    PlanPut put = test_put(key, plan_of(key, n));
    put.force = true;
    put.request = request_key("request " + std::to_string(key), "nvrtc");
    assert_ok(test->put_and_wait(std::move(put)));
    const size_t writes = decode_recorded_writes(read_test_file(file)).size();
    recording.acknowledged.push_back({key, n, writes});
  }
  assert_true(test->stats()->evicted > 10);
  test.store.reset();
  unsetenv("QUERN_STORE_RECORD");
  recording.writes = decode_recorded_writes(read_test_file(file));
  return recording;
}

// The disk after a cut behind so many writes.
std::string disk_after(const std::vector<RecordedWrite>& writes, size_t cut, std::mt19937& random) {
  size_t synced = 0;
  for (size_t i = 0; i < cut; ++i)
    if (writes[i].kind == RecordedWrite::sync) synced = i;
  std::string disk;
  for (size_t i = 0; i < cut; ++i) {
    const RecordedWrite& write = writes[i];
    const bool lost = write.kind == RecordedWrite::write && i > synced && random() % 2;
    if (write.kind == RecordedWrite::sync) continue;
    // A lost write may have made the file longer all the same.
    if (disk.size() < write.at + write.bytes.size()) disk.resize(write.at + write.bytes.size());
    if (!lost) disk.replace(write.at, write.bytes.size(), write.bytes);
  }
  return disk;
}

void acknowledged_plans_survive_a_power_cut(void**) {
  const Recording recording = record();
  assert_true(recording.writes.size() > 400);
  std::mt19937 random(1);
  int checked = 0;
  for (int round = 0; round < rounds(); ++round) {
    const size_t cut = 20 + random() % (recording.writes.size() - 20);
    TestStore test(temp_dir());
    write_test_file(test.options.directory + "/" + kStoreFile, disk_after(recording.writes, cut, random));
    test.open();
    // Eviction may have taken the older ones.
    std::vector<Acknowledged> before;
    for (const Acknowledged& one : recording.acknowledged)
      if (one.writes <= cut) before.push_back(one);
    for (size_t i = before.size() > 20 ? before.size() - 20 : 0; i < before.size(); ++i) {
      const auto got = test->get(test_key(before[i].key));
      assert_ok(got);
      bool known = false;
      for (uint32_t version = before[i].version; version <= 150 && !known; ++version)
        known = got->plan == plan_of(before[i].key, version);
      assert_true(known);
      ++checked;
    }
    const auto report = test->verify_all();
    assert_ok(report);
    assert_int_equal(report->damage.size(), 0);
    assert_int_equal(test.reports->take().size(), 0);
    assert_ok(test->put_and_wait(test_put(1, "new", Tier::measured)));
  }
  print_message("%d power cuts in %zu writes, %d acknowledged plans looked for\n", rounds(),
                recording.writes.size(), checked);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(acknowledged_plans_survive_a_power_cut)};
  return cmocka_run_group_tests_name("cache-power", tests, nullptr, nullptr);
}
