// Every kind of kernel in the emulator against the float reference.
#include "tests/codegen/kernel_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

void run(const std::vector<EmulatedCase>& cases) {
  const std::vector<std::string> failures = find_failures(cases);
  for (const std::string& failure : failures) print_error("%s\n", failure.c_str());
  assert_int_equal(failures.size(), 0);
}

void rows_are_right(void**) { run(row_cases()); }
void products_are_right(void**) { run(product_cases()); }
void movements_are_right(void**) { run(movement_cases()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(rows_are_right), cmocka_unit_test(products_are_right),
                              cmocka_unit_test(movements_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
