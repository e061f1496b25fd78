#include "core/optimize/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "core/base/dtype_info.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/schedule/enumerate.h"
#include "core/schedule/joined.h"
#include "core/schedule/model.h"
#include "core/schedule/tensor_place.h"

namespace quern {

namespace {

// Of an implementation that resembles others: it counts as so much slower for each of these in front of it.
constexpr double kResemblance = 0.03;
// Schedules of a candidate, however far behind it is, where the list is tapered.
constexpr size_t kFewest = 8;
// Schedules that are looked at for each that is taken.
constexpr size_t kMostSeen = 16;
// And where all kernels are varied at once; what is so much slower than the best of its kernels is none that measuring might
// find faster, and may be tiles that take the compiler half a minute.
constexpr size_t kMostVaried = 1024;
constexpr double kMuchSlower = 1.5;
// How kernels are cut that take less is worth no try: of all of the time; and makes nearly the same program: of the
// longest kernel's.
constexpr double kLittle = 0.15, kMinor = 0.5;

// Names tensors by the order in which kernels have them.
void name_by_use(MuGraph& mugraph) {
  for (MuTensor& tensor : mugraph.tensors) tensor.name.clear();
  size_t named = 0;
  auto name = [&](int32_t tensor) {
    std::string& own = mugraph.tensors[static_cast<size_t>(tensor)].name;
    if (own.empty()) own = "t" + std::to_string(named++);
  };
  auto name_all = [&](const std::vector<int32_t>& tensors) {
    std::for_each(tensors.begin(), tensors.end(), name);
  };
  name_all(mugraph.inputs);
  for (const MuKernel& kernel : mugraph.kernels) {
    name_all(kernel.operands);
    if (kernel.result >= 0) name(kernel.result);
    for (const BlockOp& op : kernel.ops)
      if (op.has_access()) name(op.tensor());
  }
  name_all(mugraph.outputs);
}

// The scheduled muGraph without names: candidates that differ in their own grid alone, or in the order of their
// tensors, become one program.
std::string text_without_names(MuGraph applied) {
  applied.name.clear();
  name_by_use(applied);
  for (MuKernel& kernel : applied.kernels) {
    kernel.threads = 0;
    for (BlockOp& op : kernel.ops) op.name.clear();
  }
  std::istringstream text(print_mugraph(applied));
  std::multiset<std::string> declared;
  std::string rest;
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("tensor "))
      declared.insert(line);
    else
      rest += line + "\n";
  for (const std::string& line : declared) rest += line + "\n";
  return rest;
}

// What each kernel of the muGraph takes by the model, of those that a schedule cuts.
std::vector<double> kernel_times(const ProgramModel& model, const MuGraph& applied,
                                 const Schedule& schedule) {
  std::vector<double> out;
  for (size_t k = 0; k < schedule.kernels.size(); ++k)
    out.push_back(applied.kernels[k].custom ? model.launch(applied, schedule, k).us : 0);
  return out;
}

// What the launches of these kernels take.
double launches_us(const ProgramModel& model, const Schedule& schedule, const Neighbours& of) {
  const MuGraph applied = model.applied(schedule);
  double us = 0;
  for (size_t k = of.first; k < of.end; ++k)
    if (applied.kernels[k].custom && !schedule.kernels[k].joined) us += model.launch(applied, schedule, k).us;
  return us;
}

// The schedule without kernels that take less than `us`.
Schedule without_short_kernels(Schedule schedule, const std::vector<double>& times, double us) {
  for (size_t k = 0; times.size() > 1 && k < times.size(); ++k)
    if (times[k] < us) schedule.kernels[k] = {};
  return schedule;
}

// What programs that are nearly the same have in common: candidate, tiles, warps and data path. Twins of a program, which
// stay, store or share in another way, have that of it.
std::string resemblance(size_t candidate, Schedule schedule) {
  for (KernelSchedule& kernel : schedule.kernels) {
    if (!kernel.overlap) kernel.tile_k = 0;  // there it decides, and the model does not know well how
    kernel.stages = 1;
    kernel.min_blocks = 0;
    kernel.persistent = 0;
    kernel.producer = false;
  }
  return std::to_string(candidate) + "\n" + print_schedule(schedule);
}

// A program, the time by which it is ranked, and what it resembles.
struct Ranked {
  double us;
  Implementation implementation;
  std::string resemblance;
};

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

constexpr int64_t kLargeTile = 128 * 128, kTileOfPairs = 64 * 128;  // elements, at least

bool stores_tile_of(const MuKernel& kernel, int64_t elements) {
  return std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
    return op.kind() == BlockOp::Kind::store && op.type.element_count() >= elements;
  });
}

