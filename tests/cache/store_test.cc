// The store's promises while nothing goes wrong: round trips, better plans, the front index, timings,
// quarantine, meta.
#include "cache/store.h"

#include <thread>

#include "tests/cache/fixture.h"

namespace quern {

namespace {

PutOutcome put(Store& store, PlanPut what) {
  auto outcome = store.put_and_wait(std::move(what));
  assert_ok(outcome);
  return *outcome;
}

void a_plan_comes_back_also_after_reopening(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  assert_error(store.get(test_key(1)), ErrorCode::NOT_FOUND);
  const std::string plan = test_bytes(1, 100000);
  const PutOutcome outcome = put(store, test_put(1, plan));
  assert_true(outcome.published && outcome.generation == 1 && outcome.key == test_key(1).key());
  for (int round = 0; round < 2; ++round) {
    const auto got = test->get(test_key(1));
    assert_ok(got);
    assert_true(got->plan == plan && got->material == test_key(1).bytes() && got->generation == 1);
    assert_true(got->tier == Tier::baseline && got->key == test_key(1).key());
    assert_true(test->peek(test_key(1).key())->plan == plan);
    test.open();
  }
  assert_error(test->get(test_key(2)), ErrorCode::NOT_FOUND);
  assert_int_equal(test.reports->take().size(), 0);
}

void only_a_better_plan_replaces(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  assert_int_equal(put(store, test_put(1, "baseline")).generation, 1);
  assert_int_equal(put(store, test_put(1, "modelled", Tier::modelled)).generation, 2);

  const PutOutcome lower = put(store, test_put(1, "again"));
  assert_true(!lower.published && lower.generation == 2 && lower.tier == Tier::modelled);
  const PutOutcome equal = put(store, test_put(1, "again", Tier::modelled));
  assert_true(!equal.published && equal.generation == 2);
  assert_text_equal(store.get(test_key(1))->plan, "modelled");

  PlanPut forced = test_put(1, "forced");
  forced.force = true;
  assert_int_equal(put(store, std::move(forced)).generation, 3);
  assert_text_equal(store.get(test_key(1))->plan, "forced");
  assert_true(store.get(test_key(1))->tier == Tier::baseline);
}

void an_equal_tier_is_decided_by_the_timing_on_one_device(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  const auto timed = [](const char* plan, const char* device, double ns, std::vector<Timing> others = {}) {
    PlanPut what = test_put(1, plan, Tier::measured);
    what.device = device;
    what.program = Hash128{static_cast<uint64_t>(plan[0]), 0};
    what.timings = std::move(others);
    what.timings.push_back(test_timing(device, ns, static_cast<uint64_t>(plan[0])));
    return what;
  };
  assert_true(put(store, timed("a", "H200", 100)).published);
  assert_int_equal(store.tuning(test_key(1).key()).program.high, 'a');
  assert_false(put(store, timed("b", "H200", 100)).published);
  assert_false(put(store, timed("b", "H200", 0)).published);
  assert_false(put(store, test_put(1, "b", Tier::measured)).published);
  assert_true(put(store, timed("c", "H200", 99)).published);
  assert_text_equal(store.get(test_key(1))->plan, "c");
  // Timed again in the same session, what stands may have become faster; the timing counts all the same.
  assert_false(put(store, timed("d", "H200", 98, {test_timing("H200", 97, 'c')})).published);
  // On another device what stands has no timing, or is refused.
  assert_true(put(store, timed("e", "A100", 500)).published);
  assert_false(put(store, timed("f", "B200", 50, {test_timing("B200", 40, 'e')})).published);
  assert_true(put(store, timed("g", "C200", 50, {test_timing("C200", 0, 'e')})).published);
  const Tuning tuning = store.tuning(test_key(1).key());
  assert_int_equal(tuning.program.high, 'g');
  assert_int_equal(tuning.generation, 4);
}

void timings_are_of_programs_and_outlive_generations(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  const Hash128 key = test_key(1).key();
  const auto add = [&](std::vector<Timing> timings) {
    return wait_for([&](Store::Done done) { store.put_timings(key, timings, done); });
  };
  assert_error(add({test_timing("H200", 10)}), ErrorCode::NOT_FOUND);
  put(store, test_put(1, "a"));
  Timing refused = test_timing("H200, driver 2", 0, 2);
  refused.refusal = "wrong in one element";
  assert_ok(add({test_timing("H200, driver 1", 10), test_timing("H200, driver 2", 11), refused}));
  assert_ok(add({test_timing("H200, driver 2", 12)}));
  put(store, test_put(1, "b", Tier::modelled));
  const auto timings = store.timings(key);
  assert_ok(timings);
  assert_int_equal(timings->size(), 3);
  double sum = 0;
  for (const Timing& timing : *timings) sum += timing.cold_ns;
  assert_true(sum == 22);
  // Only those of this key.
  put(store, test_put(2, "a"));
  assert_int_equal(store.timings(test_key(2).key())->size(), 0);
}

void programs_go_with_their_plan(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  const Hash128 key = test_key(1).key();
  Findings findings;
  findings.timeouts = 2;
  const auto add = [&](std::optional<std::string> programs) {
    return wait_for([&](Store::Done done) { store.put_findings(key, findings, programs, done); });
  };
  assert_error(add("list"), ErrorCode::NOT_FOUND);
  PlanPut what = test_put(1, "a");
  what.programs = "first";
  what.program = Hash128{7, 7};
  what.timings = {test_timing("H200", 10)};
  put(store, std::move(what));
  assert_text_equal(*store.programs(key), "first");
  assert_ok(add({}));
  assert_text_equal(*store.programs(key), "first");
  assert_int_equal(store.findings(key)->timeouts, 2);
  assert_int_equal(store.tuning(key).program.low, 7);  // what is known beside it stays
  assert_ok(add("second"));
  assert_text_equal(*store.programs(key), "second");
  assert_ok(wait_for([&](Store::Done done) { store.remove(key, done); }));
  assert_error(store.programs(key), ErrorCode::NOT_FOUND);
  assert_int_equal(store.tuning(key).timeouts, 0);
  assert_int_equal(store.timings(key)->size(), 0);
  assert_int_equal(store.verify_all()->damage.size(), 0);
}

void the_front_index_leads_to_the_plan(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  const auto request = [](int i) { return request_key("request " + std::to_string(i), "nvrtc"); };
  PlanPut what = test_put(1, "plan");
  what.request = request(1);
  assert_error(store.find_request(request(1)), ErrorCode::NOT_FOUND);
  put(store, std::move(what));
  assert_text_equal(get_by_request(store, request(1))->plan, "plan");

  // A request enters also with a plan that is outdone.
  what = test_put(1, "other");
  what.request = request(2);
  assert_false(put(store, std::move(what)).published);
  assert_text_equal(get_by_request(store, request(2))->plan, "plan");

  const auto add = [&](KeyMaterial of, KeyMaterial plan) {
    return wait_for([&](Store::Done done) { store.put_request(of, plan, done); });
  };
  assert_ok(add(request(3), test_key(1)));
  assert_text_equal(get_by_request(store, request(3))->plan, "plan");
  assert_error(add(request(4), test_key(2)), ErrorCode::NOT_FOUND);

  // One that comes to mean another plan leaves the first one's list.
  put(store, test_put(2, "second"));
  assert_ok(add(request(3), test_key(2)));
  assert_text_equal(get_by_request(store, request(3))->plan, "second");
  assert_ok(wait_for([&](Store::Done done) { store.remove(test_key(1).key(), done); }));
  assert_error(store.find_request(request(1)), ErrorCode::NOT_FOUND);
  assert_text_equal(get_by_request(store, request(3))->plan, "second");
  assert_int_equal(store.stats()->requests, 1);
  assert_int_equal(store.verify_all()->damage.size(), 0);
}

PlanPut requested(int number, std::string plan) {
  PlanPut what = test_put(number, std::move(plan));
  what.request = request_key("request " + std::to_string(number), "nvrtc");
  what.force = true;
  return what;
}

void what_was_asked_for_lately_is_read_once_until_it_changes(void**) {
  TestStore test(temp_dir());
  test.options.recent_bytes = 1 << 20;
  Store& store = test.open();
  for (int i = 0; i < 20; ++i) put(store, requested(i, test_bytes(i, 100000)));
  put(store, requested(20, test_bytes(20, 300000)));
  const auto find = [&](int i) { return store.find_request(*requested(i, "").request); };
  const auto recent = [&](int i) { return store.find_recent(*requested(i, "").request); };
  assert_true(!recent(0));
  const auto first = find(0), second = find(1), large = find(20);
  assert_true(recent(0) == *first && !recent(2));
  assert_int_equal(store.stats()->hits, 4);
  assert_true(first.ok() && *find(0) == *first && *find(1) == *second);
  assert_true(*find(20) != *large);  // one plan does not push out all the others

  assert_int_equal(put(store, requested(0, "better")).generation, 2);
  assert_true(!recent(0));
  assert_text_equal((*find(0))->plan, "better");
  assert_true(*find(1) == *second && (*first)->plan == test_bytes(0, 100000));
  assert_ok(wait_for([&](Store::Done done) { store.remove((*second)->key, done); }));
  assert_error(find(1), ErrorCode::NOT_FOUND);

  // What was used longest ago goes.
  const auto kept = *find(2);
  for (int i = 3; i < 20; ++i) {
    assert_ok(find(i));
    assert_true(*find(2) == kept);
  }
  const auto gone = *find(3);
  for (int i = 4; i < 20; ++i) assert_ok(find(i));
  assert_true(*find(3) != gone && (*find(3))->plan == gone->plan);
  assert_int_equal(store.stats()->misses, 1);
}

void nobody_finds_what_was_replaced(void**) {
  TestStore test(temp_dir());
  test.options.recent_bytes = 1 << 20;
  Store& store = test.open();
  put(store, requested(1, "plan"));
  std::atomic<uint64_t> acknowledged = 1;
  std::atomic<bool> stale = false, done = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      while (!done) {
        const uint64_t least = acknowledged;
        const auto found = store.find_request(*requested(1, "").request);
        if (!found.ok() || (*found)->generation < least) stale = true;
        const uint64_t then = acknowledged;
        const auto recent = store.find_recent(*requested(1, "").request);
        if (recent && recent->generation < then) stale = true;
      }
    });
  for (int i = 0; i < 200; ++i) acknowledged = put(store, requested(1, "plan")).generation;
  done = true;
  for (std::thread& reader : readers) reader.join();
  assert_false(stale);
  assert_int_equal(acknowledged, 201);
}

