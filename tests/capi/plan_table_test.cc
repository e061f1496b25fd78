// The in-process table: same handle for the same request, better plans, eviction.
#include "capi/plan_table.h"

#include "tests/support/test.h"

namespace quern {

namespace {

PlanRequest request_for(std::string_view graph, std::string_view target = "sm_90a", uint32_t numerics = 0,
                        std::string_view constraints = {}) {
  return {graph, hash128(graph), target, numerics, constraints};
}

PlanRef plan_with(uint64_t key, uint64_t generation) {
  wire::PlanReply reply;
  reply.key = {1, key};
  reply.generation = generation;
  reply.plan = encode_plan(Plan{});
  Result<PlanRef> plan = quern_plan::make(std::move(reply));
  assert_ok(plan);
  return *plan;
}

void the_same_request_gets_the_same_plan(void**) {
  PlanTable table(10);
  assert_false(bool(table.find(request_for("a")).plan));
  const PlanRef plan = plan_with(1, 1);
  assert_ptr_equal(table.put(request_for("a"), plan).plan.get(), plan.get());
  assert_ptr_equal(table.find(request_for("a")).plan.get(), plan.get());
  assert_false(table.find(request_for("a")).fetch);
  assert_false(bool(table.find(request_for("b")).plan));
  assert_false(bool(table.find(request_for("a", "sm_80")).plan));
  assert_false(bool(table.find(request_for("a", "sm_90a", 1)).plan));
  assert_false(bool(table.find(request_for("a", "sm_90a", 0, "franges 4")).plan));
}

void a_hash_is_not_believed(void**) {
  PlanTable table(10);
  table.put(request_for("a"), plan_with(1, 1));
  PlanRequest other = request_for("b");
  other.graph_hash = hash128("a");
  assert_false(bool(table.find(other).plan));
  const PlanRef plan = plan_with(2, 1);
  table.put(other, plan);
  assert_ptr_equal(table.find(other).plan.get(), plan.get());
  assert_false(bool(table.find(request_for("a")).plan));
}

void requests_with_one_key_share_a_plan(void**) {
  PlanTable table(10);
  const PlanRef plan = plan_with(1, 1);
  table.put(request_for("a"), plan);
  assert_ptr_equal(table.put(request_for("renamed"), plan_with(1, 1)).plan.get(), plan.get());
  const PlanRef better = plan_with(1, 2);
  table.put(request_for("renamed"), better);
  assert_ptr_equal(table.find(request_for("a")).plan.get(), better.get());
  // An older answer that was overtaken changes nothing.
  assert_ptr_equal(table.put(request_for("a"), plan_with(1, 1)).plan.get(), better.get());
}

void an_announcement_is_fetched_once(void**) {
  PlanTable table(10);
  const Hash128 key{1, 1};
  assert_false(table.announce(key, 5));
  table.put(request_for("a"), plan_with(1, 1));
  assert_false(table.announce(key, 1));
  assert_true(table.announce(key, 2));
  assert_false(table.announce(key, 2));
  assert_true(table.outdated(key, 1));
  assert_true(table.find(request_for("a")).fetch);
  assert_false(table.find(request_for("a")).fetch);  // the caller above is at it
  table.retry(key);
  assert_true(table.find(request_for("a")).fetch);
  table.put(request_for("a"), plan_with(1, 2));
  assert_false(table.find(request_for("a")).fetch);
  assert_false(table.outdated(key, 2));
  assert_true(table.outdated(key, 1));
}

void the_least_recently_used_goes(void**) {
  PlanTable table(2);
  table.put(request_for("a"), plan_with(1, 1));
  table.put(request_for("b"), plan_with(2, 1));
  assert_true(bool(table.find(request_for("a")).plan));
  const PlanTable::Put put = table.put(request_for("c"), plan_with(3, 1));
  assert_int_equal(put.evicted.size(), 1);
  assert_true((put.evicted[0] == Hash128{1, 2}));
  assert_true(bool(table.find(request_for("a")).plan));
  assert_false(bool(table.find(request_for("b")).plan));
  assert_true(bool(table.find(request_for("c")).plan));
  assert_false(table.announce({1, 2}, 9));
}

void plans_that_are_not_stored_replace_each_other(void**) {
  PlanTable table(2);
  table.put(request_for("a"), plan_with(1, 0));
  const PlanRef second = plan_with(1, 0);
  assert_ptr_equal(table.put(request_for("a"), second).plan.get(), second.get());
}

void a_plan_that_is_expected_is_news_once(void**) {
  PlanTable table(2);
  std::vector<Hash128> evicted;
  for (uint64_t key = 1; key < 4; ++key) table.expect({1, key}, evicted);
  assert_int_equal(evicted.size(), 1);
  assert_true((evicted[0] == Hash128{1, 1}));
  assert_false(table.announce({1, 1}, 1));
  assert_false(table.announce({1, 2}, 0));  // nothing is stored yet
  assert_true(table.announce({1, 2}, 1));
  assert_false(table.announce({1, 2}, 1));
  assert_true(table.give_up({1, 3}));
  assert_false(table.give_up({1, 3}));
  // What is here already is not expected.
  table.put(request_for("a"), plan_with(5, 1));
  table.expect({1, 5}, evicted);
  assert_false(table.give_up({1, 5}));
  table.expect({1, 6}, evicted);
  table.put(request_for("b"), plan_with(6, 1));
  assert_false(table.announce({1, 6}, 1));
}

void damaged_plans_are_refused(void**) {
  wire::PlanReply reply;
  reply.plan = "not a plan";
  assert_error(quern_plan::make(std::move(reply)), ErrorCode::CORRUPT, "the daemon's plan");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_same_request_gets_the_same_plan),
      cmocka_unit_test(a_hash_is_not_believed),
      cmocka_unit_test(requests_with_one_key_share_a_plan),
      cmocka_unit_test(an_announcement_is_fetched_once),
      cmocka_unit_test(the_least_recently_used_goes),
      cmocka_unit_test(plans_that_are_not_stored_replace_each_other),
      cmocka_unit_test(a_plan_that_is_expected_is_news_once),
      cmocka_unit_test(damaged_plans_are_refused),
  };
  return cmocka_run_group_tests_name("plan_table", tests, nullptr, nullptr);
}
