// The options that say what a search may find: those of Mirage's search configuration.
#pragma once

#include <vector>

#include "core/search/constraints.h"
#include "tools/arguments.h"

namespace quern {

// `options` and, behind them, --griddims and the others.
std::vector<Option> with_constraints(std::vector<Option> options);

// As parse_constraints reads it; empty when none is given. INVALID_ARGUMENT names the value.
Result<std::string> constraints_of(const Arguments& arguments);

}  // namespace quern