void a_plan_has_only_so_many_requests(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  put(store, test_put(1, "plan"));
  for (int i = 0; i < 100; ++i) store.put_request(request_key(std::to_string(i), "nvrtc"), test_key(1));
  assert_ok(store.flush());
  assert_int_equal(store.stats()->requests, 16);
  assert_ok(store.find_request(request_key("99", "nvrtc")));
  assert_int_equal(store.verify_all()->damage.size(), 0);
}

// Two byte strings of one hash, after `prefix_size` bytes that are the same for both. XXH3 multiplies the
// halves of each 8-byte word, mixed with a known secret: where the lower half cancels the secret, the upper
// half only counts as a sum, which two words with the same accumulator can share in different ways.
std::string with_hash_of_its_twin(size_t prefix_size, uint32_t upper) {
  std::string bytes(400 - prefix_size, 'x');
  const uint32_t words[2][2] = {{0x2c81017c, upper}, {0xe96dd4de, 1000 - upper}};
  for (int stripe : {1, 2})
    bytes.replace(64 * stripe - prefix_size, 8, reinterpret_cast<const char*>(words[stripe - 1]), 8);
  return bytes;
}

void equal_hashes_are_not_taken_for_equal_keys(void**) {
  const auto twin = [](const char* tag, uint32_t upper) {
    KeyMaterial material;
    const size_t prefix = material.bytes().size() + 4 + std::string_view(tag).size() + 4;
    return material.add(tag, with_hash_of_its_twin(prefix, upper));
  };
  const KeyMaterial one = twin("graph", 1), two = twin("graph", 2);
  assert_true(one.key() == two.key() && one.bytes() != two.bytes());
  TestStore test(temp_dir());
  Store& store = test.open();
  PlanPut first;
  first.material = one;
  first.plan = "one";
  first.request = twin("request", 1);
  assert_true(first.request->key() == twin("request", 2).key());
  assert_true(put(store, first).published);

  assert_error(store.get(two), ErrorCode::NOT_FOUND, "another key material");
  assert_error(store.find_request(twin("request", 2)), ErrorCode::NOT_FOUND);
  PlanPut second;
  second.material = two;
  second.tier = Tier::measured;
  second.plan = "two";
  second.force = true;
  assert_error(store.put_and_wait(second), ErrorCode::INTERNAL, "two different key materials");
  assert_error(wait_for([&](Store::Done done) { store.put_request(request_key("r", ""), two, done); }),
               ErrorCode::INTERNAL);
  assert_text_equal(store.get(one)->plan, "one");
  assert_text_equal(get_by_request(store, twin("request", 1))->plan, "one");
  assert_int_equal(test.reports->take().size(), 0);
}

