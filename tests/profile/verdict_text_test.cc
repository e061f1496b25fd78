// What a measuring writes into certificates, and its lines for people.
#include "core/profile/verdict_text.h"

#include "tests/support/test.h"

namespace {

using namespace quern;

Bench::Check check_of(double error) {
  Bench::Check check;
  check.error = error;
  check.largest = 0.5;
  check.inputs = "random";
  check.compared = 90;
  check.elements = 100;
  return check;
}

void a_certificate_has_the_last_measuring_only(void**) {
  Plan plan;
  plan.certificate = "method: field\nmeasured: 9.00 us cold\nmeasured device: another\n";
  const Bench::Check check = check_of(1e-4);
  Bench::Time time;
  time.cold = {3, 1, 2};
  time.hot = {1, 1, 4};
  const Plan measured = measured_plan({plan, check, time}, "a GPU", 8);
  assert_true(measured.tier == Tier::measured);
  assert_text_equal(measured.certificate,
                    "method: field\nmeasured: 2.00 us cold, 1.00 us hot, 3 rounds\nmeasured device: a GPU\n"
                    "measured baseline: 8.00 us cold\nmeasured error: 1.00e-04, at most 0.50 of an element's "
                    "bound\nmeasured inputs: random\nmeasured elements: 90 of 100 compared\n");
  assert_true(measured_plan({plan, check, time}, "a GPU", 0).certificate.find("baseline") ==
              std::string::npos);
}

void a_line_says_what_became_of_a_program(void**) {
  Program program;
  program.mugraph = "mugraph";
  program.modelled_ns = 2500;
  ProgramTiming timing;
  timing.cold_ns = 3000;
  timing.hot_ns = 2000;
  assert_text_equal(timing_line(program, 3, timing, true, true),
                    "program 3, modelled 2.50 us: 3.00 us cold, 2.00 us hot, the winner\n");
  assert_text_equal(timing_line(program, 3, timing, false, false),
                    "program 3, modelled 2.50 us: not tried\n");
  timing.refusal = "wrong";
  assert_text_equal(timing_line(Program{}, 0, timing, true, false),
                    "baseline, modelled 0.00 us: refused: wrong\n");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_certificate_has_the_last_measuring_only),
                              cmocka_unit_test(a_line_says_what_became_of_a_program)};
  return cmocka_run_group_tests_name("profile-verdict_text", tests, nullptr, nullptr);
}
