// One program and one kind of input, as text: what a finding prints and what cases/*.case hold.
//
//   # what is or was wrong
//   target sm_80
//   class masked
//   seed 17
//   == graph
//   (the text of a .qg)
//   == mugraph
//   (the text of a .qmu)
//   == schedule
//   (a line for each kernel)
//
// Without a muGraph the case is the baseline program and the best-ranked programs of a search; without a
// class all classes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace quern {

struct HostileCase {
  std::string comment;  // lines, without #
  std::string target, input_class;
  uint64_t seed = 1;
  std::string graph, mugraph, schedule;  // texts
};

std::string print_case(const HostileCase& test);
// INVALID_ARGUMENT: which line is not understood.
Result<HostileCase> parse_case(std::string_view text);

}  // namespace quern
