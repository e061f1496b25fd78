#include "tools/output.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace quern {

Table::Table(std::vector<std::string> headers) {
  for (std::string& header : headers) {
    right_.push_back(header[0] == '>');
    headers_.push_back(right_.back() ? header.substr(1) : header);
  }
}

void Table::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text(const std::string& indent) const {
  std::vector<size_t> widths(headers_.size());
  auto widen = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  };
  widen(headers_);
  for (const auto& row : rows_) widen(row);

  std::string text;
  auto append = [&](const std::vector<std::string>& cells) {
    std::string line = indent;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string pad(widths[i] - cells[i].size(), ' ');
      line += (i ? "  " : "") + (right_[i] ? pad + cells[i] : cells[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  append(headers_);
  for (const auto& row : rows_) append(row);
  return text;
}

std::string facts_text(const std::vector<std::pair<std::string, std::string>>& facts) {
  size_t width = 0;
  for (const auto& [name, value] : facts) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : facts) {
    text += name + std::string(width + 2 - name.size(), ' ');
    for (char c : value) {
      text += c;
      if (c == '\n') text += std::string(width + 2, ' ');
    }
    text += "\n";
  }
  return text;
}

namespace {

std::string scaled(double value, double step, const std::vector<const char*>& units) {
  size_t unit = 0;
  for (; value >= step && unit + 1 < units.size(); ++unit) value /= step;
  char text[32];
  // Whole numbers of the smallest unit, else three digits.
  const char* format = unit == 0 || value >= 100 ? "%.0f %s" : value >= 10 ? "%.1f %s" : "%.2f %s";
  std::snprintf(text, sizeof text, format, value, units[unit]);
  return text;
}

}  // namespace

std::string human_bytes(uint64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
}
std::string human_duration(uint64_t ns) {
  return scaled(static_cast<double>(ns), 1000, {"ns", "us", "ms", "s"});
}

std::string human_time(uint64_t ms_since_1970) {
  if (ms_since_1970 == 0) return "-";
  const std::time_t seconds = static_cast<std::time_t>(ms_since_1970 / 1000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string visible(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F steer some terminals as well.
    const bool steers = i > 0 && text[i - 1] == '\xc2' && c >= 0x80 && c < 0xa0;
    if ((c >= 0x20 && c != 0x7f && !steers) || c == '\n' || c == '\t') {
      shown += text[i];
      continue;
    }
    char code[5];
    std::snprintf(code, sizeof code, "\\x%02x", c);
    if (steers) shown.pop_back();
    shown += steers ? std::string("\\xc2") + code : code;
  }
  return shown;
}

namespace {

std::FILE* printed_to = nullptr;  // null: standard output

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), printed_to ? printed_to : stdout);
}

}  // namespace

void leave_standard_output() { printed_to = stderr; }

void print_text(const std::string& text) { print(visible(text)); }

void print_json(const Json& json) {
  // Texts may come from files and the wire, so bytes that are no UTF-8 are replaced.
  print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json error_json(const Status& status) {
  return {{"code", error_name(status.code())}, {"message", status.message()}};
}

int fail(const Arguments& arguments, const Status& status) {
  if (arguments.json()) print_json({{"error", error_json(status)}});
  std::fprintf(stderr, "quern: %s\n", visible(status.message()).c_str());
  return exit_code(status);
}

}  // namespace quern
