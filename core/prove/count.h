// How many values of variables meet conditions: intervals are halved until each condition holds in all of
// one, or in none.
#pragma once

#include <functional>
#include <optional>

#include "core/prove/arithmetic.h"

namespace quern::proof {

// Nothing if it takes more than `limit` intervals, or if the conditions depend on what is no variable.
std::optional<int64_t> count_values(const std::vector<ir::Symbol>& variables,
                                    const std::vector<ir::Expr>& conditions, const ir::Ranges& ranges,
                                    int64_t limit);

// Calls `visit` for each of them, one by one; false, and for none, if there are more than `limit` to look at.
bool for_each_value(const std::vector<ir::Symbol>& variables, const std::vector<ir::Expr>& conditions,
                    const ir::Ranges& ranges, int64_t limit, const std::function<void(const Values&)>& visit);

}  // namespace quern::proof
