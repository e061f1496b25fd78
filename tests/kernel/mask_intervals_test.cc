// Masks as intervals of iterations: what is solved for the iteration, against all iterations one by one; and
// what the pass makes of a loop.
#include "core/base/random.h"
#include "core/kernel/builder.h"
#include "core/kernel/iterations.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/ranges.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

constexpr int64_t kTrips = 7;

struct Conditions {
  Symbol iteration = make_variable("i", Scalar::i32), row = make_variable("row", Scalar::i32);
  Random random{20};

  // Of what grows with the iteration, falls, or stays; with the row in it.
  Expr position() {
    const int64_t slope = static_cast<int64_t>(random.below(7)) - 3,
                  first = static_cast<int64_t>(random.below(41)) - 20;
    Expr out = Expr(first) + Expr(iteration) * slope;
    return random.below(2) ? out + Expr(row) : out - Expr(row) * 2;
  }
  Expr comparison() {
    return random.below(2) ? less(position(), position()) : less_equal(position(), position());
  }
  Expr condition(int depth) {
    switch (depth == 0 ? 3 : random.below(4)) {
      case 0:
        return both(condition(depth - 1), condition(depth - 1));
      case 1:
        return either(condition(depth - 1), condition(depth - 1));
      case 2:
        return equal(condition(depth - 1), truth(false));
      default:
        return random.below(5) ? comparison() : less(row, 4);
    }
  }
  bool holds(const Expr& condition, int64_t i, int64_t r) const { return number(condition, i, r) != 0; }
  int64_t number(const Expr& expr, int64_t i, int64_t r) const {
    Ranges known{LaunchShape{}};
    known.set(*iteration, {i, i});
    known.set(*row, {r, r});
    const Interval value = known.of(expr);
    assert_true(value.is_one());
    return value.low;
  }
};

void intervals_hold_what_they_say(void**) {
  Conditions make;
  size_t some = 0;
  for (int round = 0; round < 3000; ++round) {
    const int depth = round % 4;
    const Expr condition = make.condition(depth);
    const Iterations possible = iterations_possible(condition, make.iteration, kTrips),
                     certain = iterations_certain(condition, make.iteration, kTrips);
    for (int64_t row : {0, 3, 9}) {
      const int64_t from = make.number(possible.begin, 0, row), to = make.number(possible.end, 0, row),
                    first = make.number(certain.begin, 0, row), last = make.number(certain.end, 0, row);
      for (int64_t i = 0; i < kTrips; ++i) {
        const bool holds = make.holds(condition, i, row), inside = from <= i && i < to,
                   sure = first <= i && i < last;
        assert_true(!holds || inside);
        assert_true(!sure || holds);
        // One comparison is decided exactly.
        if (depth == 0) assert_true(inside == holds && sure == holds);
        some += sure;
      }
      assert_true(0 <= from && from <= kTrips && to <= kTrips && 0 <= first && first <= kTrips &&
                  last <= kTrips);
    }
  }
  assert_true(some > 1000);
}

void what_is_not_affine_is_not_known(void**) {
  const Conditions make;
  const Expr square = less(Expr(make.iteration) * Expr(make.iteration), 10);
  const Iterations possible = iterations_possible(square, make.iteration, kTrips),
                   certain = iterations_certain(square, make.iteration, kTrips);
  assert_true(possible.begin.is_number(0) && possible.end.is_number(kTrips));
  assert_true(certain.end.is_number(0));
}

