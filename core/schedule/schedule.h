// A schedule: the numbers of one implementation of a muGraph. The muGraph says what is computed and along
// which dimensions work is cut; the schedule says into how many parts, by how many warps, and how data come.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/target.h"
#include "core/mugraph/mugraph.h"
#include "core/schedule/choices.h"

namespace quern {

// Of one custom kernel; others have none to choose.
struct KernelSchedule {
  std::array<int64_t, kGridAxes> grid = {1, 1, 1, 1};
  int64_t turns = 1;
  // Warps along rows, columns and the inner dimension of matrix products; powers of two, at most 16 (512
  // threads) together. A product that is too small for its share leaves the rest of the warps to repeat it.
  std::array<int, 3> warps = {1, 1, 4};
  // Tiles of what the loop loads that are in shared memory at a time, filled by copies beside the work; 0:
  // every thread loads straight into its registers, in the order in which tensor cores take them.
  int stages = 0;
  // Straight loads of the next turn are asked for before the work of this one.
  bool ahead = true;
  // Tiles in shared memory that the copy engine can bring (sm_90) are its business; others still come by
  // cp.async. With `stages`.
  bool tma = false;
  // Products by warpgroups (wgmma, sm_90a) where operands and sizes permit: their 64 rows run along the rows
  // of the product if warps[0] counts four or more, else along its columns. With `stages`.
  bool wgmma = false;
  // It begins while the kernel in front of it still runs, and waits before it touches memory (sm_90).
  bool overlaps = false;
  // Layouts, order and shared memory where they are not as the greedy rules have them.
  BlockChoices choices = {};
  // Blocks of a multiprocessor for which the compiler must leave registers; 0: as many as come out.
  int resident = 0;
  // One warp more, which only asks the copy engine for tiles; the others wait for these and give stages back,
  // each warp when it has read them. With `tma`, and where the loop brings all tiles that way.
  bool producer = false;
  // Products of f32 operands on tensor cores, which read of an operand what tf32 has of it: 10 bits of
  // mantissa instead of 23. Only for those who allow it.
  bool tf32 = false;
  bool operator==(const KernelSchedule&) const = default;

  // Those that compute, and all.
  int workers() const { return 32 * warps[0] * warps[1] * warps[2]; }
  int threads() const { return workers() + (producer ? 32 : 0); }
};

struct Schedule {
  std::vector<KernelSchedule> kernels;  // one for each kernel of the muGraph
  bool operator==(const Schedule&) const = default;
};

// One line a kernel: "kernel grid=[96, 1, 1, 1] turns=16 warps=[1, 1, 8] stages=3 ahead=1", then " tma=1",
// " wgmma=1", " overlaps=1", " resident=2", " producer=1" and " tf32=1" if they are not 0, and where choices
// are not greedy, " layouts=[0, 1, 1] levels=[0, 0, 1] offsets=[0, 512]".
std::string print_schedule(const Schedule& schedule);
// Its inverse; lines that are empty or begin with # are passed over. INVALID_ARGUMENT: "LINE:1: what is
// wrong".
Result<Schedule> parse_schedule(std::string_view text);

// With the muGraph's own grid, turns and number of threads.
Schedule default_schedule(const MuGraph& mugraph);

// The same muGraph, cut into as many parts as the schedule says; valid, with the types of its tiles.
// INVALID_ARGUMENT when the schedule does not fit, or when another number of parts could compute something
// else (partial results that are stored, concatenations, per-tile norms).
Result<MuGraph> apply_schedule(const MuGraph& mugraph, const Schedule& schedule);

}  // namespace quern
