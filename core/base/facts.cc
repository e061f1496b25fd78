#include "core/base/facts.h"

#include <algorithm>

namespace quern {

namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 32; }

bool is_name(std::string_view name) {
  const bool letter =
      !name.empty() && ((name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z'));
  return letter && std::none_of(name.begin(), name.end(), is_control);
}

}  // namespace

std::string print_fact(std::string_view name, std::string_view value) {
  check(is_name(name) && name.find(':') == std::string_view::npos, "a fact cannot have this name");
  std::string line = std::string(name) + ": " + std::string(value);
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  return line + "\n";
}

Result<std::vector<Fact>> parse_facts(std::string_view text) {
  std::vector<Fact> facts;
  for (size_t at = 0, number = 1; at < text.size(); ++number) {
    auto wrong = [&](const char* what) {
      return Status(ErrorCode::CORRUPT, "line " + std::to_string(number) + ": " + what);
    };
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) return wrong("it does not end");
    const std::string_view line = text.substr(at, end - at);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || line.substr(colon, 2) != ": ")
      return wrong("not a name, \": \" and a value");
    const std::string_view name = line.substr(0, colon), value = line.substr(colon + 2);
    if (!is_name(name)) return wrong("a name begins with a letter");
    if (std::any_of(value.begin(), value.end(), is_control))
      return wrong("a value holds a control character");
    facts.push_back({std::string(name), std::string(value)});
    at = end + 1;
  }
  return facts;
}

const std::string* find_fact(const std::vector<Fact>& facts, std::string_view name) {
  for (const Fact& fact : facts)
    if (fact.name == name) return &fact.value;
  return nullptr;
}

}  // namespace quern
