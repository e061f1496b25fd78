// The command line of one subcommand, parsed by its options.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "tools/command.h"

namespace quern {

class Arguments {
 public:
  // `argv[0]` is the subcommand. INVALID_ARGUMENT names what is wrong and suggests what was meant.
  static Result<Arguments> parse(const Command& command, int argc, char** argv);

  const Command& command() const { return *command_; }
  const std::vector<std::string>& operands() const { return operands_; }
  bool has(std::string_view option) const { return values_.count(option) > 0; }
  // The last one given; "" when there is none.
  std::string value(std::string_view option) const;
  // All given, in order.
  std::vector<std::string> values(std::string_view option) const;
  // INVALID_ARGUMENT unless the value is an integer from low to high; `fallback` when the option is not
  // given.
  Result<int64_t> integer(std::string_view option, int64_t fallback, int64_t low, int64_t high) const;

  // A time such as 1500ms, 90s, 10m, 1h or 30d, in milliseconds; a number alone is seconds. INVALID_ARGUMENT
  // for anything else, and above `most`.
  Result<uint64_t> duration_ms(std::string_view option, uint64_t most) const;

  bool json() const { return has("json"); }

 private:
  const Command* command_ = nullptr;
  std::vector<std::string> operands_;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

// "; did you mean X?" for the candidate that is a small slip away from `word`, else "".
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace quern
