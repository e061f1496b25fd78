#include "core/optimize/ranking.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/schedule/enumerate.h"

namespace quern {

namespace {

// Of an implementation that resembles others: it counts as so much slower for each of these in front of it.
constexpr double kResemblance = 0.03;

// The scheduled muGraph without names: candidates that differ in their own grid alone become one program.
std::string text_without_names(MuGraph applied) {
  applied.name.clear();
  for (size_t t = 0; t < applied.tensors.size(); ++t) applied.tensors[t].name = "t" + std::to_string(t);
  for (MuKernel& kernel : applied.kernels) {
    kernel.threads = 0;
    for (BlockOp& op : kernel.ops) op.name.clear();
  }
  return print_mugraph(applied);
}

// What programs that are nearly the same have in common: candidate, tiles, warps and data path.
std::string resemblance(const Implementation& implementation) {
  Schedule schedule = implementation.schedule;
  for (KernelSchedule& kernel : schedule.kernels) {
    kernel.tile_k = 0;
    kernel.stages = 1;
    kernel.min_blocks = 0;
    kernel.persistent = kernel.persistent > 0 ? 1 : 0;
    kernel.producer = false;
  }
  return std::to_string(implementation.candidate) + "\n" + print_schedule(schedule);
}

// Staying takes registers, and whether they are there only the compiler says: the same with a block for each tile is
// tried beside it.
std::optional<Implementation> launched_for_each_tile(const Implementation& implementation) {
  Implementation twin = implementation;
  bool differs = false;
  for (KernelSchedule& kernel : twin.schedule.kernels) differs |= std::exchange(kernel.persistent, 0) > 0;
  return differs ? std::optional(std::move(twin)) : std::nullopt;
}

// Best first, but what resembles others gives way to what is not much slower.
void sort_by_time(std::vector<Implementation>& all) {
  auto by = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(all.begin(), all.end(),
                   [](const Implementation& a, const Implementation& b) { return a.us < b.us; });
  std::map<std::string, int> seen;
  std::vector<std::pair<double, Implementation>> order;
  for (Implementation& each : all) {
    const double us = each.us * (1 + kResemblance * seen[resemblance(each)]++);
    auto twin = launched_for_each_tile(each);
    order.emplace_back(us, std::move(each));
    if (twin) order.emplace_back(us, std::move(*twin));
  }
  std::stable_sort(order.begin(), order.end(), by);
  all.clear();
  for (auto& [us, each] : order)
    if (std::none_of(all.begin(), all.end(), [&](const Implementation& other) {
          return other.candidate == each.candidate && other.schedule == each.schedule;
        }))
      all.push_back(std::move(each));
}

}  // namespace

std::vector<Implementation> rank_implementations(const Graph& graph, const std::vector<Candidate>& candidates,
                                                 const Target& target, const Constraints& constraints,
                                                 size_t most, bool allow_tf32) {
  std::vector<Implementation> out;
  std::set<std::string> programs;
  for (size_t i = 0; i < candidates.size(); ++i) {
    size_t taken = 0;
    const MuGraph& mugraph = candidates[i].mugraph;
    const auto model = ProgramModel::make(graph, mugraph, target);
    if (!model) continue;  // nor can it be emitted
    for (Schedule& schedule : enumerate_schedules(mugraph, target, allow_tf32)) {
      if (taken == most) break;
      auto us = model->us(schedule);
      check(us.ok(), "a schedule of the enumeration does not fit its muGraph");
      auto applied = apply_schedule(mugraph, schedule);
      if (!constraints.empty() && !constraints.allow(*applied)) continue;
      Schedule untiled = schedule;
      for (KernelSchedule& kernel : untiled.kernels) kernel = without_tiling(kernel);
      if (!programs.insert(text_without_names(std::move(*applied)) + print_schedule(untiled)).second)
        continue;
      out.push_back({i, std::move(schedule), *us});
      ++taken;
    }
  }
  sort_by_time(out);
  return out;
}

}  // namespace quern
