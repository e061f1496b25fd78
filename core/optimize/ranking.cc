#include "core/optimize/ranking.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/base/dtype_info.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/schedule/enumerate.h"
#include "core/schedule/model.h"
#include "core/schedule/tensor_place.h"

namespace quern {

namespace {

// Of an implementation that resembles others: it counts as so much slower for each of these in front of it.
constexpr double kResemblance = 0.03;
// Schedules that are looked at for each that is taken.
constexpr size_t kMostSeen = 16;

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

// The schedule without kernels that take little of the time: how these are cut makes no other program worth a try.
std::string essentials(const MuGraph& applied, Schedule schedule, double us, const Target& target) {
  constexpr double kLittle = 0.15;
  if (schedule.kernels.size() > 1)
    for (size_t k = 0; k < schedule.kernels.size(); ++k)
      if (applied.kernels[k].custom && modelled_launch(applied, schedule, k, target).us < kLittle * us)
        schedule.kernels[k] = {};
  return print_schedule(schedule);
}

// A program, and the time by which it is ranked.
using Ranked = std::pair<double, Implementation>;

// Staying takes registers, and whether they are there only the compiler says: the same with a block for each
// tile is ranked beside it.
std::optional<Schedule> launched_for_each_tile(Schedule schedule) {
  bool differs = false;
  for (KernelSchedule& kernel : schedule.kernels) {
    if (kernel.pingpong) return std::nullopt;
    differs |= std::exchange(kernel.persistent, 0) > 0;
  }
  return differs ? std::optional(std::move(schedule)) : std::nullopt;
}

bool stores_large_tile(const MuKernel& kernel) {
  constexpr int64_t kLargeTile = 128 * 128;
  return std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
    return op.kind() == BlockOp::Kind::store && op.type.element_count() >= kLargeTile;
  });
}

// Large tiles gain by stores through shared memory and TMA, which the model does not know: 1 to 2 % on an
// H200, 12 % where rows of 10,000 bytes begin within a sector. Blocks that stay have no room for it.
std::optional<Schedule> stored_by_tma(const MuGraph& applied, Schedule schedule) {
  bool differs = false;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    KernelSchedule& own = schedule.kernels[k];
    const MuKernel& kernel = applied.kernels[k];
    if (!own.producer || own.pingpong || kernel.grid[3] > 1 || !stores_large_tile(kernel)) continue;
    own.persistent = 0;
    own.tma_store = differs = true;
  }
  return differs ? std::optional(std::move(schedule)) : std::nullopt;
}

// Whether rows of the tensor begin within lines of the L2 cache, so that parts of them as long as a line are
// in two.
bool rows_straddle_lines(const MuGraph& mugraph, int32_t tensor) {
  constexpr int64_t kLine = 128;
  const TensorPlace place = dense_place(mugraph, tensor);
  for (size_t d = 0; d < place.shape.size(); ++d)
    if (place.shape[d] > 1 && place.strides[d] > 1 &&
        place.strides[d] * static_cast<int64_t>(dtype_size(place.dtype)) % kLine != 0)
      return true;
  return false;
}

// Whether pairs of blocks along the axis load rows that straddle lines, and both the same.
bool shares_straddling_rows(const MuGraph& applied, const MuKernel& kernel, int axis) {
  const auto along = static_cast<size_t>(axis);
  return kernel.grid[along] % 2 == 0 &&
         std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
           return op.is_load() && op.loop_dim() >= 0 && op.map()[along] < 0 &&
                  rows_straddle_lines(applied, op.tensor());
         });
}

// Pairs of blocks along the axis that load what they have in common once. The model knows of the bytes alone,
// and a pair waits for both of its blocks: 1 us lost to nothing gained where rows begin with lines of the
// cache (H200), up to a third gained where each is two.
std::optional<Schedule> shared_by_pairs(const MuGraph& applied, Schedule schedule, int axis) {
  bool differs = false;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    KernelSchedule& own = schedule.kernels[k];
    const MuKernel& kernel = applied.kernels[k];
    const LaunchedKernels launch = launch_of(schedule, k);
    if (!own.producer || !own.wgmma || own.intervals || own.pingpong || kernel.grid[3] > 1 ||
        !stores_large_tile(kernel) || launch.end - launch.first > 1 || own.persistent % 2 != 0 ||
        !shares_straddling_rows(applied, kernel, axis))
      continue;
    own.multicast[static_cast<size_t>(axis)] = 2;
    differs = true;
  }
  return differs ? std::optional(std::move(schedule)) : std::nullopt;
}

// One stage more for its pairs: whoever waits for another block is the faster the more tiles are there (62.9
// us with three, 53.9 with four).
Schedule with_deeper_rings(Schedule schedule) {
  for (KernelSchedule& kernel : schedule.kernels) kernel.stages += kernel.multicast_blocks() > 1;
  return schedule;
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
    size_t taken = 0, seen = 0;
    std::set<std::string> known;
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
      if (taken == most || ++seen > kMostSeen * most) break;
      const auto applied = apply_schedule(mugraph, schedule);
      const double us = modelled(schedule);
      if (!known.insert(essentials(*applied, schedule, us, target)).second) continue;
      if (!take(*applied, schedule, us, us)) continue;
      ++taken;
      for (const auto& twin : {launched_for_each_tile(schedule), stored_by_tma(*applied, schedule)})
        if (twin) take(*applied, *twin, modelled(*twin), us);
      for (const int axis : {0, 1, 2})
        if (const auto pairs = shared_by_pairs(*applied, schedule, axis)) {
          const Schedule deeper = with_deeper_rings(*pairs);
          const double deeper_us = modelled(deeper);
          if (std::isfinite(deeper_us))
            take(*applied, deeper, deeper_us, us);
          else
            take(*applied, *pairs, modelled(*pairs), us);
        }
    }
  }
  sort_by_time(ranked);
  std::vector<Implementation> out;
  for (auto& [us, implementation] : ranked) out.push_back(std::move(implementation));
  return out;
}

}  // namespace quern
