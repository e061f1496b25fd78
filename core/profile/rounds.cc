#include "core/profile/rounds.h"

#include <algorithm>
#include <cmath>

#include "core/base/statistics.h"

namespace quern {

namespace {

constexpr double kSignificance = 0.01;
// A round is disturbed when it is above the lower quartile by so many times what lies below that, and by this
// share of the time at least. What disturbs only ever adds time, so the lower half shows the scatter of the
// programs themselves.
constexpr double kAboveQuartile = 6, kLeastDisturbance = 0.1;

// The chance of at least `wins` in `rounds` throws of a coin.
double chance(size_t wins, size_t rounds) {
  double sum = 0;
  for (size_t k = wins; k <= rounds; ++k)
    sum += std::exp(std::lgamma(static_cast<double>(rounds) + 1) - std::lgamma(static_cast<double>(k) + 1) -
                    std::lgamma(static_cast<double>(rounds - k) + 1) -
                    static_cast<double>(rounds) * std::log(2.0));
  return sum;
}

}  // namespace

bool is_faster(const std::vector<double>& a, const std::vector<double>& b) {
  size_t wins = 0, decided = 0;
  for (size_t round = 0; round < std::min(a.size(), b.size()); ++round) {
    decided += a[round] != b[round];
    wins += a[round] < b[round];
  }
  return decided > 0 && chance(wins, decided) < kSignificance;
}

bool drop_disturbed_rounds(std::vector<Bench::Time>& times) {
  if (times.empty() || times[0].cold.empty()) return true;
  const size_t rounds = times[0].cold.size();
  std::vector<double> medians;
  for (const Bench::Time& time : times) medians.push_back(median(time.cold));
  std::vector<double> factors;  // how much longer everything took in a round
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<double> own;
    for (size_t i = 0; i < times.size(); ++i) own.push_back(times[i].cold[round] / medians[i]);
    factors.push_back(median(own));
  }
  std::vector<double> sorted = factors;
  std::sort(sorted.begin(), sorted.end());
  const double quartile = sorted[rounds / 4];
  const double limit = quartile + std::max(kAboveQuartile * (quartile - sorted[0]), kLeastDisturbance);
  for (Bench::Time& time : times) {
    size_t kept = 0;
    for (size_t round = 0; round < rounds; ++round)
      if (factors[round] <= limit) {
        time.cold[kept] = time.cold[round];
        time.hot[kept++] = time.hot[round];
      }
    time.cold.resize(kept);
    time.hot.resize(kept);
  }
  return 3 * (rounds - times[0].cold.size()) <= rounds;
}

}  // namespace quern
