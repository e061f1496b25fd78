#include "tests/support/test.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace quern {

namespace {

// Removes the directories at exit, in the process that made them: a forked child leaves its parent's alone.
struct TempDirs {
  struct Entry {
    pid_t owner;
    std::filesystem::path path;
  };
  std::vector<Entry> entries;
  ~TempDirs() {
    std::error_code ignored;
    for (const Entry& entry : entries)
      if (entry.owner == getpid()) std::filesystem::remove_all(entry.path, ignored);
  }
};

}  // namespace

std::filesystem::path test_root() {
  const char* root = getenv("QUERN_SOURCE_ROOT");
  return root ? root : QUERN_BUILT_FROM;
}

std::filesystem::path temp_dir() {
  static TempDirs made;
  std::string name = std::filesystem::temp_directory_path() / "quern-XXXXXX";
  if (!mkdtemp(name.data())) fail_test("cannot make a temporary directory " + name);
  made.entries.push_back({getpid(), name});
  return name;
}

std::string read_test_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_test("cannot read " + path.string());
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void write_test_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) fail_test("cannot write " + path.string());
}

void skip_test(std::string_view reason, const char* file, int line) {
  print_message("skipped because %.*s\n", static_cast<int>(reason.size()), reason.data());
  _skip(file, line);
}

void fail_test(std::string_view reason, const char* file, int line) {
  print_error("%.*s\n", static_cast<int>(reason.size()), reason.data());
  _fail(file, line);
}

void assert_ok(const Status& status, const char* file, int line) {
  if (!status.ok()) fail_test(std::string(error_name(status.code())) + ": " + status.message(), file, line);
}

void assert_error(const Status& status, ErrorCode code, std::string_view text, const char* file, int line) {
  if (status.code() != code)
    fail_test(std::string("expected ") + error_name(code) + ", got " + error_name(status.code()) + ": " +
                  status.message(),
              file, line);
  assert_contains(status.message(), text, file, line);
}

void assert_text_equal(std::string_view a, std::string_view b, const char* file, int line) {
  if (a != b)
    fail_test("texts differ:\n--- one\n" + std::string(a) + "\n--- other\n" + std::string(b), file, line);
}

void assert_contains(std::string_view text, std::string_view part, const char* file, int line) {
  if (text.find(part) == std::string_view::npos)
    fail_test("\"" + std::string(part) + "\" does not occur in:\n" + std::string(text), file, line);
}

}  // namespace quern
