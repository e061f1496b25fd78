// Lines of "name: value", which people and programs read: the form of certificates.
//
//   facts = (name ": " value "\n")*
//   name  = a letter, then any characters but ":" and those below 32
//   value = any characters but those below 32
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace quern {

struct Fact {
  std::string name, value;
  bool operator==(const Fact&) const = default;
};

// One line; characters that a value cannot have become spaces.
std::string print_fact(std::string_view name, std::string_view value);

// CORRUPT "line N: ..." at the first line that is none.
Result<std::vector<Fact>> parse_facts(std::string_view text);

// The value of the first fact of this name; null if there is none.
const std::string* find_fact(const std::vector<Fact>& facts, std::string_view name);

}  // namespace quern
