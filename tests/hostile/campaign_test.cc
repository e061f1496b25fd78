// The bounded part of the standing attack: all cases, and random graphs of the hostile kind.
// $QUERN_HOSTILE_FIRST and $QUERN_HOSTILE_COUNT choose other seeds.
#include "tests/hostile/campaign.h"

#include <unistd.h>

#include <algorithm>

#include "tests/hostile/tally.h"

namespace {

using namespace quern;

void cases_are_right(void**) {
  std::vector<HostileCase> cases;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(test_root() / "tests/hostile/cases"))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    auto test = parse_case(read_test_file(file));
    assert_ok(test);
    test->comment = file.stem().string() + ": " + test->comment;
    cases.push_back(std::move(*test));
  }
  assert_true(!cases.empty());
  assert_nothing_found(attack_cases(cases, {}));
}

void random_graphs_are_right(void**) {
  const uint64_t first = from_environment("QUERN_HOSTILE_FIRST", 1),
                 count = from_environment("QUERN_HOSTILE_COUNT", 16);
  const Tally tally = attack_graphs(first, count, {});
  assert_int_equal(tally.count("graphs"), count);
  assert_true(tally.count("programs") >= 4 * count);
  assert_nothing_found(tally);
}

// The attack itself: a program that dies and one that hangs are findings.
void deaths_are_findings(void**) {
  const Outcome died = run_isolated(
      [](Report& report) {
        report.count("steps");
        report.doing("the second step");
        std::abort();
      },
      10);
  assert_int_equal(died.tally.count("steps"), 1);
  assert_contains(died.death, "Aborted");
  assert_contains(died.death, "the second step");
  const Outcome hung = run_isolated(
      [](Report&) {
        for (;;) sleep(1);
      },
      1);
  assert_contains(hung.death, "still running");
  assert_true(run_isolated([](Report&) {}, 10).death.empty());
}

void cases_read_back(void**) {
  const HostileCase test = {
      "what is wrong\nin two lines\n", "sm_80", "masked", 17, "graph g\n", "mugraph m\n", "kernel\n"};
  const std::string text = print_case(test);
  auto back = parse_case(text);
  assert_ok(back);
  assert_text_equal(print_case(*back), text);
  assert_error(parse_case("clas masked\n"), ErrorCode::INVALID_ARGUMENT, "clas masked");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(deaths_are_findings), cmocka_unit_test(cases_read_back),
                              cmocka_unit_test(cases_are_right), cmocka_unit_test(random_graphs_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
