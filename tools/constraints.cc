#include "tools/constraints.h"

namespace quern {

namespace {

constexpr Option kConstraints[] = {
    {"griddims", 0, "X,Y,Z", "only these grids; like the next five, several times for several values"},
    {"blockdims", 0, "X,Y,Z", "only these blocks"},
    {"imaps", 0, "X,Y,Z", "which dimension of a load each axis of the grid cuts, or -1"},
    {"omaps", 0, "X,Y,Z", "the same of stores"},
    {"fmaps", 0, "DIM", "which dimension of a load the loop cuts, or -1"},
    {"franges", 0, "N", "only so many iterations of the loop"},
};

}  // namespace

std::vector<Option> with_constraints(std::vector<Option> options) {
  options.insert(options.end(), std::begin(kConstraints), std::end(kConstraints));
  return options;
}

Result<std::string> constraints_of(const Arguments& arguments) {
  std::string text;
  for (const Option& option : kConstraints) {
    if (!arguments.has(option.name)) continue;
    text += std::string(text.empty() ? "" : "; ") + option.name;
    for (const std::string& value : arguments.values(option.name)) text += " " + value;
  }
  Result<Constraints> constraints = parse_constraints(text);
  if (!constraints) return constraints.status();
  return print_constraints(*constraints);
}

}  // namespace quern