void a_generation_never_falls(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  put(store, test_put(1, "a"));
  put(store, test_put(1, "b", Tier::modelled));
  assert_ok(wait_for([&](Store::Done done) { store.remove(test_key(1).key(), done); }));
  assert_error(wait_for([&](Store::Done done) { store.remove(test_key(1).key(), done); }),
               ErrorCode::NOT_FOUND);
  assert_error(store.get(test_key(1)), ErrorCode::NOT_FOUND);
  assert_int_equal(put(test.open(), test_put(1, "c")).generation, 3);
}

Findings test_findings(const std::string& text) {
  return {99, "", "report " + text, "mugraph " + text, "schedule " + text, "cuda " + text, "state " + text};
}

void findings_belong_to_a_plan_and_its_generation(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  const Hash128 key = test_key(1).key();
  const auto put_reason = [&] {
    Findings none;
    none.reason = "nothing could be emitted";
    none.state = "piece 0";
    return wait_for([&](Store::Done done) { store.put_findings(key, none, {}, done); });
  };
  assert_error(put_reason(), ErrorCode::NOT_FOUND);
  assert_ok(store.put_and_wait(test_put(1, "plan")));
  assert_error(store.findings(key), ErrorCode::NOT_FOUND);
  assert_ok(put_reason());
  assert_int_equal(store.findings(key)->generation, 0);
  assert_text_equal(store.findings(key)->reason, "nothing could be emitted");
  // A better plan brings its own; a later search that is outdone leaves them but for where it stands.
  PlanPut better = test_put(1, "better", Tier::modelled);
  better.findings = test_findings("a");
  assert_int_equal(store.put_and_wait(better)->generation, 2);
  better.findings = test_findings("b");
  assert_false(store.put_and_wait(better)->published);
  assert_ok(put_reason());
  const auto found = test.open().findings(key);
  assert_ok(found);
  assert_int_equal(found->generation, 2);
  assert_text_equal(found->reason, "");
  assert_text_equal(found->cuda, "cuda a");
  assert_text_equal(found->mugraph, "mugraph a");
  assert_text_equal(found->state, "piece 0");
  assert_int_equal(test->verify_all()->damage.size(), 0);
  assert_ok(wait_for([&](Store::Done done) { test->remove(key, done); }));
  assert_error(test->findings(key), ErrorCode::NOT_FOUND);
}