// Large tiles gain by stores through shared memory and TMA, which the model does not know: 1 to 2 % on an
// H200, 12 % where rows of 10,000 bytes begin within a sector. Blocks that stay have no room for it.
std::optional<Schedule> stored_by_tma(const MuGraph& applied, Schedule schedule) {
  bool differs = false;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    KernelSchedule& own = schedule.kernels[k];
    const MuKernel& kernel = applied.kernels[k];
    if (!own.producer || own.pingpong || kernel.grid[3] > 1 || !stores_tile_of(kernel, kLargeTile)) continue;
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
  return std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
    return op.is_load() && op.loop_dim() >= 0 && op.map()[along] < 0 &&
           rows_straddle_lines(applied, op.tensor());
  });
}

// Whether pairs of blocks along the axis load the same in their loops.
bool share_all_tiles(const MuKernel& kernel, int axis) {
  const auto along = static_cast<size_t>(axis);
  return std::all_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
    return !op.is_load() || op.loop_dim() < 0 || op.map()[along] < 0;
  });
}

// Whether loading takes about as long as computing.
bool asks_for_much(const KernelTime& time) { return time.memory_us > 0.8 * time.compute_us; }

// Pairs of blocks along the axis that load what they have in common once. The model knows of the bytes alone,
// and a pair waits for both of its blocks: 1 us lost to nothing gained where rows begin with lines of the
// cache (H200), up to a third gained where each is two. Persistent blocks of attention without masks gain 1 to 2 %, small tiles
// that ask for much 2 to 13 % (666 x 2048 x 2048 by 96 x 128: 16.6 us, in pairs 16.3; out of the L2 cache 16.8 and 14.7).
std::optional<Schedule> shared_by_pairs(const ProgramModel& model, const MuGraph& applied,
                                        const Schedule& schedule, int axis) {
  Schedule out = schedule;
  bool differs = false;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const KernelSchedule& own = schedule.kernels[k];
    const MuKernel& kernel = applied.kernels[k];
    if (kernel.grid[3] > 1 || is_joined(schedule, k) || kernel.grid[static_cast<size_t>(axis)] % 2 != 0)
      continue;
    KernelSchedule paired = own;
    paired.multicast[static_cast<size_t>(axis)] = 2;
    if (!check_fields(paired).ok()) continue;
    const bool stay = own.overlap && own.persistent > 0 && share_all_tiles(kernel, axis);
    auto gains = [&] {
      return shares_straddling_rows(applied, kernel, axis) ||
             (own.persistent == 0 && asks_for_much(model.launch(applied, schedule, k)));
    };
    if (!stay && !(stores_tile_of(kernel, kTileOfPairs) && gains())) continue;
    out.kernels[k] = std::move(paired);
    differs = true;
  }
  return differs ? std::optional(std::move(out)) : std::nullopt;
}

// One stage more for its pairs: whoever waits for another block is the faster the more tiles are there (62.9
// us with three, 53.9 with four).
Schedule with_deeper_rings(Schedule schedule) {
  for (KernelSchedule& kernel : schedule.kernels) kernel.stages += kernel.multicast_blocks() > 1;
  return schedule;
}

// Best first, but what resembles others gives way to what is not much slower.
void sort_by_time(std::vector<Ranked>& all) {
  auto by = [](const Ranked& a, const Ranked& b) { return a.us < b.us; };
  std::stable_sort(all.begin(), all.end(), by);
  std::map<std::string, int> seen;
  for (Ranked& each : all) each.us *= 1 + kResemblance * seen[each.resemblance]++;
  std::stable_sort(all.begin(), all.end(), by);
}

// Of a list in which each schedule varies some neighbours, the others being at their best: those that vary these, best first, what
// resembles others later, without the best, which is the first of all.
std::vector<Schedule> ways_of(const ProgramModel& model, const std::vector<Schedule>& all,
                              const Neighbours& of) {
  const double best_us = launches_us(model, all[0], of), rest_us = *model.us(all[0]) - best_us;
  std::vector<Ranked> ranked;
  for (const Schedule& schedule : all) {
    const Schedule own = kernels_of(schedule, of);
    if (&schedule != &all[0] && own == kernels_of(all[0], of)) continue;
    const double us = *model.us(schedule) - rest_us;
    ranked.push_back({us, {0, schedule, us}, resemblance(0, own)});
  }
  sort_by_time(ranked);
  std::vector<Schedule> out;
  for (Ranked& each : ranked) {
    Implementation& way = each.implementation;
    if (!(way.schedule == all[0]) && way.us < kMuchSlower * best_us) out.push_back(std::move(way.schedule));
  }
  return out;
}

}  // namespace

Ranking::Ranking(const Graph& graph, const std::vector<Candidate>& candidates, const Target& target,
                 const EnumeratorOptions& options)
    : candidates_(candidates), schedules_(target, options) {
  for (const Candidate& candidate : candidates) {
    auto model = ProgramModel::make(graph, candidate.mugraph, target);
    models_.push_back(model ? std::optional(std::move(*model)) : std::nullopt);
  }
}

