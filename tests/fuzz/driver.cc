// Runs a fuzz target without libFuzzer: on every seed, then on seeded mutations of seeds, for a time (that of
// QUERN_FUZZ_SECONDS, if it is set). What was run when the process died, or when an input took too long, is
// left in a file.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = 1 << 16;
constexpr unsigned kMostSeconds = 10;  // for one input

std::string current;
char left_behind[64];

// Only calls that a signal handler may make.
void save(int number) {
  const int fd = open(left_behind, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  [[maybe_unused]] ssize_t written = write(fd, current.data(), current.size());
  written = write(2, "the input is in ", 16);
  written = write(2, left_behind, strlen(left_behind));
  written = write(2, "\n", 1);
  signal(number, SIG_DFL);
  raise(number);
}

void run(const std::string& input) {
  current = input;
  alarm(kMostSeconds);
  // A copy of exactly this size, so that a sanitizer sees each read beyond it.
  const std::vector<uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  alarm(0);
}

// The bytes at the end of each line of a golden file: "NAME 0123ab".
void read_hex(const char* path, std::vector<std::string>& seeds) {
  std::ifstream in(path);
  for (std::string name, hex; in >> name >> hex;) {
    seeds.emplace_back();
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
      seeds.back() += static_cast<char>(std::strtol(hex.substr(i, 2).c_str(), nullptr, 16));
  }
}

std::vector<std::string> read_seeds(int count, char** paths) {
  std::vector<std::string> seeds;
  const auto add = [&](const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (seeds.back().size() > kMaxBytes) seeds.pop_back();
  };
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(paths[i])) files.emplace_back(paths[i]);
    if (fs::is_directory(paths[i]))
      for (const auto& entry : fs::recursive_directory_iterator(paths[i]))
        if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // a directory has no order of its own
  for (const fs::path& file : files) add(file);
  return seeds;
}

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  std::string next() {
    std::string input = pick();
    for (size_t times = 1 + random_() % 6; times > 0; --times) mutate(input);
    if (input.size() > kMaxBytes) input.resize(kMaxBytes);
    return input;
  }

 private:
  const std::string& pick() { return seeds_[random_() % seeds_.size()]; }
  size_t place(const std::string& input) { return input.empty() ? 0 : random_() % input.size(); }

  void mutate(std::string& input) {
    const size_t at = place(input);
    const size_t size = std::min<size_t>(1 + random_() % 32, input.size() - at);
    switch (random_() % 9) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << random_() % 8));
        return;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(random_());
        return;
      case 2:
        return void(input.erase(at, size));
      case 3:
        return void(input.insert(at, input.substr(place(input), size)));
      case 4:
        return void(input.insert(at, number()));
      case 5: {
        const std::string& other = pick();
        return void(input.replace(at, size, other.substr(place(other), 1 + random_() % 64)));
      }
      case 6:
        return void(input.insert(at, 1 + random_() % 8, static_cast<char>(random_())));
      case 7: {
        const uint64_t values[] = {0,          1,          0x7fffffff,      0x80000000,
                                   0xffffffff, UINT64_MAX, random_() % 300, random_()};
        const uint64_t value = values[random_() % std::size(values)];
        const size_t bytes = std::min<size_t>(size_t{1} << random_() % 4, input.size() - at);
        return void(std::memcpy(input.data() + at, &value, bytes));
      }
      default:
        input.resize(at);
    }
  }

  std::string number() {
    const char* const numbers[] = {"0",
                                   "-1",
                                   "1",
                                   "2147483647",
                                   "2147483648",
                                   "-9223372036854775808",
                                   "18446744073709551616",
                                   "1e99",
                                   "-inf",
                                   "nan",
                                   "4096",
                                   "[",
                                   "]",
                                   "\n",
                                   ",",
                                   "=",
                                   "1e-9999",
                                   "0x10",
                                   "\"",
                                   "{",
                                   "}"};
    return numbers[random_() % std::size(numbers)];
  }

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 5;
  uint64_t seed = 1;
  std::vector<std::string> seeds;
  const option options[] = {{"hex", required_argument, nullptr, 'x'},
                            {"seconds", required_argument, nullptr, 't'},
                            {"seed", required_argument, nullptr, 's'},
                            {nullptr, 0, nullptr, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    if (option == 't')
      seconds = std::atof(optarg);
    else if (option == 'x')
      read_hex(optarg, seeds);
    else if (option == 's')
      seed = std::strtoull(optarg, nullptr, 10);
    else
      return std::fprintf(stderr,
                          "usage: %s [--seconds S] [--seed N] [--hex LINES_FILE] SEED_FILE_OR_DIRECTORY...\n",
                          argv[0]),
             2;
  }
  if (const char* text = std::getenv("QUERN_FUZZ_SECONDS")) seconds = std::atof(text);
  for (std::string& each : read_seeds(argc - optind, argv + optind)) seeds.push_back(std::move(each));
  if (seeds.empty()) return std::fprintf(stderr, "there are no seeds\n"), 2;
  std::snprintf(left_behind, sizeof left_behind, "fuzz-%d.input", static_cast<int>(getpid()));
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM}) signal(number, save);
  for (const std::string& each : seeds) run(each);
  const size_t count = seeds.size();
  Mutator mutator(std::move(seeds), seed);
  uint64_t runs = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (; std::chrono::steady_clock::now() < end; ++runs) run(mutator.next());
  std::printf("%zu seeds, %llu mutations, seed %llu\n", count, static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(seed));
  return 0;
}
