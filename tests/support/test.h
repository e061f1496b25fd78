// CMocka for C++, and what tests in every room share. A test file:
//
//   static void adds_two_numbers(void**) { assert_int_equal(1 + 1, 2); }
//   int main() {
//     const CMUnitTest tests[] = {cmocka_unit_test(adds_two_numbers)};
//     return cmocka_run_group_tests(tests, nullptr, nullptr);
//   }
//
// A failed assertion leaves the test by longjmp, so destructors do not run: keep what must be undone out of
// locals (temp_dir() cleans up at exit for that reason).
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/status.h"

extern "C" {
#include <cmocka.h>
}
// Names too common to be macros; skip_test() and fail_test() stand in for these two.
#undef skip
#undef fail
#undef mock

namespace quern {

// The root of the source tree: $QUERN_SOURCE_ROOT, else where the tests were built from.
std::filesystem::path test_root();
// A new empty directory, removed when the process that made it exits. Its path is short enough for a socket's
// address.
std::filesystem::path temp_dir();
// The whole file as bytes; fails the test if it cannot be read.
std::string read_test_file(const std::filesystem::path& path);
void write_test_file(const std::filesystem::path& path, std::string_view bytes);

// Ends the running test as skipped or failed, printing why.
void skip_test(std::string_view reason, const char* file = __builtin_FILE(), int line = __builtin_LINE());
void fail_test(std::string_view reason, const char* file = __builtin_FILE(), int line = __builtin_LINE());

void assert_ok(const Status& status, const char* file = __builtin_FILE(), int line = __builtin_LINE());
// `text` must occur in the message.
void assert_error(const Status& status, ErrorCode code, std::string_view text = "",
                  const char* file = __builtin_FILE(), int line = __builtin_LINE());
void assert_text_equal(std::string_view a, std::string_view b, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
void assert_contains(std::string_view text, std::string_view part, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE());

template <class T>
void assert_ok(const Result<T>& result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  assert_ok(result.ok() ? Status() : result.status(), file, line);
}
template <class T>
void assert_error(const Result<T>& result, ErrorCode code, std::string_view text = "",
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  assert_error(result.ok() ? Status() : result.status(), code, text, file, line);
}

}  // namespace quern