std::vector<Implementation> Ranking::rank(const Constraints& constraints, size_t most,
                                          const RefuseKernel& refuse, bool tapered) {
  std::vector<Ranked> ranked;
  std::set<std::string> programs;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    size_t taken = 0;
    std::set<std::string> known;
    const MuGraph& mugraph = candidates_[i].mugraph;
    const std::optional<ProgramModel>& model = models_[i];
    if (!model) continue;
    const size_t own_most = tapered ? std::min(most, std::max(kFewest, most / (i + 1))) : most;
    auto modelled = [&](const Schedule& schedule) {
      const auto us = model->us(schedule);
      check(us.ok(), "a schedule of the enumeration does not fit its muGraph");
      return *us;
    };
    // Whether it is a program that was not there. `applied`: the muGraph as the schedule cuts it.
    auto take = [&](const MuGraph& applied, Schedule schedule, double us, double rank_us,
                    const std::string& resembles) {
      if (!constraints.empty() && !constraints.allow(applied)) return false;
      Schedule untiled = schedule;
      for (KernelSchedule& kernel : untiled.kernels) kernel = without_tiling(kernel);
      if (!programs.insert(text_without_names(applied) + print_schedule(untiled)).second) return false;
      ranked.push_back({rank_us, {i, std::move(schedule), us}, resembles});
      return true;
    };
    for (const Schedule& schedule : schedules_.enumerate(mugraph, kMostSeen * own_most, refuse)) {
      if (taken == own_most) break;
      const auto applied = apply_schedule(mugraph, schedule);
      check(applied.ok(), "a schedule of the enumeration does not fit its muGraph");
      const double us = model->us(*applied, schedule);
      const std::vector<double> times = kernel_times(*model, *applied, schedule);
      if (!known.insert(print_schedule(without_short_kernels(schedule, times, kLittle * us))).second)
        continue;
      const double longest = *std::max_element(times.begin(), times.end());
      const std::string resembles = resemblance(i, without_short_kernels(schedule, times, kMinor * longest));
      if (!take(*applied, schedule, us, us, resembles)) continue;
      ++taken;
      for (const auto& twin : {launched_for_each_tile(schedule), stored_by_tma(*applied, schedule)})
        if (twin) take(*applied, *twin, modelled(*twin), us, resembles);
      for (const int axis : {0, 1, 2})
        if (const auto pairs = shared_by_pairs(*model, *applied, schedule, axis)) {
          const Schedule deeper = with_deeper_rings(*pairs);
          const double deeper_us = modelled(deeper);
          if (std::isfinite(deeper_us))
            take(*applied, deeper, deeper_us, us, resembles);
          else
            take(*applied, *pairs, modelled(*pairs), us, resembles);
        }
    }
  }
  sort_by_time(ranked);
  std::vector<Implementation> out;
  for (Ranked& each : ranked) out.push_back(std::move(each.implementation));
  return out;
}

std::vector<Implementation> Ranking::vary_all(size_t candidate, const Constraints& constraints, size_t most,
                                              const RefuseKernel& refuse) {
  const MuGraph& mugraph = candidates_[candidate].mugraph;
  const std::optional<ProgramModel>& model = models_[candidate];
  const std::vector<Schedule> all =
      model ? schedules_.enumerate(mugraph, kMostVaried, refuse) : std::vector<Schedule>();
  if (all.empty()) return {};
  std::vector<std::vector<Schedule>> ways;
  for (const Neighbours& each : independent_neighbours(mugraph))
    if (mugraph.kernels[each.first].custom) ways.push_back(ways_of(*model, all, each));
  if (ways.size() < 2) return {};
  std::vector<Implementation> out;
  for (size_t n = 0; out.size() < most; ++n) {
    Schedule schedule = all[0];
    bool differs = false;
    for (const std::vector<Schedule>& own : ways) {
      if (n >= own.size()) continue;
      differs = true;
      for (size_t k = 0; k < schedule.kernels.size(); ++k)
        if (!(own[n].kernels[k] == all[0].kernels[k])) schedule.kernels[k] = own[n].kernels[k];
    }
    if (!differs) break;
    const auto applied = apply_schedule(mugraph, schedule);
    const double us = applied ? model->us(*applied, schedule) : std::numeric_limits<double>::infinity();
    if (std::isfinite(us) && (constraints.empty() || constraints.allow(*applied)))
      out.push_back({candidate, std::move(schedule), us});
  }
  return out;
}

std::vector<size_t> best_of_each_first(const std::vector<Implementation>& ranked) {
  std::vector<size_t> first, rest;
  std::set<size_t> seen;
  for (size_t rank = 0; rank < ranked.size(); ++rank)
    (seen.insert(ranked[rank].candidate).second ? first : rest).push_back(rank);
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

std::vector<Implementation> rank_implementations(const Graph& graph, const std::vector<Candidate>& candidates,
                                                 const Target& target, const Constraints& constraints,
                                                 size_t most, bool allow_tf32, const RefuseKernel& refuse) {
  return Ranking(graph, candidates, target, {.allow_tf32 = allow_tf32}).rank(constraints, most, refuse);
}

}  // namespace quern
