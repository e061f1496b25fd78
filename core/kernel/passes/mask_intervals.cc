// Masks that are intervals of iterations. What positions say of an iteration, that all of it is masked or
// nothing, is solved for the iteration, so that the block knows in front of the loop which of them are which:
//
//        0      possible.begin   certain.begin      certain.end    possible.end     trip count
//        |  all masked  |   in parts    |  nothing masked  |   in parts    |  all masked  |
//
// The loop goes through those that are masked in parts first, and through those of the middle, for which it computes no mask.
// Behind it all threads that compute look whether the rest would change anything. It would not if all that it adds
// vanishes: what exponentials are relative to lies far enough above what stands for masked numbers, and what is multiplied
// by zeros is finite. Otherwise the rest comes too, and one of the threads asks for its tiles, as the producer has ended. Blocks
// that stay, whose producer is a tile ahead, do all of their tiles again then, with all iterations. Where no block knows of all
// that is not finite, they say whether their sums are.
#include <algorithm>

#include "core/base/status.h"
#include "core/kernel/effects.h"
#include "core/kernel/iterations.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"
#include "core/kernel/replace.h"

namespace quern::ir {

namespace {

// In terms of the iteration's number, not of what an iteration names.
Expr without_names(Expr expr, const Body& names) {
  for (size_t i = names.size(); i-- > 0;)
    if (const Let* let = names[i].as<Let>()) expr = replaced(expr, let->name, let->value);
  return expr;
}

Body with_truth(const Body& body, const Symbol& variable, bool value) {
  return replaced(body, [&](const ExprNode& node) {
    return node.kind == ExprKind::symbol && node.symbol == variable ? std::optional(truth(value))
                                                                    : std::nullopt;
  });
}

// The intervals, in variables that all threads of the block know. Where one is empty it does not matter where
// it begins.
struct Intervals {
  Expr begin, possible;         // the first that is possible, and how many are
  Expr certain_begin, certain;  // the same of those of which it is certain
  Expr partly;                  // how many of the possible ones are not certain

  // `all`: whether all are taken to be possible, and none to be certain.
  Intervals(const TileLoop& loop, const Expr& all, Builder& to)
      : begin(0), possible(0), certain_begin(0), certain(0), partly(0) {
    auto let = [&](const char* name, const Expr& value) {
      return to.let(make_variable(name, Scalar::i32), value);
    };
    const Iterations some = iterations_possible(without_names(loop.masked->possible, loop.names),
                                                loop.iteration, loop.trip_count);
    begin = let("possible_begin", select(all, Expr(0), some.begin));
    const Expr end = let("possible_end", select(all, loop.trip_count, some.end));
    possible = let("possible_count", max_of(end - begin, 0));
    const Iterations clear =
        iterations_certain(without_names(loop.masked->certain, loop.names), loop.iteration, loop.trip_count);
    certain_begin = let("certain_begin", max_of(clear.begin, begin));
    certain = let("certain_count", select(all, Expr(0), max_of(min_of(clear.end, end) - certain_begin, 0)));
    partly = let("partly_count", max_of(possible - certain, 0));
  }

  Expr number_of_certain(const Expr& number) const { return certain_begin + number; }
  Expr number_of_partly(const Expr& number) const {
    return begin + number + select(less(begin + number, certain_begin), Expr(0), certain);
  }
  Expr number_of_rest(const Expr& number) const {
    return number + select(less(number, begin), Expr(0), possible);
  }
};

// Products that are under way where branches meet are made one after the other.
bool has_branches(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) {
    const auto* loop = stmt.as<For>();
    return stmt.as<If>() || (loop && loop->unroll != Unroll::full) ||
           (body_of(stmt) && has_branches(*body_of(stmt)));
  });
}

// The rest, unless nothing would come of it.
Body rest(const Draft& draft, const Intervals& intervals, const Symbol& iteration, const Expr& trip_count,
          const Body& names, const Body& work) {
  const TileLoop& loop = *draft.loop;
  const MaskedIterations& masked = *loop.masked;
  const Symbol passed = make_variable("passed", Scalar::boolean), count = make_variable("count", Scalar::i32),
               number = make_variable("number", Scalar::i32);
  Body out;
  Builder to(out);
  to.let(passed,
         call(Function::all_agree, Scalar::boolean, {element(masked.vanishes, 0)}, {draft.workers}));
  to.let(count, select(Expr(passed), Expr(0), trip_count - intervals.possible));
  to.rolled(number, 0, count, [&](Builder& one) {
    one.let(loop.iteration, intervals.possible + Expr(number));
    one.let(iteration, intervals.number_of_rest(number));
    one.add(stage_tiles(draft));
    one.add(names);
    one.add(draft.barrier());
    one.when(equal(thread_index(), 0), [&](Builder& first) { first.add(tma_request(draft)); });
    one.add(tma_wait(draft));
    one.add(work);
    one.emit(Instr::warp_barrier);
    give_back(draft, loop.iteration, equal(draft.lane, 0), one);
  });
  return out;
}

