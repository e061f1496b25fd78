// Table hashes that a client cannot foresee.
#include "core/base/hash.h"

#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <unordered_map>

#include "tests/support/test.h"

namespace quern {

namespace {

void chosen_keys_do_not_share_a_bucket(void**) {
  std::unordered_map<Hash128, int> table;
  // Equal low words, and low words that are equal modulo any table size up to 2^20.
  for (uint64_t i = 0; i < 30000; ++i) table[Hash128{i, 42}] = table[Hash128{0, i << 20}] = 1;
  size_t worst = 0;
  for (size_t i = 0; i < table.bucket_count(); ++i) worst = std::max(worst, table.bucket_size(i));
  assert_true(worst < 20);
}

// The key is of the process: a program that starts anew has another one.
void processes_differ(void**) {
  std::set<std::string> seen;
  for (int i = 0; i < 4; ++i) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], 1);
      execl(self.c_str(), self.c_str(), "--print", nullptr);
      _exit(1);
    }
    close(ends[1]);
    char text[64] = {};
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    seen.insert(text);
  }
  assert_int_equal(seen.size(), 4);
}

}  // namespace

}  // namespace quern

int main(int argc, char**) {
  using namespace quern;
  if (argc > 1) return std::printf("%zx", std::hash<Hash128>()(Hash128{1, 2})) > 0 ? 0 : 1;
  const CMUnitTest tests[] = {cmocka_unit_test(chosen_keys_do_not_share_a_bucket),
                              cmocka_unit_test(processes_differ)};
  return cmocka_run_group_tests_name("hash", tests, nullptr, nullptr);
}
