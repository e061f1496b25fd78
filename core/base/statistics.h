// Of samples, such as times: their median, and whether two lists rank alike.
#pragma once

#include <optional>
#include <utility>
#include <vector>

namespace quern {

// The upper one of two in the middle; nan of none.
double median(std::vector<double> values);

// Spearman's, of pairs; ties have their mean rank. Nothing where one side is constant or there are fewer than
// two.
std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs);

}  // namespace quern
