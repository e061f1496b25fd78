#include "tests/schedule/brute_force.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace quern {

namespace {

// Calls `look` with every list of numbers whose i-th is below limits[i].
template <class Look>
void for_each_list(const std::vector<int>& limits, const Look& look) {
  std::vector<int> list(limits.size(), 0);
  for (;;) {
    look(list);
    size_t i = 0;
    while (i < list.size() && ++list[i] == limits[i]) list[i++] = 0;
    if (i == list.size()) return;
  }
}

}  // namespace

// Some order of placing, each buffer as low as it fits above and between those before it, gives the least:
// the order by offsets in a best plan does.
int64_t least_peak(const std::vector<MemoryBuffer>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t least = std::numeric_limits<int64_t>::max();
  do {
    std::vector<int64_t> offsets(buffers.size(), 0);
    int64_t peak = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const MemoryBuffer& buffer = buffers[order[i]];
      int64_t at = 0;
      auto collides = [&](size_t j) {
        const MemoryBuffer& other = buffers[order[j]];
        return buffer.needed_with(other) && at < offsets[order[j]] + other.bytes &&
               offsets[order[j]] < at + buffer.bytes;
      };
      for (size_t j = 0; j < i;) {
        if (!collides(j)) {
          ++j;
          continue;
        }
        at += buffer.alignment;
        j = 0;
      }
      offsets[order[i]] = at;
      peak = std::max(peak, at + buffer.bytes);
    }
    least = std::min(least, peak);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

OrderCost least_order(const OrderProblem& problem) {
  OrderCost least{std::numeric_limits<int>::max(), 0};
  for_each_list(std::vector<int>(static_cast<size_t>(problem.steps), problem.steps),
                [&](const std::vector<int>& levels) {
                  const auto cost = order_cost(problem, levels);
                  if (cost && *cost < least) least = *cost;
                });
  return least;
}

int64_t least_layouts(const LayoutProblem& problem) {
  std::vector<int> limits;
  for (const auto& costs : problem.tensors) limits.push_back(static_cast<int>(costs.size()));
  int64_t least = std::numeric_limits<int64_t>::max();
  for_each_list(limits, [&](const std::vector<int>& candidates) {
    least = std::min(least, *layout_cost(problem, candidates));
  });
  return least;
}

std::vector<MemoryBuffer> random_buffers(std::mt19937_64& random, int count) {
  std::vector<MemoryBuffer> buffers;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % 6);
    buffers.push_back({static_cast<int64_t>(1 + random() % 12) * 8, first,
                       first + static_cast<int>(random() % 4), random() % 4 == 0 ? 32 : 16});
  }
  return buffers;
}

OrderProblem random_order(std::mt19937_64& random, int steps) {
  OrderProblem problem;
  problem.steps = steps;
  for (int to = 1; to < steps; ++to)
    for (int from = 0; from < to; ++from) {
      if (random() % 4 != 0) continue;
      const bool shared = random() % 2 == 0;
      problem.edges.push_back({from, to, shared});
      if (shared) problem.buffers.push_back({from, to, static_cast<int64_t>(1 + random() % 9)});
    }
  return problem;
}

LayoutProblem random_layouts(std::mt19937_64& random, int tensors) {
  LayoutProblem problem;
  for (int i = 0; i < tensors; ++i) {
    problem.tensors.emplace_back();
    for (uint64_t c = 0, count = 1 + random() % 4; c < count; ++c)
      problem.tensors.back().push_back(static_cast<int64_t>(random() % 3 == 0 ? random() % 40 : 0));
  }
  for (int to = 1; to < tensors; ++to)
    for (int from = 0; from < to; ++from) {
      if (random() % 2 != 0) continue;
      LayoutEdge edge{from, to, {}};
      for (size_t f = 0; f < problem.tensors[static_cast<size_t>(from)].size(); ++f) {
        edge.costs.emplace_back();
        for (size_t t = 0; t < problem.tensors[static_cast<size_t>(to)].size(); ++t)
          edge.costs.back().push_back(static_cast<int64_t>(random() % 2 == 0 ? random() % 60 : 0));
      }
      problem.edges.push_back(std::move(edge));
    }
  return problem;
}

}  // namespace quern
