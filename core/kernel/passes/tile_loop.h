// Parts of an iteration that more than one pass puts into a loop.
#pragma once

#include "core/base/status.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/draft.h"

namespace quern::ir {

// The number of an iteration of this tile among those of all tiles of the block.
Expr iteration_of_all(const Draft& draft, const Expr& iteration);
// `write(builder)` for all of the block's tiles. Persistent blocks with intervals do them a second time, unless `settled` holds for
// all threads of the block, whatever their role: that nothing which the first attempt did not visit counts.
template <class Write>
void each_attempt(const Draft& draft, Builder& to, const Expr& settled, const Write& write) {
  if (!draft.turns || !draft.turns->attempt) return write(to);
  to.rolled(draft.turns->attempt, 0, 2, [&](Builder& one) {
    one.let(draft.turns->passed,
            call(Function::all_agree, Scalar::boolean, {settled}, {draft.kernel.threads}));
    write(one);
    one.emit(Instr::warp_barrier);
  });
}

// `write(builder)` for each of the block's tiles, its place known; or for those of one group.
template <class Write>
void each_turn(const Draft& draft, Builder& to, const Write& write) {
  if (!draft.turns) return write(to);
  const TileTurns& turns = *draft.turns;
  const Expr count = turns.passed ? select(Expr(turns.passed), Expr(0), turns.count) : turns.count;
  to.rolled(turns.turn, 0, count, [&](Builder& one) {
    one.add(turns.names);
    write(one);
  });
}
template <class Write>
void each_turn_of(const Draft& draft, int group, Builder& to, const Write& write) {
  if (draft.groups() == 1) return each_turn(draft, to, write);
  const TileTurns& turns = *draft.turns;
  check(!turns.passed, "groups that take tiles in turns do all of them");
  const Symbol round = make_variable("round", Scalar::i32);
  to.let(turns.group, group);
  to.rolled(round, 0, (turns.count + (turns.groups - 1 - group)) / turns.groups, [&](Builder& one) {
    one.let(turns.turn, Expr(round) * turns.groups + group);
    one.add(turns.names);
    write(one);
  });
}

// Iterations take the stages of a ring in turn; the phase of a stage's mbarriers changes with every round.
inline Expr stage_number(const TileRing& ring, const Expr& iteration) { return iteration % ring.stages; }
inline Expr phase(const TileRing& ring, const Expr& iteration) { return iteration / ring.stages & 1; }

// Waits until at most `pending` wgmma groups are outstanding; the registers may be read then.
Body wait_for_products(const std::vector<Symbol>& sums, int pending = 0);

// Where the tiles of an iteration lie.
Body stage_tiles(const Draft& draft);
// What brings them there: all of it, by all threads; and what one thread asks TMA for. `later`: where it
// holds, tiles of inputs are asked for; elsewhere fetch_inputs() has done so.
Body fetch_tiles(const Draft& draft, const std::optional<Expr>& later = {});
Body tma_request(const Draft& draft, const std::optional<Expr>& later = {});

// Programmatic dependent launch: whether the first tiles of inputs come while the kernel in front still runs.
// Nothing else may touch memory before.
bool fetches_ahead(const Draft& draft);
// Whether tiles of the ring are of inputs.
bool has_inputs(const Draft& draft);
// These tiles, of the first `count` iterations; and the wait behind them, which is that of the threads that run this.
Body fetch_inputs(const Draft& draft, const Expr& count);
void wait_for_previous(Draft& draft, Builder& to);

// What warps from this one on do as those that compute do, with numbers of their own from 0.
Body with_own_numbers(const Draft& draft, int first_warp, const Body& work);
// What warps of their own do for such an arrival in an iteration: wait for what they make it of, make it, and tell those that compute.
Body transform_tile(const Draft& draft, const Arrival& made);
// Waits until TMA, or such warps, have brought those of this iteration.
Body tma_wait(const Draft& draft);
// A part of an iteration, behind the names that it has and the wait for tiles that it reads, but for those that
// the part `before` has waited for.
Body part_of_iteration(const Draft& draft, const Body& part, const Body& before);
void commit_copies(const Draft& draft, Builder& to);
// All but the last `pending` iterations that were asked for are there for all threads.
void wait_for_copies(const Draft& draft, Builder& to, int pending);
// Lanes of a warp that give stages back: one for each block that fills them.
Expr gives_back(const Draft& draft);
// A warp has read the tiles of an iteration, if the condition holds.
void give_back(const Draft& draft, const Expr& iteration, const Expr& condition, Builder& to);
// A warp has read what the producer has brought once for this tile.
void give_back_once(const Draft& draft, Builder& to);
// What stands in front of a loop in which all threads do the same.
Body in_front_of_loop(const Draft& draft);

}  // namespace quern::ir