Draft masked_draft() {
  const Symbol memory = make_memory("shared", Space::shared, Scalar::byte),
               stage = make_pointer("stage", memory, Scalar::byte),
               tile = make_pointer("tile", stage, Scalar::f32), iteration = make_variable("i", Scalar::i32),
               first = make_variable("first", Scalar::i32), sums = make_registers("sums", Scalar::f32, 1);
  Draft out;
  out.kernel.name = "masked";
  out.kernel.threads = 160;
  out.workers = 128;
  out.lane = make_variable("lane", Scalar::i32);
  out.warp = make_variable("warp", Scalar::i32);
  out.memory = memory;
  out.producer = out.schedule.producer = out.schedule.intervals = true;
  out.schedule.stages = 2;
  out.ring.stage = stage;
  out.ring.stages = 2;
  out.ring.tiles = {{tile, 256}};
  out.ring.offset = 0;
  out.ring.maps = {make_memory("map0", Space::tensor_map, Scalar::tensor_map)};
  out.ring.full = make_memory("full", Space::shared, Scalar::mbarrier);
  out.ring.empty = make_memory("empty", Space::shared, Scalar::mbarrier);
  out.ring.arrivals = {{make_pointer("arrived", out.ring.full, Scalar::mbarrier), {}, 256, {tile}}};
  TileLoop loop;
  loop.iteration = iteration;
  loop.trip_count = 8;
  Builder(loop.declared).declare(sums, true);
  Builder(loop.names).let(first, Expr(iteration) * 16);
  MaskedIterations masked;
  masked.possible = less_equal(Expr(first), block_index(0) * 16 + 15);
  masked.certain = less_equal(Expr(first) + 15, block_index(0) * 16);
  masked.vanishes = make_registers("vanishes", Scalar::boolean, 1);
  masked.unmasked = make_variable("unmasked", Scalar::boolean);
  Builder(masked.look).assign(element(masked.vanishes, 0), less(0, element(sums, 0)));
  Builder(out.section(Stage::loop).body)
      .assign(element(sums, 0), select(either(Expr(masked.unmasked), less(first, thread_index())),
                                       element(tile, 0), literal(0, Scalar::f32)));
  loop.masked = std::move(masked);
  out.loop = std::move(loop);
  return out;
}

Status run(Draft& draft, const std::string& name) {
  Chooser chooser({}, nullptr);
  for (const Pass& pass : passes())
    if (pass.name == name) return pass.run(draft, {*find_target("sm_90a").value(), chooser});
  fail_test("there is such a pass");
  return {};
}

// First come those that compute a mask; what is behind the loop asks for tiles itself.
void masked_iterations_come_first(void**) {
  Draft draft = masked_draft();
  assert_ok(run(draft, "mask_intervals"));
  assert_text_equal(print_cuda(draft.prologue), R"(const int possible_begin = 0;
const int possible_end = int(min(max(static_cast<long long>(int(blockIdx.x) * 16 + 15) + 1ll + 15ll, 0ll) / 16, 8ll));
const int possible_count = max(possible_end - possible_begin, 0);
const int certain_begin = max(0, possible_begin);
const int certain_count = max(min(int(min(max(static_cast<long long>(int(blockIdx.x) * 16) - 15ll + 1ll + 15ll, 0ll) / 16, 8ll)), possible_end) - certain_begin, 0);
const int partly_count = max(possible_count - certain_count, 0);
)");
  assert_ok(run(draft, "specialize_warps"));
  assert_text_equal(print_cuda(draft.loop_body), R"(float sums[1] = {};
bool vanishes[1] = {};
#pragma unroll 1
for (int visit = 0; visit < partly_count; ++visit) {
  unsigned char* const stage = shared + visit % 2 * 256;
  float* const tile = reinterpret_cast<float*>(stage);
  const int i = visit < partly_count ? possible_begin + visit + (possible_begin + visit < certain_begin ? 0 : certain_count) : certain_begin + (visit - partly_count);
  const int first = i * 16;
  mbarrier_wait(full + visit % 2, visit / 2 & 1);
  sums[0] = first < int(threadIdx.x) ? tile[0] : 0.000000000e+00f;
  __syncwarp();
  if (lane == 0) {
    mbarrier_arrive(empty + visit % 2);
  }
}
#pragma unroll 1
for (int visit = partly_count; visit < possible_count; ++visit) {
  unsigned char* const stage = shared + visit % 2 * 256;
  float* const tile = reinterpret_cast<float*>(stage);
  const int i = visit < partly_count ? possible_begin + visit + (possible_begin + visit < certain_begin ? 0 : certain_count) : certain_begin + (visit - partly_count);
  const int first = i * 16;
  mbarrier_wait(full + visit % 2, visit / 2 & 1);
  sums[0] = tile[0];
  __syncwarp();
  if (lane == 0) {
    mbarrier_arrive(empty + visit % 2);
  }
}
vanishes[0] = 0 < sums[0];
const bool passed = all_agree<128>(vanishes[0]);
const int count = passed ? 0 : 8 - possible_count;
#pragma unroll 1
for (int number = 0; number < count; ++number) {
  const int visit = possible_count + number;
  const int i = number + (number < possible_begin ? 0 : possible_count);
  unsigned char* const stage = shared + visit % 2 * 256;
  float* const tile = reinterpret_cast<float*>(stage);
  const int first = i * 16;
  barrier_of<128>();
  if (int(threadIdx.x) == 0) {
    Mbarrier* const arrived = full + visit % 2;
    mbarrier_arrive_expect(arrived, 256);
  }
  mbarrier_wait(full + visit % 2, visit / 2 & 1);
  sums[0] = first < int(threadIdx.x) ? tile[0] : 0.000000000e+00f;
  __syncwarp();
  if (lane == 0) {
    mbarrier_arrive(empty + visit % 2);
  }
}
)");
}

