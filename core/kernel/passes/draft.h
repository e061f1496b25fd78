// A kernel between lowering and its final form: what lowering has decided, in sections. Passes (passes.def)
// order and complete the sections one by one; the last but one joins them to the body of a kernel.
#pragma once

#include <array>

#include "core/kernel/passes/steps.h"
#include "core/schedule/schedule.h"

namespace quern::ir {

// What brings tiles: of inputs, as far as nobody writes them while the kernel runs, and of other tensors.
struct Copies {
  Body of_inputs, others;
  bool empty() const { return of_inputs.empty() && others.empty(); }
  Body all() const;
};

// What one thread asks TMA for in an iteration and hears of at one mbarrier of its stage: those tiles, of so many bytes. Or what
// warps of their own make of other tiles of the stage (`transform`), each of which arrives there.
struct Arrival {
  Symbol barrier;  // that of this iteration
  Copies copies;
  int64_t bytes = 0;
  std::vector<Symbol> tiles = {};
  Body transform_once = {}, transform = {};  // in front of the loop; in an iteration
  bool is_made() const { return !transform.empty(); }
};

// Tiles in shared memory that come for iterations to be: as many iterations ahead as the ring has stages but
// one.
struct TileRing {
  struct Tile {
    Symbol memory;  // where it lies in this iteration
    int64_t bytes = 0;
    // That of a tile which it takes the place of, with no bytes of its own: each warp writes what it has read there.
    Symbol over = nullptr;
  };
  Symbol stage;  // that of this iteration
  int stages = 0;
  std::vector<Tile> tiles;
  Copies cp_async;  // what all threads copy in an iteration
  bool cp_async_for_wgmma = false;
  // By TMA: all tiles of a stage at one mbarrier, or at several where an iteration does not read them at the same time.
  // `full` are those of all stages, `empty` those that the producer waits for.
  std::vector<Arrival> arrivals;
  std::vector<Symbol> maps;
  Symbol full, empty;
  // What a producer asks for once, in front of the loop, and the mbarrier at which it comes; in blocks that stay once a
  // tile, when `once_read` says that all warps have read what there was.
  Copies once;
  int64_t once_bytes = 0;
  Symbol arrived_once, once_read;
  // As of SharedBuffer; `barriers_at` is the offset of the mbarriers.
  int64_t alignment = 128;
  int first = 0, last = 0;
  int64_t offset = -1, barriers_at = -1;

  int64_t stage_bytes() const;
  bool asks_tma_for(Body Copies::*which) const;
};

// A product that the next iteration issues: a cooperatively produced tile in one of `copies` buffers, and
// registers.
struct PipelinedProduct {
  Body group, rest;  // its instructions; what an iteration does when it has landed
  std::vector<Symbol> sums;
  Symbol tile, previous_tile, buffer;
  int copies = 1;
  int64_t tile_bytes = 0;
};

// Iterations that change nothing where they are masked wholly.
struct MaskedIterations {
  // Something of the iteration may not be masked; nothing of it is: the same for all threads.
  Expr possible = 1, certain = 1;
  Body look;  // where none is possible: sets `vanishes`, whether what this thread knows of vanishes
  Symbol vanishes;
  Symbol unmasked;  // with `intervals`: masks hold where it does, or their conditions do
  // Whether these sums are finite is for a launch behind to know (Draft::finite).
  std::vector<Symbol> sums;
};

// The first iterations of a loop, where they have a body of their own.
struct FirstIterations {
  Expr count = 0;
  Body body;
};

struct TileLoop {
  Symbol iteration;
  Expr trip_count = 1;
  Body declared;  // in front of it
  Body names;     // of an iteration, wherever its tiles are named
  // Loads into registers; with `prefetch` those of the next iteration, which `take` makes those of this one.
  Body loads, take;
  bool prefetch = false;
  // Sums of wgmma groups that are outstanding when an iteration has issued all. With
  // `groups_stay_outstanding` the next iteration may begin before they have landed.
  std::vector<Symbol> outstanding;
  bool groups_stay_outstanding = false;
  std::optional<PipelinedProduct> pipelined;
  std::optional<MaskedIterations> masked;
  std::optional<FirstIterations> first;
  Body beside_last;  // what threads that compute may do while the last products are under way,
  Body behind;       // and after the loop
};

// Blocks that stay: what they do is done again for each of their tiles. With two groups of workers these take the tiles
// in turns (ping-pong): a group has the loop of its tile when the other has gone through that of the tile before.
struct TileTurns {
  Symbol turn;
  Expr count = 1;
  Body names;  // of a turn: the tile's place
  int groups = 1;
  Symbol group, may_begin;  // the number of those who run this; an mbarrier for each group
  // With intervals: a block has the same two places along one axis again and again, one in even turns and one in odd ones, so
  // that it knows how many iterations there were before (`visited`).
  Symbol paired, visited;
  std::array<Expr, 2> pair = {0, 0};
  // And it does all of its tiles a second time, and all iterations of them, unless all threads have `settled` that those that
  // were not visited change nothing: `passed`.
  // Without intervals `passed` may say that there is nothing to do (Draft::guard).
  Symbol attempt, settled, passed;
};

// Programmatic dependent launch: when the next kernel may begin.
enum class LaunchesDependents : uint8_t { never, at_once, at_end };

struct DraftCosts {
  int barriers_once = 0, barriers_per_iteration = 0;
  int listed_once = 0, listed_per_iteration = 0;  // barriers if steps stayed in the order of the muGraph
  int64_t shared_bytes = 0;
};

struct Draft {
  // What all passes leave as it is. `schedule`: what was asked for, of the baseline nothing; `workers`:
  // threads that compute a tile; a producer warp follows those of all groups.
  Kernel kernel;
  KernelSchedule schedule = {};
  Symbol lane, warp;  // the thread's number in its warp, and the warp's in the block
  Symbol memory;      // the block's shared memory
  int workers = 0;
  bool producer = false;
  bool waits_for_previous = false;      // for the kernel before it, which may still run
  bool only_looks_at_previous = false;  // nothing but MaskedIterations::look reads what that writes
  bool waits_late = false;              // every role and body waits where a pass has put that
  LaunchesDependents launches_dependents = LaunchesDependents::never;

  // The first tiles of the ring are asked for before what stands in front of the loop, which loads as well (order_steps).
  bool fetches_first = false;

  // Names of the thread, and of the block's place: they touch no memory.
  Body thread_names, block_names;
  Body prologue, end;
  Body guard;     // reads whether there is anything to do: sets TileTurns::passed
  Symbol finite;  // whether what this thread has summed is, of all tiles
  std::vector<SharedBuffer> buffers;
  TileRing ring;
  struct Section {
    StepList steps;  // until order_steps makes `body` of them
    Body body;
    bool begins_with_barrier = false;
  };
  std::array<Section, 3> sections;  // before, in and after the loop
  std::optional<TileTurns> turns;
  std::optional<TileLoop> loop;  // until a pass makes `loop_body` of it and of its section

  // Made by passes.
  Body memory_names, barrier_setup, roles, loop_body;
  DraftCosts costs;

  Section& section(Stage stage) { return sections[static_cast<size_t>(stage)]; }
  const Section& section(Stage stage) const { return sections[static_cast<size_t>(stage)]; }
  int groups() const { return turns ? turns->groups : 1; }
  int64_t mbarrier_bytes() const;
  // Of the threads that compute.
  Stmt barrier() const;
};

// As far as it is filled, for readers (print_ir.h).
std::string print_ir(const Draft& draft);

}  // namespace quern::ir