// Of a block that stays: how many iterations it visits at either of its two places, in names that all of its tiles have. Nothing
// where that depends on more than the place.
std::optional<std::array<Expr, 2>> visits_of_pair(Draft& draft) {
  const TileLoop& loop = *draft.loop;
  const TileTurns& turns = *draft.turns;
  if (!turns.paired) return std::nullopt;
  const Expr condition = without_names(without_names(loop.masked->possible, loop.names), draft.prologue);
  std::array<Expr, 2> out = {0, 0};
  bool known = true;
  for (size_t i = 0; i < out.size(); ++i) {
    const Iterations there = iterations_possible(replaced(condition, turns.paired, turns.pair[i]),
                                                 loop.iteration, loop.trip_count);
    const Expr count = max_of(there.end - there.begin, 0);
    visit_nodes(count, [&](const ExprNode& node) { known &= node.symbol == nullptr; });
    if (!known) return std::nullopt;
    out[i] = Builder(draft.block_names).let(make_variable("visits_" + std::to_string(i), Scalar::i32), count);
  }
  return out;
}

// The number of iterations in front of a tile, those of the first attempt in front of all of the second.
Expr visited_before(const TileTurns& turns, const std::array<Expr, 2>& visits, const Expr& trip_count) {
  const Expr turn(turns.turn), both_places = visits[0] + visits[1];
  return select(less(0, turns.attempt), turns.count / 2 * both_places + turn * trip_count,
                turn / 2 * both_places + select(equal(turn & 1, 0), Expr(0), visits[0]));
}

// What is not finite makes a sum with it, too, not finite. That the sum of what is finite may be so as well costs time only.
Body test_sums(const std::vector<Symbol>& all, const Symbol& found) {
  const int64_t chains = 4;  // additions that need not wait for each other
  const Symbol totals = make_registers("totals", Scalar::f32, chains);
  const Expr finite = element(found, 0);
  Body body;
  Builder to(body);
  to.declare(totals, true);
  for (const Symbol& sums : all)
    to.unrolled("r", sums->count, [&](Builder& each, const Expr& r) {
      each.assign(element(totals, r % chains), element(totals, r % chains) + element(sums, r));
    });
  Expr total = element(totals, 0);
  for (int64_t i = 1; i < chains; ++i) total = total + element(totals, i);
  to.assign(finite, both(finite, equal(total * literal(0, Scalar::f32), literal(0, Scalar::f32))));
  return body;
}

}  // namespace

Status mask_intervals(Draft& draft, const PassContext&) {
  if (!draft.loop || !draft.schedule.intervals) return {};
  TileLoop& loop = *draft.loop;
  Draft::Section& section = draft.section(Stage::loop);
  if (!loop.masked || loop.groups_stay_outstanding || section.begins_with_barrier ||
      has_barriers(section.body) || (!loop.loads.empty() && !draft.producer))
    return Status(ErrorCode::UNSUPPORTED,
                  "intervals is for loops that change nothing where positions mask all, without barriers");
  Expr second_attempt = truth(false);
  std::optional<std::array<Expr, 2>> visits;
  if (draft.turns) {
    if (!(visits = visits_of_pair(draft)))
      return Status(
          ErrorCode::UNSUPPORTED,
          "persistent blocks have intervals of masks that depend on positions along one axis of the grid");
    draft.turns->attempt = make_variable("attempt", Scalar::i32);
    draft.turns->settled = make_registers("settled", Scalar::boolean, 1);
    draft.turns->passed = make_variable("passed", Scalar::boolean);
    draft.turns->visited = make_variable("visited", Scalar::i32);
    second_attempt = less(0, draft.turns->attempt);
  }
  Builder prologue(draft.prologue);
  const Intervals intervals(loop, second_attempt, prologue);
  if (visits) prologue.let(draft.turns->visited, visited_before(*draft.turns, *visits, loop.trip_count));
  const Symbol iteration = loop.iteration, visit = make_variable("visit", Scalar::i32);
  const Expr trip_count = loop.trip_count;
  const Body names = loop.names;
  const Body masked = with_truth(section.body, loop.masked->unmasked, false);
  section.body = with_truth(section.body, loop.masked->unmasked, true);
  loop.loads = with_truth(loop.loads, loop.masked->unmasked, false);  // of all iterations
  loop.iteration = visit;
  loop.trip_count = intervals.possible;
  loop.names.clear();
  Builder to(loop.names);
  to.let(iteration, select(less(visit, intervals.partly), intervals.number_of_partly(visit),
                           intervals.number_of_certain(Expr(visit) - intervals.partly)));
  to.add(names);
  loop.first = FirstIterations{intervals.partly, masked};
  Body wait;
  if (draft.waits_for_previous && draft.only_looks_at_previous) {
    Builder to(wait);
    wait_for_previous(draft, to);
  }
  Body work = masked;
  if (draft.schedule.overlap) Builder(work).add(wait_for_products(loop.outstanding));
  // Who has no iteration waits, too, and has nothing that vanishes.
  Builder(loop.declared).declare(loop.masked->vanishes, true);
  const bool beside = draft.schedule.overlap && !has_branches(loop.masked->look);
  Builder look(beside ? loop.beside_last : loop.behind), behind(loop.behind);
  look.add(wait);
  look.add(loop.masked->look);
  if (beside) behind.add(wait);
  if (!draft.turns) behind.add(rest(draft, intervals, iteration, trip_count, names, work));
  if (draft.finite) behind.add(test_sums(loop.masked->sums, draft.finite));
  if (!draft.turns) return {};
  const Expr settled = element(draft.turns->settled, 0);
  behind.assign(settled, both(settled, either(equal(intervals.possible, trip_count),
                                              element(loop.masked->vanishes, 0))));
  return {};
}

}  // namespace quern::ir
