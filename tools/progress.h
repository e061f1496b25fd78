// A progress bar on standard error, for work that takes long; nothing where nobody looks (no terminal, or
// --json).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quern {

class Progress {
 public:
  // `what` is being done `total` times; 0 when that is not known yet.
  Progress(std::string what, uint64_t total, bool wanted = true);
  // Wipes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What stands behind the numbers from now on.
  void note(std::string text) { note_ = std::move(text); }
  void update(uint64_t done, uint64_t total);
  void update(uint64_t done) { update(done, total_); }

 private:
  std::string left() const;

  const std::string what_;
  std::string note_;
  uint64_t total_;
  bool shown_;
  uint64_t done_ = 0;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_{};  // redrawn no more often than people can see
};

}  // namespace quern
