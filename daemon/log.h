// The daemon's log: one line an event, with time and level, to standard error or a file.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace quern {

enum class LogLevel { debug, info, warning, error };
std::optional<LogLevel> parse_log_level(std::string_view name);
const char* log_level_name(LogLevel level);

// Any thread may write. Control characters of a text are escaped, so that what a client sends cannot forge a
// line. Of one cause (the first word of a text, such as event=client_refused) no more than kMostLines are
// written in kWindow; the next window says how many were left out, so that nobody fills the disk by being
// refused.
class Log {
 public:
  static constexpr uint64_t kMostLines = 100;
  static constexpr std::chrono::seconds kWindow{10};

  Log() = default;
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void set_level(LogLevel level) { level_ = level; }
  // One JSON object a line, with time, level and the fields of the text, instead of the text.
  void set_json(bool json) {
    std::lock_guard lock(mutex_);
    json_ = json;
  }
  // As many lines of one cause as there are.
  void set_every_line(bool every) { every_line_ = every; }
  // A file that has grown beyond this becomes PATH.1, in place of the one before; 0: never.
  void set_limit(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  // Appends to `path` from here on; IO when it cannot be opened, and then nothing changes.
  Status open_file(const std::string& path);
  // Opens the same path again: the file may have been renamed by a log rotation.
  Status reopen();

  void write(LogLevel level, std::string_view text);
  void debug(std::string_view text) { write(LogLevel::debug, text); }
  void info(std::string_view text) { write(LogLevel::info, text); }
  void warning(std::string_view text) { write(LogLevel::warning, text); }
  void error(std::string_view text) { write(LogLevel::error, text); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Cause {
    Clock::time_point since;
    uint64_t lines = 0;
  };
  // Whether one more line of this cause may be written; `left_out` is how many of the window before were not.
  bool admits(std::string_view text, uint64_t& left_out);
  void write_line(LogLevel level, std::string_view text);
  Status open_locked(const std::string& path);

  std::mutex mutex_;
  std::map<std::string, Cause, std::less<>> causes_;
  std::atomic<LogLevel> level_ = LogLevel::info;
  std::string path_;
  int fd_ = 2;
  bool json_ = false, every_line_ = false;
  uint64_t limit_ = 0, written_ = 0;
};

}  // namespace quern
