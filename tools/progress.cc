#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace quern {

namespace {

constexpr int kWidth = 30;
constexpr auto kRedraw = std::chrono::milliseconds(50);

}  // namespace

Progress::Progress(std::string what, uint64_t total, bool wanted)
    : what_(std::move(what)), total_(total), shown_(wanted && isatty(STDERR_FILENO)) {
  update(0, total);
}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::update(uint64_t done, uint64_t total) {
  total_ = total;
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + kRedraw;
  const int filled = total ? static_cast<int>(std::min(done, total) * kWidth / total) : 0;
  std::fprintf(stderr, "\r\033[K%s [%s%s] %llu/%llu%s%s", what_.c_str(), std::string(filled, '#').c_str(),
               std::string(kWidth - filled, ' ').c_str(), static_cast<unsigned long long>(done),
               static_cast<unsigned long long>(total), note_.empty() ? "" : "  ", note_.c_str());
  std::fflush(stderr);
}

}  // namespace quern
