// The daemon's configuration file, and the same words on its command line.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "daemon/options.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quern;
  static const int file = memfd_create("config", 0);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  const std::string named = "--config=/proc/self/fd/" + std::to_string(file);
  const char* from_file[] = {"quernd", named.c_str()};
  static_cast<void>(parse_options(2, from_file));

  std::vector<std::string> words = {"quernd", "--config=/dev/null"};
  for (std::string_view rest = text_of(data, size); !rest.empty() && words.size() < 100;) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    words.push_back("--" + std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  static_cast<void>(parse_options(static_cast<int>(argv.size()), argv.data()));
  return 0;
}
