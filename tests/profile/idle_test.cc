// What NVML says of others on a GPU.
#include "core/profile/idle.h"

#include <stdlib.h>

#include "tests/support/test.h"

namespace {

using namespace quern;

std::shared_ptr<const Driver> driver() {
  auto driver = Driver::open();
  assert_ok(driver);
  return *driver;
}

double use_with(const char* use) {
  setenv("FAKE_NVML_USE", use, 1);
  const GpuMonitor monitor(*driver(), 0);
  const std::optional<double> share = monitor.use_by_others(1);
  assert_true(share.has_value());
  return *share;
}

void the_largest_use_counts(void**) {
  assert_true(use_with("") == 0);
  assert_true(use_with("12 70 5") == 0.7);
  assert_true(use_with("12 70 old") == 0.12);  // what was before is not of others only
  assert_true(use_with("no processes") == 0.33);
}

void without_nvml_nothing_is_known(void**) {
  assert_string_equal(GpuMonitor(*driver(), 0).driver_version().c_str(), "580.1.2");
  assert_false(GpuMonitor(*driver(), 5).use_by_others(1).has_value());  // another GPU
  const std::string path = getenv("QUERN_LIBNVML");
  setenv("QUERN_LIBNVML", "/nowhere", 1);
  const GpuMonitor monitor(*driver(), 0);
  setenv("QUERN_LIBNVML", path.c_str(), 1);
  assert_string_equal(monitor.driver_version().c_str(), "");
  assert_false(monitor.use_by_others(1).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_largest_use_counts),
      cmocka_unit_test(without_nvml_nothing_is_known),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