void others_are_refused(void**) {
  auto refused = [](const auto& change) {
    Draft draft = masked_draft();
    change(draft);
    assert_error(run(draft, "mask_intervals"), ErrorCode::UNSUPPORTED,
                 "intervals is for loops that change nothing");
  };
  refused([](Draft& draft) { draft.loop->masked.reset(); });
  refused([](Draft& draft) { draft.loop->groups_stay_outstanding = true; });
  refused([](Draft& draft) { draft.section(Stage::loop).begins_with_barrier = true; });
  refused([](Draft& draft) { Builder(draft.section(Stage::loop).body).emit(Instr::block_barrier); });
  Draft without = masked_draft();
  without.schedule.intervals = false;
  assert_ok(run(without, "mask_intervals"));
  assert_true(without.prologue.empty() && without.loop->behind.empty());
}

// A block that stays has two tiles again and again, so that it knows how many iterations were before; it tries again where
// something of what it did not visit counts.
Draft staying_draft(const std::optional<Expr>& other_row = {}) {
  Draft draft = masked_draft();
  TileTurns& turns = draft.turns.emplace();
  turns.turn = make_variable("turn", Scalar::i32);
  turns.count = 6;
  turns.paired = make_variable("tile_x", Scalar::i32);
  turns.pair = {Expr(3) - block_index(1), block_index(1)};
  Builder(turns.names)
      .let(turns.paired, select(equal(Expr(turns.turn) & 1, 0), turns.pair[0], turns.pair[1]));
  const Symbol first_row = make_variable("first_row", Scalar::i32);
  Builder(draft.prologue).let(first_row, other_row.value_or(Expr(turns.paired)) * 16);
  draft.loop->masked->possible = less_equal(Expr(draft.loop->names[0].as<Let>()->name), Expr(first_row) + 15);
  return draft;
}

