// The log: one line an event, whatever is in it.
#include "daemon/log.h"

#include <algorithm>

#include "tests/support/test.h"

namespace quern {

namespace {

void an_event_is_one_line(void**) {
  const std::string path = temp_dir() / "log";
  Log log;
  assert_ok(log.open_file(path));
  log.info("event=a reason=\"two\nlines \x01 and \x7f\"");
  log.debug("event=b");
  log.set_level(LogLevel::debug);
  log.debug("event=c");
  log.error(std::string(10000, 'x'));
  const std::string text = read_test_file(path);
  assert_int_equal(std::count(text.begin(), text.end(), '\n'), 3);
  assert_contains(text, "Z info event=a reason=\"two\\nlines \\x01 and \\x7f\"\n");
  assert_contains(text, "Z debug event=c\n");
  assert_contains(text, "xxx...\n");
  assert_true(text.find("event=b") == std::string::npos);
  assert_true(text.size() < 5000);
}

void a_bad_file_changes_nothing(void**) {
  const std::string path = temp_dir() / "log";
  Log log;
  assert_ok(log.open_file(path));
  assert_error(log.open_file("/nowhere/log"), ErrorCode::IO, "/nowhere/log");
  log.info("event=still");
  assert_contains(read_test_file(path), "event=still");
}

void a_cause_fills_no_disk(void**) {
  const std::string path = temp_dir() / "log";
  Log log;
  assert_ok(log.open_file(path));
  for (uint64_t i = 0; i < 10 * Log::kMostLines; ++i)
    log.warning("event=refused client=" + std::to_string(i));
  log.info("event=other");
  for (int i = 0; i < 10000; ++i) log.info("cause" + std::to_string(i));  // however many names there are
  const std::string text = read_test_file(path);
  assert_contains(text, "event=refused client=99\n");
  assert_contains(text, "event=other");
  assert_true(static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) < 4 * Log::kMostLines + 300);
}

void lines_can_be_json(void**) {
  const std::string path = temp_dir() / "log";
  Log log;
  assert_ok(log.open_file(path));
  log.set_json(true);
  log.info("event=a count=3 reason=\"two\nlines, \"quoted\" \\ and = signs\" last=x");
  log.warning("no fields = here");
  log.error("event=b empty=\"\" open=\"left");
  const std::string text = read_test_file(path);
  assert_contains(
      text,
      "Z\",\"level\":\"info\",\"event\":\"a\",\"count\":\"3\",\"reason\":\"two\\u000alines, \\\"quoted");
  assert_contains(text, "\\\\ and = signs\",\"last\":\"x\"}\n");
  assert_contains(text, ",\"message\":\"no fields = here\"}\n");
  assert_contains(text, ",\"event\":\"b\",\"empty\":\"\",\"open\":\"left\"}\n");
}

void a_full_file_makes_room(void**) {
  const std::string path = temp_dir() / "log";
  Log log;
  log.set_limit(1000);
  assert_ok(log.open_file(path));
  for (int i = 0; i < 50; ++i) log.info("cause" + std::to_string(i) + " " + std::string(60, 'x'));
  const std::string now = read_test_file(path), before = read_test_file(path + ".1");
  assert_true(now.size() <= 1000 && before.size() <= 1000 && before.size() > 800);
  assert_contains(now, "cause49 ");
  assert_false(std::filesystem::exists(path + ".2"));
  // What was there before counts as well.
  Log next;
  next.set_limit(now.size() + 10);
  assert_ok(next.open_file(path));
  next.info("event=first");
  assert_contains(read_test_file(path), "event=first");
  assert_text_equal(read_test_file(path + ".1"), now);
}

void a_planted_link_is_not_followed(void**) {
  const auto dir = temp_dir();
  write_test_file(dir / "victim", "precious");
  std::filesystem::create_symlink(dir / "victim", dir / "log");
  Log log;
  assert_error(log.open_file(dir / "log"), ErrorCode::IO, "cannot open the log");
  assert_text_equal(read_test_file(dir / "victim"), "precious");
}

void levels_have_names(void**) {
  for (LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error})
    assert_true(parse_log_level(log_level_name(level)) == level);
  assert_false(parse_log_level("loud").has_value());
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_event_is_one_line),  cmocka_unit_test(a_bad_file_changes_nothing),
      cmocka_unit_test(a_cause_fills_no_disk), cmocka_unit_test(a_planted_link_is_not_followed),
      cmocka_unit_test(lines_can_be_json),     cmocka_unit_test(a_full_file_makes_room),
      cmocka_unit_test(levels_have_names),
  };
  return cmocka_run_group_tests_name("log", tests, nullptr, nullptr);
}
