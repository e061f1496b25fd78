#include "daemon/log.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/private_file.h"

namespace quern {

namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
constexpr size_t kMaxCause = 64, kMaxCauses = 256;
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

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const unsigned char c : text.substr(0, kMaxLine)) {
    char code[8];
    std::snprintf(code, sizeof code,
                  c == '"' || c == '\\'   ? "\\%c"
                  : c < 0x20 || c == 0x7f ? "\\u%04x"
                                          : "%c",
                  c);
    out += code;
  }
  return out + "\"";
}

// Where a quoted value ends: at the quote before the next " name=", or before the end. Texts within are not
// escaped.
size_t end_of_quoted(std::string_view text) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz_";
  for (size_t quote = text.find("\" ", 1); quote != std::string_view::npos;
       quote = text.find("\" ", quote + 1)) {
    const size_t after = text.find_first_not_of(kName, quote + 2);
    if (after != std::string_view::npos && after > quote + 2 && text[after] == '=') return quote;
  }
  return text.size() - (text.size() > 1 && text.back() == '"');
}

// Of name=value and name="value".
std::string json_fields(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (equals == std::string_view::npos || name.find(' ') != std::string_view::npos)
      return out + ",\"message\":" + json_string(text);
    text.remove_prefix(equals + 1);
    const bool quoted = text.starts_with('"');
    const size_t end = std::min(quoted ? end_of_quoted(text) : text.find(' '), text.size());
    out += "," + json_string(name) + ":" + json_string(text.substr(quoted, end - quoted));
    text.remove_prefix(std::min(end + quoted + 1, text.size()));
  }
  return out;
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
  std::lock_guard lock(mutex_);
  return open_locked(path);
}

Status Log::open_locked(const std::string& path) {
  const int fd = open_private_file(path, O_WRONLY | O_APPEND | O_CREAT);
  if (fd < 0) return Status(ErrorCode::IO, "cannot open the log file " + path + ": " + std::strerror(errno));
  if (fd_ > 2) close(fd_);
  fd_ = fd;
  path_ = path;
  const off_t size = lseek(fd, 0, SEEK_END);
  written_ = size > 0 ? static_cast<uint64_t>(size) : 0;
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

bool Log::admits(std::string_view text, uint64_t& left_out) {
  const std::string_view name = text.substr(0, std::min(text.find(' '), kMaxCause));
  auto found = causes_.find(name);
  // Causes are words of this program; a text that is not could make up any number.
  if (found == causes_.end() && causes_.size() >= kMaxCauses) found = causes_.find("");
  if (found == causes_.end())
    found = causes_.emplace(causes_.size() < kMaxCauses - 1 ? name : "", Cause{}).first;
  Cause& cause = found->second;
  const auto now = Clock::now();
  if (now - cause.since >= kWindow) {
    left_out = cause.lines > kMostLines ? cause.lines - kMostLines : 0;
    cause = {now, 0};
  }
  return ++cause.lines <= kMostLines;
}

void Log::write(LogLevel level, std::string_view text) {
  if (level < level_) return;
  std::lock_guard lock(mutex_);
  uint64_t left_out = 0;
  const bool admitted = level == LogLevel::debug || every_line_ || admits(text, left_out);
  if (left_out > 0)
    write_line(level, "event=lines_left_out count=" + std::to_string(left_out) + " of=\"" +
                          std::string(text.substr(0, std::min(text.find(' '), kMaxCause))) + "\"");
  if (admitted) write_line(level, text);
}

void Log::write_line(LogLevel level, std::string_view text) {
  std::string line;
  if (json_) {
    line = "{\"time\":\"" + timestamp() + "\",\"level\":\"" + log_level_name(level) + "\"" +
           json_fields(text) + "}";
  } else {
    line = timestamp() + " " + log_level_name(level) + " ";
    append_escaped(line, text);
  }
  line += '\n';
  if (limit_ && !path_.empty() && written_ + line.size() > limit_ && written_ > 0) {
    // Where that fails the log goes on in the file it has.
    if (rename(path_.c_str(), (path_ + ".1").c_str()) == 0) [[maybe_unused]]
      const Status opened = open_locked(std::string(path_));
    written_ = 0;
  }
  // One write a line keeps lines whole. A log that cannot be written must not stop the daemon.
  const ssize_t written = ::write(fd_, line.data(), line.size());
  written_ += written > 0 ? static_cast<uint64_t>(written) : 0;
}

}  // namespace quern
