// A schedule: the numbers of one implementation of a muGraph. The muGraph says what is computed and along
// which dimensions work is cut; the schedule says how large tiles are, how many warps work on them, and how
// data come.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/target.h"
#include "core/mugraph/mugraph.h"
#include "core/schedule/choices.h"

namespace quern {

constexpr int kMaxWarps = 16;
constexpr int64_t kTransformRegisters = 48;      // that threads which make operands need
constexpr int64_t kSubPartitionRegisters = 512;  // of each lane
constexpr int64_t kMaxExtent = 0x7fffffff;
using TileExtents = std::array<int64_t, 3>;
using WarpCounts = std::array<int, 3>;
using ClusterShape = std::array<int, 3>;
constexpr bool are_powers_of_two(const WarpCounts& warps) {
  for (int count : warps)
    if (count < 1 || (count & (count - 1)) != 0) return false;
  return true;
}

// Three warpgroups that have rows, or columns, of their own.
constexpr bool are_three_warpgroups(const WarpCounts& warps) {
  return warps == WarpCounts{12, 1, 1} || warps == WarpCounts{1, 12, 1};
}

// Of one custom kernel; others have none to choose. Fields and what they mean: schedule.def.
struct KernelSchedule {
#define QUERN_SCHEDULE_FIELD(type, name, value, ...) type name = value;
#include "core/schedule/schedule.def"
  // Layouts, order and shared memory where they are not as the greedy rules have them.
  BlockChoices choices = {};
  bool operator==(const KernelSchedule&) const = default;

  // Those that compute a tile, groups of them, those of all groups, those that make operands for them, and all.
  int workers() const { return 32 * warps[0] * warps[1] * warps[2]; }
  int groups() const { return pingpong ? 2 : 1; }
  int computing() const { return groups() * workers(); }
  int transforming() const { return transform ? workers() : 0; }
  int threads() const { return computing() + transforming() + (setmaxnreg ? 128 : producer ? 32 : 0); }
  // Blocks that share tiles by TMA multicast.
  int multicast_blocks() const { return multicast[0] * multicast[1] * multicast[2]; }
  // Registers that a thread can have at most: all from the beginning, and those that compute then.
  int64_t launch_registers() const;
  int64_t most_registers() const;
  // With setmaxnreg, of the producer's warpgroup; and, with transform, of those that make operands: what others leave,
  // kTransformRegisters at least.
  static constexpr int64_t kProducerRegisters = 24;
  int64_t transform_registers() const;
};

struct Schedule {
  std::vector<KernelSchedule> kernels;  // one for each kernel of the muGraph
  bool operator==(const Schedule&) const = default;
};

// One line a kernel: "kernel tile=[64, 1, 1] warps=[4, 1, 1] stages=3 tma=1", without the fields that are at
// their defaults, and where choices are not greedy, " layouts=[0, 1, 1] levels=[0, 0, 1] offsets=[0, 512]".
std::string print_schedule(const Schedule& schedule);
// Its inverse; lines that are empty or begin with # are passed over. INVALID_ARGUMENT: "LINE:1: what is
// wrong".
Result<Schedule> parse_schedule(std::string_view text);

// What each field is for: its row in the table of docs/mugraphs.md.
std::string schedule_field_table();

// INVALID_ARGUMENT, "FIELD requires WHAT", where a field has a value that others do not go with.
Status check_fields(const KernelSchedule& schedule);

// Kernels of one launch, half open: one, or several that are joined.
struct LaunchedKernels {
  size_t first, end;
};
// That of kernel number `k`.
LaunchedKernels launch_of(const Schedule& schedule, size_t k);
// Whether kernel `k` shares its launch with others.
bool is_joined(const Schedule& schedule, size_t k);

// The extent of what an axis of the grid cuts, or, for kGridAxes, of what the loop cuts of a block's part; 0
// if nothing. INVALID_ARGUMENT if it cuts dimensions of different extents: tile sizes say nothing then.
Result<int64_t> cut_extent(const MuGraph& mugraph, const MuKernel& kernel, int axis);

// The same with the muGraph's own tiles.
KernelSchedule without_tiling(KernelSchedule schedule);

// The muGraph's own tiles, by about its number of threads.
Schedule default_schedule(const MuGraph& mugraph);

// The same muGraph, cut into as many parts as the schedule says; valid, with the types of its tiles.
// INVALID_ARGUMENT when the schedule does not fit, or when another number of parts could compute something
// else (partial results that are stored, concatenations, per-tile norms).
Result<MuGraph> apply_schedule(const MuGraph& mugraph, const Schedule& schedule);

}  // namespace quern
