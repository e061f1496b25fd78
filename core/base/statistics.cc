#include "core/base/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace quern {

namespace {

// Ranks from 1, those of equal values their mean.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) result[order[j]] = static_cast<double>(i + 1 + end) / 2;
    i = end;
  }
  return result;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs) {
  std::vector<double> xs, ys;
  for (const auto& [x, y] : pairs) {
    xs.push_back(x);
    ys.push_back(y);
  }
  xs = ranks(xs);
  ys = ranks(ys);
  const double mean = (static_cast<double>(xs.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    xy += (xs[i] - mean) * (ys[i] - mean);
    xx += (xs[i] - mean) * (xs[i] - mean);
    yy += (ys[i] - mean) * (ys[i] - mean);
  }
  if (xs.size() < 2 || xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

}  // namespace quern
