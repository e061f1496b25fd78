// Targets by name and by device.
#include "core/base/target.h"

#include "tests/support/test.h"

using namespace quern;

static void finds_by_name(void**) {
  for (const Target& target : all_targets()) assert_ptr_equal(*find_target(target.name), &target);
  assert_error(find_target("sm_91").status(), ErrorCode::UNSUPPORTED, "sm_90a");
}

static void finds_by_device(void**) {
  assert_text_equal((*target_for_device(9, 0))->name, "sm_90a");
  assert_text_equal((*target_for_device(8, 0))->name, "sm_80");
  assert_text_equal((*target_for_device(8, 7))->name, "sm_86");  // runs on later minor versions
  assert_text_equal((*target_for_device(10, 0))->name, "sm_100a");
  assert_error(target_for_device(7, 5).status(), ErrorCode::UNSUPPORTED, "7.5");
  assert_error(target_for_device(12, 1).status(), ErrorCode::UNSUPPORTED);  // sm_120a runs on 12.0 only
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(finds_by_name), cmocka_unit_test(finds_by_device)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
