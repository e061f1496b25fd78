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

// What the rest takes at the pace so far; nothing in the first seconds, when that says little.
std::string Progress::left() const {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  if (done_ == 0 || done_ >= total_ || seconds < 2) return "";
  const auto rest =
      static_cast<unsigned long>(seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_));
  return ", about " + (rest >= 60 ? std::to_string((rest + 59) / 60) + " min" : std::to_string(rest) + " s") +
         " left";
}

void Progress::update(uint64_t done, uint64_t total) {
  total_ = total;
  done_ = done;
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + kRedraw;
  const int filled = total ? static_cast<int>(std::min(done, total) * kWidth / total) : 0;
  std::fprintf(stderr, "\r\033[K%s [%s%s] %llu/%llu%s%s%s", what_.c_str(), std::string(filled, '#').c_str(),
               std::string(kWidth - filled, ' ').c_str(), static_cast<unsigned long long>(done),
               static_cast<unsigned long long>(total), left().c_str(), note_.empty() ? "" : "  ",
               note_.c_str());
  std::fflush(stderr);
}

}  // namespace quern