void blocks_that_stay_know_how_many_were_before(void**) {
  Draft draft = staying_draft();
  draft.schedule.wgmma = true;  // which reads what is known to be the same for the warp
  assert_ok(run(draft, "mask_intervals"));
  assert_text_equal(
      print_cuda(draft.block_names),
      R"(const int visits_0 = max(int(min(max(static_cast<long long>((3 - int(blockIdx.y)) * 16 + 15) + 1ll + 15ll, 0ll) / 16, 8ll)), 0);
const int visits_1 = max(int(min(max(static_cast<long long>(int(blockIdx.y) * 16 + 15) + 1ll + 15ll, 0ll) / 16, 8ll)), 0);
)");
  assert_text_equal(print_cuda(draft.prologue), R"(const int first_row = tile_x * 16;
const int possible_begin = 0 < attempt ? 0 : 0;
const int possible_end = 0 < attempt ? 8 : int(min(max(static_cast<long long>(first_row + 15) + 1ll + 15ll, 0ll) / 16, 8ll));
const int possible_count = max(possible_end - possible_begin, 0);
const int certain_begin = max(0, possible_begin);
const int certain_count = 0 < attempt ? 0 : max(min(int(min(max(static_cast<long long>(int(blockIdx.x) * 16) - 15ll + 1ll + 15ll, 0ll) / 16, 8ll)), possible_end) - certain_begin, 0);
const int partly_count = max(possible_count - certain_count, 0);
const int visited = 0 < attempt ? 3 * (visits_0 + visits_1) + turn * 8 : turn / 2 * (visits_0 + visits_1) + ((turn & 1) == 0 ? 0 : visits_0);
)");
  assert_text_equal(print_cuda(draft.loop->behind), R"(vanishes[0] = 0 < sums[0];
settled[0] = settled[0] && (possible_count == 8 || vanishes[0]);
)");
  assert_ok(run(draft, "specialize_warps"));
  assert_ok(run(draft, "join_sections"));
  const std::string body = print_cuda(draft.kernel.body);
  for (const char* text :
       {"const bool passed = all_agree<160>(0 < attempt);", "const bool passed = all_agree<160>(settled[0]);",
        "for (int turn = 0; turn < (passed ? 0 : 6); ++turn)", "settled[0] = true;",
        "const int warp_of_tile = broadcast(warp);",
        "mbarrier_wait(empty + (visited + visit) % 2, (visited + visit) / 2 & 1 ^ 1);",
        "mbarrier_wait(full + (visited + visit) % 2, (visited + visit) / 2 & 1);"})
    assert_contains(body, text);
}

void what_other_axes_decide_is_refused_to_them(void**) {
  for (const Expr& row :
       {Expr(make_variable("tile_y", Scalar::i32)), Expr(make_variable("length", Scalar::i32)) + 1}) {
    Draft draft = staying_draft(row);
    assert_error(run(draft, "mask_intervals"), ErrorCode::UNSUPPORTED, "along one axis of the grid");
  }
  Draft unpaired = staying_draft();
  unpaired.turns->paired = nullptr;
  assert_error(run(unpaired, "mask_intervals"), ErrorCode::UNSUPPORTED, "along one axis of the grid");
}

// What the launch in front has written is waited for where it is read, and by the producer at its end.
void only_looking_waits_late(void**) {
  Draft draft = masked_draft();
  draft.waits_for_previous = draft.only_looks_at_previous = true;
  draft.launches_dependents = LaunchesDependents::at_once;
  assert_ok(run(draft, "mask_intervals"));
  assert_false(draft.waits_for_previous);
  assert_true(draft.launches_dependents == LaunchesDependents::never);
  const std::string behind = print_cuda(draft.loop->behind);
  assert_true(behind.find("grid_wait();\ngrid_launch_dependents();\nvanishes[0] = ") !=
              std::string::npos);
  assert_ok(run(draft, "specialize_warps"));
  const std::string roles = print_cuda(draft.roles);
  assert_true(roles.find("grid_wait();") != std::string::npos);
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {cmocka_unit_test(intervals_hold_what_they_say),
                              cmocka_unit_test(what_is_not_affine_is_not_known),
                              cmocka_unit_test(masked_iterations_come_first),
                              cmocka_unit_test(others_are_refused),
                              cmocka_unit_test(blocks_that_stay_know_how_many_were_before),
                              cmocka_unit_test(what_other_axes_decide_is_refused_to_them),
                              cmocka_unit_test(only_looking_waits_late)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
