// Lines of "name: value": round trip, and what is no such line.
#include "core/base/facts.h"

#include "tests/support/test.h"

using namespace quern;

static void round_trips(void**) {
  const std::string text = print_fact("error bound", "1e-12") + print_fact("reason", "") +
                           print_fact("block 0, order", "a: b; c") + print_fact("x", "two\nlines\ttab");
  assert_text_equal(text, "error bound: 1e-12\nreason: \nblock 0, order: a: b; c\nx: two lines tab\n");
  const auto facts = parse_facts(text);
  assert_ok(facts);
  assert_int_equal(facts->size(), 4);
  std::string again;
  for (const Fact& fact : *facts) again += print_fact(fact.name, fact.value);
  assert_text_equal(again, text);
  assert_text_equal(*find_fact(*facts, "block 0, order"), "a: b; c");
  assert_null(find_fact(*facts, "order"));
  assert_ok(parse_facts(""));
}

static void refuses_other_lines(void**) {
  assert_error(parse_facts("a: b"), ErrorCode::CORRUPT, "line 1: it does not end");
  assert_error(parse_facts("a: b\n\n"), ErrorCode::CORRUPT, "line 2");
  assert_error(parse_facts("a:b\n"), ErrorCode::CORRUPT, "line 1: not a name");
  assert_error(parse_facts("no colon\n"), ErrorCode::CORRUPT, "line 1: not a name");
  assert_error(parse_facts("1: b\n"), ErrorCode::CORRUPT, "begins with a letter");
  assert_error(parse_facts(": b\n"), ErrorCode::CORRUPT, "begins with a letter");
  assert_error(parse_facts("a: b\x01\n"), ErrorCode::CORRUPT, "control");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(round_trips), cmocka_unit_test(refuses_other_lines)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