void quarantine_counts_and_ends(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  const Hash128 key = test_key(1).key();
  assert_error(store.find_quarantine(key), ErrorCode::NOT_FOUND);
  store.quarantine(key, "signal 11");
  store.quarantine(key, "signal 9");
  assert_ok(store.flush());
  const auto found = test.open().find_quarantine(key);
  assert_ok(found);
  assert_int_equal(found->count, 2);
  assert_text_equal(found->reason, "signal 9");
  assert_int_equal(test->stats()->quarantined, 1);
  assert_ok(wait_for([&](Store::Done done) { test->release(key, done); }));
  assert_error(test->find_quarantine(key), ErrorCode::NOT_FOUND);
}

void meta_values_stay(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  assert_error(store.meta(kMetaToolchain), ErrorCode::NOT_FOUND);
  assert_ok(wait_for([&](Store::Done done) { store.set_meta(kMetaToolchain, "nvrtc 13.0", done); }));
  assert_text_equal(*test.open().meta(kMetaToolchain), "nvrtc 13.0");
  assert_error(wait_for([&](Store::Done done) { test->set_meta("", "", done); }),
               ErrorCode::INVALID_ARGUMENT);
  assert_error(wait_for([&](Store::Done done) { test->set_meta(std::string(300, 'n'), "", done); }),
               ErrorCode::INVALID_ARGUMENT);
}

void list_and_stats_see_everything(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  for (int i = 0; i < 300; ++i) store.put(test_put(i, test_bytes(i, 500)), {});
  assert_ok(store.flush());
  std::vector<Hash128> keys;
  assert_ok(store.list([&](const StoredPlan& plan) {
    keys.push_back(plan.key);
    return true;
  }));
  assert_int_equal(keys.size(), 300);
  assert_true(std::is_sorted(keys.begin(), keys.end()));
  int seen = 0;
  assert_ok(store.list([&](const StoredPlan&) { return ++seen < 7; }));
  assert_int_equal(seen, 7);
  std::vector<Hash128> rest;
  assert_ok(store.list(
      [&](const StoredPlan& plan) {
        rest.push_back(plan.key);
        return true;
      },
      &keys[99]));
  assert_true(rest == std::vector<Hash128>(keys.begin() + 100, keys.end()));

  store.get(test_key(1)).ok();
  store.get(test_key(1000)).ok();
  const auto stats = store.stats();
  assert_ok(stats);
  assert_true(stats->plans == 300 && stats->published == 300 && stats->hits == 1 && stats->misses == 1);
  assert_true(stats->live_bytes >= 300 * 500 && stats->file_bytes >= stats->live_bytes);
  assert_true(stats->commits < 300);  // in groups
  const auto report = store.verify_all();
  assert_ok(report);
  assert_int_equal(report->records, 300 + 300 + 1);  // plans, usage, counters
}

