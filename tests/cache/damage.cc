#include "tests/cache/damage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace quern {

namespace {

constexpr size_t kPage = 4096;

// Pages by what they are, as their headers say; the rest are the insides of large values and unused ones.
struct Regions {
  std::vector<size_t> heads, branches, leaves, values, rest;
};

Regions regions_of(const std::string& bytes) {
  Regions found;
  for (size_t page = 0; (page + 1) * kPage <= bytes.size(); ++page) {
    uint64_t number;
    uint16_t flags;
    std::memcpy(&number, bytes.data() + page * kPage, sizeof number);
    std::memcpy(&flags, bytes.data() + page * kPage + 10, sizeof flags);
    if (number != page) flags = 0;
    (flags == 8   ? found.heads
     : flags == 1 ? found.branches
     : flags == 2 ? found.leaves
     : flags == 4 ? found.values
                  : found.rest)
        .push_back(page);
  }
  return found;
}

class Damage {
 public:
  Damage(const std::string& path, std::mt19937& random)
      : random_(random), fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    struct stat info = {};
    if (fd_ < 0 || fstat(fd_, &info) != 0) return;
    bytes_.resize(static_cast<size_t>(info.st_size));
    if (pread(fd_, bytes_.data(), bytes_.size(), 0) < 0) bytes_.clear();
  }
  ~Damage() {
    if (fd_ >= 0) close(fd_);
  }

  std::string run() {
    if (bytes_.size() < 2 * kPage) return "nothing to damage";
    switch (below(6)) {
      case 0:
        return flip(1);
      case 1:
        return flip(1 + below(64));
      case 2:
        return garbage();
      case 3:
        return zeros();
      case 4:
        return swap();
      default:
        return cut();
    }
  }

 private:
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }
  void write(size_t at, const std::string& bytes) {
    [[maybe_unused]] const ssize_t size = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
  }

  // Every kind of page as often as any other, however few of them there are.
  size_t page() {
    const Regions regions = regions_of(bytes_);
    for (;;) {
      const std::vector<size_t>* kinds[] = {&regions.heads, &regions.branches, &regions.leaves,
                                            &regions.values, &regions.rest};
      if (const auto& kind = *kinds[below(5)]; !kind.empty()) return kind[below(kind.size())];
    }
  }

  // Half of them in the header of the page, where the numbers are.
  std::string flip(size_t count) {
    const size_t in = page();
    for (size_t i = 0; i < count; ++i) {
      const size_t at = in * kPage + (below(2) ? below(kPage) : below(160));
      bytes_[at] = static_cast<char>(bytes_[at] ^ 1 << below(8));
      write(at, bytes_.substr(at, 1));
    }
    return std::to_string(count) + " bits flipped in page " + std::to_string(in);
  }
  std::string garbage() {
    const size_t in = page(), size = below(2) ? kPage : 512;
    const size_t at = in * kPage + below(kPage / size) * size;
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    write(at, bytes);
    return std::to_string(size) + " bytes of garbage in page " + std::to_string(in);
  }
  std::string zeros() {
    const size_t in = page();
    write(in * kPage, std::string(kPage, '\0'));
    return "zeros in page " + std::to_string(in);
  }
  std::string swap() {
    const size_t a = page(), b = page();
    write(a * kPage, bytes_.substr(b * kPage, kPage));
    if (below(2)) write(b * kPage, bytes_.substr(a * kPage, kPage));  // else there are two of it
    return "pages " + std::to_string(a) + " and " + std::to_string(b) + " swapped";
  }
  std::string cut() {
    const size_t size = below(3) ? below(bytes_.size()) : below(bytes_.size() / kPage) * kPage;
    [[maybe_unused]] const int failed = ftruncate(fd_, static_cast<off_t>(size));
    return "cut to " + std::to_string(size) + " bytes";
  }

  std::mt19937& random_;
  const int fd_;
  std::string bytes_;
};

}  // namespace

std::string damage_file(const std::string& path, std::mt19937& random) { return Damage(path, random).run(); }

}  // namespace quern
