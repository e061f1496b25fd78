// What the subcommands print: aligned text for people on standard output, or one JSON object; errors on
// standard error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/arguments.h"
#include "tools/exit_code.h"

namespace quern {

using Json = nlohmann::ordered_json;

// Columns as wide as their widest cell, two spaces between them. A header that starts with '>' is printed
// without it and its column is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);
  void add(std::vector<std::string> cells);
  std::string text(const std::string& indent = "") const;

 private:
  std::vector<std::string> headers_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "name   value" lines; further lines of a value are indented below its first.
std::string facts_text(const std::vector<std::pair<std::string, std::string>>& facts);

std::string human_bytes(uint64_t bytes);         // "23.4 KiB"
std::string human_duration(uint64_t ns);         // "812 us"
std::string human_time(uint64_t ms_since_1970);  // "2026-01-31 12:00:00", local time

// Control characters but for ends of lines and tabs as "\x1b": names and messages may come from files and
// other programs, and must not steer a terminal.
std::string visible(std::string_view text);

void print_text(const std::string& text);  // visible(text)
void print_json(const Json& json);
// From here on both print on standard error: standard output has become a file's content.
void leave_standard_output();

// Prints the error as people and, with --json, programs need it; the exit code.
int fail(const Arguments& arguments, const Status& status);
Json error_json(const Status& status);

}  // namespace quern
