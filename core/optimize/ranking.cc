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

// A program, and the time by which it is ranked.
using Ranked = std::pair<double, Implementation>;

// Staying takes registers, and whether they are there only the compiler says: the same with a block for each tile is
// ranked beside it.
std::optional<Schedule> launched_for_each_tile(Schedule schedule) {
  bool differs = false;
  for (KernelSchedule& kernel : schedule.kernels) differs |= std::exchange(kernel.persistent, 0) > 0;
  return differs ? std::optional(std::move(schedule)) : std::nullopt;
}

// Large tiles gain by stores through shared memory and TMA, which the model does not know: 1 to 2 % on an H200, 12 % where
// rows of 10,000 bytes begin within a sector. Blocks that stay have no room for it.
std::optional<Schedule> stored_by_tma(const MuGraph& applied, Schedule schedule) {
  constexpr int64_t kLargeTile = 128 * 128;
  bool differs = false;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    KernelSchedule& own = schedule.kernels[k];
    const MuKernel& kernel = applied.kernels[k];
    if (!own.producer || kernel.grid[3] > 1) continue;
    const bool large = std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
      return op.kind() == BlockOp::Kind::store && op.type.element_count() >= kLargeTile;
    });
    if (!large) continue;
    own.persistent = 0;
    own.tma_store = differs = true;
  }
  return differs ? std::optional(std::move(schedule)) : std::nullopt;
}

// Best first, but what resembles others gives way to what is not much slower.
void sort_by_time(std::vector<Ranked>& all) {
  auto by = [](const Ranked& a, const Ranked& b) { return a.first < b.first; };
  std::stable_sort(all.begin(), all.end(), by);
  std::map<std::string, int> seen;
  for (auto& [us, each] : all) us *= 1 + kResemblance * seen[resemblance(each)]++;
  std::stable_sort(all.begin(), all.end(), by);
}

}  // namespace

std::vector<Implementation> rank_implementations(const Graph& graph, const std::vector<Candidate>& candidates,
                                                 const Target& target, const Constraints& constraints,
                                                 size_t most, bool allow_tf32) {
  std::vector<Ranked> ranked;
  std::set<std::string> programs;
  for (size_t i = 0; i < candidates.size(); ++i) {
    size_t taken = 0;
    const MuGraph& mugraph = candidates[i].mugraph;
    const auto model = ProgramModel::make(graph, mugraph, target);
    if (!model) continue;  // nor can it be emitted
    auto modelled = [&](const Schedule& schedule) {
      auto us = model->us(schedule);
      check(us.ok(), "a schedule of the enumeration does not fit its muGraph");
      return *us;
    };
    // Whether it is a program that was not there. `applied`: the muGraph as the schedule cuts it.
    auto take = [&](const MuGraph& applied, Schedule schedule, double us, double rank_us) {
      if (!constraints.empty() && !constraints.allow(applied)) return false;
      Schedule untiled = schedule;
      for (KernelSchedule& kernel : untiled.kernels) kernel = without_tiling(kernel);
      if (!programs.insert(text_without_names(applied) + print_schedule(untiled)).second) return false;
      ranked.push_back({rank_us, {i, std::move(schedule), us}});
      return true;
    };
    for (const Schedule& schedule : enumerate_schedules(mugraph, target, allow_tf32)) {
      if (taken == most) break;
      const auto applied = apply_schedule(mugraph, schedule);
      const double us = modelled(schedule);
      if (!take(*applied, schedule, us, us)) continue;
      ++taken;
      for (const auto& twin : {launched_for_each_tile(schedule), stored_by_tma(*applied, schedule)})
        if (twin) take(*applied, *twin, modelled(*twin), us);
    }
  }
  sort_by_time(ranked);
  std::vector<Implementation> out;
  for (auto& [us, implementation] : ranked) out.push_back(std::move(implementation));
  return out;
}

}  // namespace quern
