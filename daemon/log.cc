#include "daemon/log.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace quern {

namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
constexpr size_t kMaxLine = 4000;  // a compiler's log can be long; its first lines tell what is wrong

std::string timestamp() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  gmtime_r(&now.tv_sec, &parts);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03ldZ", date, now.tv_nsec / 1000000);
  return text;
}

void append_escaped(std::string& out, std::string_view text) {
  for (unsigned char c : text.substr(0, kMaxLine)) {
    if (c >= 0x20 && c != 0x7f) {
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else {
      char code[5];
      std::snprintf(code, sizeof code, "\\x%02x", c);
      out += code;
    }
  }
  if (text.size() > kMaxLine) out += "...";
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<LogLevel>(i);
  return std::nullopt;
}

const char* log_level_name(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

Log::~Log() {
  if (fd_ > 2) close(fd_);
}

Status Log::open_file(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Status(ErrorCode::IO, "cannot open the log file " + path + ": " + std::strerror(errno));
  std::lock_guard lock(mutex_);
  if (fd_ > 2) close(fd_);
  fd_ = fd;
  path_ = path;
  return {};
}

Status Log::reopen() {
  std::string path;
  {
    std::lock_guard lock(mutex_);
    path = path_;
  }
  return path.empty() ? Status() : open_file(path);
}

void Log::write(LogLevel level, std::string_view text) {
  if (level < level_) return;
  std::string line = timestamp() + " " + log_level_name(level) + " ";
  append_escaped(line, text);
  line += '\n';
  std::lock_guard lock(mutex_);
  // One write a line keeps lines whole. A log that cannot be written must not stop the daemon.
  [[maybe_unused]] const ssize_t written = ::write(fd_, line.data(), line.size());
}

}  // namespace quern