void readers_and_a_writer_do_not_disturb_each_other(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  constexpr int kKeys = 8, kRounds = 60, kReaders = 4;
  // The plan of round r is 8 bytes of r and bytes that follow from it.
  const auto plan_of = [](uint64_t round, int key) {
    return std::string(reinterpret_cast<const char*>(&round), 8) +
           test_bytes(round * 100 + key, 3000 + round * 37);
  };
  for (int key = 0; key < kKeys; ++key) put(store, test_put(key, plan_of(0, key)));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, reads = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i)
    readers.emplace_back([&] {
      uint64_t last[kKeys] = {};
      for (int n = 0; !stop; ++n) {
        const int key = n % kKeys;
        const auto got = store.get(test_key(key));
        uint64_t round = 0;
        if (got.ok()) got->plan.copy(reinterpret_cast<char*>(&round), 8);
        if (!got.ok() || got->generation < last[key] || got->generation != round + 1 ||
            got->plan != plan_of(round, key))
          ++wrong;
        else
          last[key] = got->generation;
        ++reads;
      }
    });
  int lost = 0;
  for (uint64_t round = 1; round <= kRounds; ++round)
    for (int key = 0; key < kKeys; ++key) {
      PlanPut what = test_put(key, plan_of(round, key));
      what.force = true;
      const auto outcome = store.put_and_wait(std::move(what));
      if (!outcome.ok() || outcome->generation != round + 1) ++lost;
    }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  assert_int_equal(wrong, 0);
  assert_int_equal(lost, 0);
  assert_true(reads > kKeys);
  assert_int_equal(test.reports->take().size(), 0);
}

void writes_come_back_in_order_from_many_threads(void**) {
  TestStore test(temp_dir());
  Store& store = test.open();
  constexpr int kThreads = 4, kEach = 100;
  std::atomic<int> answered = 0, failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        store.put(test_put(t * kEach + i, "plan"), [&](Result<PutOutcome> outcome) {
          if (!outcome.ok()) ++failed;
          ++answered;
        });
    });
  for (std::thread& thread : threads) thread.join();
  assert_ok(store.flush());
  assert_int_equal(answered, kThreads * kEach);
  assert_int_equal(failed, 0);
  assert_int_equal(store.stats()->plans, kThreads * kEach);
}

void closing_commits_what_is_queued(void**) {
  TestStore test(temp_dir());
  std::atomic<int> answered = 0;
  test.open();
  for (int i = 0; i < 50; ++i)
    test->put(test_put(i, "plan"), [&](Result<PutOutcome> outcome) { answered += outcome.ok(); });
  test.open();
  assert_int_equal(answered, 50);
  assert_int_equal(test->stats()->plans, 50);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_plan_comes_back_also_after_reopening),
      cmocka_unit_test(only_a_better_plan_replaces),
      cmocka_unit_test(an_equal_tier_is_decided_by_the_timing_on_one_device),
      cmocka_unit_test(timings_are_of_programs_and_outlive_generations),
      cmocka_unit_test(programs_go_with_their_plan),
      cmocka_unit_test(the_front_index_leads_to_the_plan),
      cmocka_unit_test(what_was_asked_for_lately_is_read_once_until_it_changes),
      cmocka_unit_test(nobody_finds_what_was_replaced),
      cmocka_unit_test(a_plan_has_only_so_many_requests),
      cmocka_unit_test(equal_hashes_are_not_taken_for_equal_keys),
      cmocka_unit_test(a_generation_never_falls),
      cmocka_unit_test(findings_belong_to_a_plan_and_its_generation),
      cmocka_unit_test(quarantine_counts_and_ends),
      cmocka_unit_test(meta_values_stay),
      cmocka_unit_test(list_and_stats_see_everything),
      cmocka_unit_test(readers_and_a_writer_do_not_disturb_each_other),
      cmocka_unit_test(writes_come_back_in_order_from_many_threads),
      cmocka_unit_test(closing_commits_what_is_queued),
  };
  return cmocka_run_group_tests_name("cache-store", tests, nullptr, nullptr);
}
