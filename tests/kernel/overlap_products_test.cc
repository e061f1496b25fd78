// Products that are overlapped with what threads compute: which part of an iteration goes where.
#include "core/kernel/branches.h"
#include "core/kernel/builder.h"
#include "core/kernel/effects.h"
#include "core/kernel/passes/passes.h"
#include "tests/support/test.h"

namespace quern::ir {
namespace {

// An iteration as attention has it, small: scores of a tile, what is made of them, and sums of that with the
// same tile.
struct Attention {
  int columns = 8;  // of the last products
  Symbol memory = make_memory("shared", Space::shared, Scalar::byte),
         stage = make_pointer("stage", memory, Scalar::byte), tile = make_pointer("tile", stage, Scalar::f16),
         iteration = make_variable("i", Scalar::i32), lane = make_variable("lane", Scalar::i32),
         warp = make_variable("warp", Scalar::i32), scores = make_registers("scores", Scalar::f32, 4),
         powers = make_registers("powers", Scalar::f32, 4),
         largest = make_registers("largest", Scalar::f32, 1), words = make_registers("words", Scalar::u32, 4),
         total = make_registers("total", Scalar::f32, 2), sums = make_registers("sums", Scalar::f32, 4),
         full = make_memory("full", Space::shared, Scalar::mbarrier),
         empty = make_memory("empty", Space::shared, Scalar::mbarrier),
         map = make_memory("map0", Space::tensor_map, Scalar::tensor_map);

  Draft draft() const {
    Draft out;
    out.kernel.name = "attention";
    out.kernel.threads = out.workers = 128;
    out.lane = lane;
    out.warp = warp;
    out.memory = memory;
    out.producer = out.schedule.producer = out.schedule.wgmma = out.schedule.overlap = true;
    out.schedule.stages = 3;
    out.loop.emplace();
    out.loop->iteration = iteration;
    out.loop->trip_count = 8;
    out.loop->outstanding = {sums};
    Builder(out.loop->declared).declare(sums, true);
    out.ring.stage = stage;
    out.ring.stages = 3;
    out.ring.tiles = {{tile, 256}};
    out.ring.offset = 0;
    out.ring.maps = {map};
    out.ring.full = full;
    out.ring.arrivals = {{make_pointer("arrived", full, Scalar::mbarrier), {}, 256, {tile}}};
    out.ring.empty = empty;
    out.section(Stage::loop).body = work();
    return out;
  }

  Body work() const {
    Body out;
    Builder to(out);
    to.declare(scores);
    to.emit(Instr::wgmma_fence);
    to.emit(Instr::wgmma_shared, {address(scores, 0), address(tile, 0), address(tile, 0), less(0, 0)},
            {Scalar::f16, 8});
    to.emit(Instr::wgmma_commit);
    to.emit(Instr::wgmma_wait, {}, {0});
    to.emit(Instr::wgmma_landed, {scores});
    to.assign(element(largest, 0), element(scores, 0));
    to.declare(powers);
    to.unrolled("r", 4, [&](Builder& each, const Expr& r) {
      each.assign(element(powers, r), element(scores, r) - element(largest, 0));
    });
    to.unrolled("r", 4, [&](Builder& each, const Expr& r) {
      each.assign(element(sums, r), element(sums, r) * element(largest, 0));
    });
    to.declare(words);
    to.unrolled("w", 4, [&](Builder& each, const Expr& w) {
      each.assign(element(words, w), cast(element(powers, w), Scalar::u32));
    });
    to.emit(Instr::wgmma_fence);
    to.emit(Instr::wgmma, {address(sums, 0), address(words, 0), address(tile, 64)}, {Scalar::f16, columns});
    to.emit(Instr::wgmma_commit);
    return out;
  }
};

Status overlap(Draft& draft) {
  Chooser chooser({}, nullptr);
  for (const Pass& pass : passes())
    if (pass.name == std::string("overlap_products"))
      return pass.run(draft, {*find_target("sm_90a").value(), chooser});
  fail_test("there is such a pass");
  return {};
}

// What changes sums and operands of products under way waits for them; powers lie where scores were.
void the_last_products_are_issued_behind_the_next_first(void**) {
  Draft draft = Attention().draft();
  assert_ok(overlap(draft));
  assert_text_equal(print_cuda(draft.loop_body), R"(float sums[4] = {};
float scores[4];
unsigned words[4];
{
  const int i = 0;
  unsigned char* const stage = shared + i % 3 * 256;
  f16* const tile = reinterpret_cast<f16*>(stage);
  mbarrier_wait(full + i % 3, i / 3 & 1);
  wgmma_fence();
  wgmma<f16, 8>(&scores[0], tile, tile, false);
  wgmma_commit();
}
wgmma_wait<0>();
wgmma_landed(scores);
{
  const int i = 0;
  largest[0] = scores[0];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    scores[r] = scores[r] - largest[0];
  }
}
{
  const int i = 0;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    sums[r] = sums[r] * largest[0];
  }
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    words[w] = unsigned(scores[w]);
  }
}
#pragma unroll 1
for (int step = 1; step < 8; ++step) {
  {
    const int i = step;
    unsigned char* const stage = shared + i % 3 * 256;
    f16* const tile = reinterpret_cast<f16*>(stage);
    mbarrier_wait(full + i % 3, i / 3 & 1);
    wgmma_fence();
    wgmma<f16, 8>(&scores[0], tile, tile, false);
    wgmma_commit();
  }
  {
    const int i = step - 1;
    unsigned char* const stage = shared + i % 3 * 256;
    f16* const tile = reinterpret_cast<f16*>(stage);
    wgmma_fence();
    wgmma<f16, 8>(&sums[0], &words[0], tile + 64);
    wgmma_commit();
  }
  wgmma_wait<1>();
  wgmma_landed(scores);
  {
    const int i = step;
    largest[0] = scores[0];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      scores[r] = scores[r] - largest[0];
    }
  }
  wgmma_wait<0>();
  wgmma_landed(sums);
  __syncwarp();
  if (lane == 0) {
    mbarrier_arrive(empty + (step - 1) % 3);
  }
  {
    const int i = step;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sums[r] = sums[r] * largest[0];
    }
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      words[w] = unsigned(scores[w]);
    }
  }
}
{
  const int i = 7;
  unsigned char* const stage = shared + i % 3 * 256;
  f16* const tile = reinterpret_cast<f16*>(stage);
  wgmma_fence();
  wgmma<f16, 8>(&sums[0], &words[0], tile + 64);
  wgmma_commit();
}
wgmma_wait<0>();
wgmma_landed(sums);
__syncwarp();
if (lane == 0) {
  mbarrier_arrive(empty + 1);
}
)");
}

// The first iterations make something else; what may be done beside products is done beside the last.
void first_iterations_have_masks(void**) {
  const Attention names;
  Draft draft = names.draft();
  draft.schedule.intervals = true;
  draft.loop->masked.emplace();
  const Symbol count = make_variable("count", Scalar::i32), found = make_registers("found", Scalar::i32, 1);
  Body masked = names.work();
  for (Stmt& stmt : masked)
    if (auto* assign = std::get_if<Assign>(&stmt.is)) assign->value = select(less(Expr(names.iteration), 5), assign->value, literal(0, Scalar::f32));
  draft.loop->first = FirstIterations{Expr(count), masked};
  Builder(draft.loop->beside_last).assign(element(found, 0), 1);
  assert_ok(overlap(draft));
  const std::string text = print_cuda(draft.loop_body);
  const char kMasked[] = "largest[0] = i < 5 ? scores[0] : 0.000000000e+00f;", kPlain[] = "largest[0] = scores[0];";
  const size_t first = text.find("for (int step = 1; step < count; ++step) {"),
               rest = text.find("for (int step = max(count, 1); step < 8; ++step) {"), end = text.find("found[0] = 1;");
  assert_true(first != std::string::npos && rest != std::string::npos && end != std::string::npos);
  // In front of the loops, in the first, in the second.
  assert_true(text.find(kMasked) < first);
  assert_true(first < text.find(kMasked, first) && text.find(kMasked, first) < rest);
  assert_true(rest < text.find(kPlain) && text.find(kMasked, rest) == std::string::npos);
  const std::string behind = text.substr(end);
  assert_true(text.rfind("wgmma_commit();", end) != std::string::npos &&
              text.find("wgmma_wait", text.rfind("wgmma_commit();", end)) > end);
  assert_contains(behind, "wgmma_wait<0>();");
  // Other products of the first iterations cannot be taken for those of the others.
  Draft other = names.draft();
  other.schedule.intervals = true;
  other.loop->masked.emplace();
  masked.erase(std::find_if(masked.begin(), masked.end(), [](const Stmt& stmt) { return stmt.as<Instruction>(); }));
  other.loop->first = FirstIterations{Expr(count), masked};
  assert_error(overlap(other), ErrorCode::UNSUPPORTED, "overlap is for loops");
}

void others_are_refused(void**) {
  const Attention names;
  auto refused = [&](const auto& change) {
    Draft draft = names.draft();
    change(draft);
    assert_error(overlap(draft), ErrorCode::UNSUPPORTED,
                 "overlap is for loops whose last products are of what is made of others");
  };
  refused([](Draft& draft) { draft.loop->trip_count = 1; });
  refused([](Draft& draft) { draft.loop->masked.emplace(); });
  refused([](Draft& draft) { draft.section(Stage::loop).begins_with_barrier = true; });
  refused([](Draft& draft) { Builder(draft.section(Stage::loop).body).emit(Instr::block_barrier); });
  // Nothing waits for the first products: there is nothing to overlap with.
  refused([](Draft& draft) {
    std::erase_if(draft.section(Stage::loop).body, [](const Stmt& stmt) {
      const auto* instruction = stmt.as<Instruction>();
      return instruction && instruction->code == Instr::wgmma_wait;
    });
  });
}

// Scores that are needed again stay what they are.
void arrays_that_are_needed_keep_their_place(void**) {
  const Attention names;
  Draft draft = names.draft();
  Builder(draft.section(Stage::loop).body).assign(element(names.largest, 0), element(names.scores, 3));
  assert_ok(overlap(draft));
  assert_contains(print_cuda(draft.loop_body), "powers[r] = scores[r] - largest[0];");
}

// A loop may not issue wgmma with a left operand that lives through it, which ptxas would lose, where compilers branch around
// an arm of several operations.
void left_operands_do_not_live_beside_branches(void**) {
  const Symbol words = make_registers("words", Scalar::u32, 4),
               scores = make_registers("scores", Scalar::f32, 16),
               chosen = make_registers("chosen", Scalar::f32, 16), i = make_variable("i", Scalar::i32),
               tile = make_memory("tile", Space::shared, Scalar::f16);
  Body body;
  auto is_confused = [&](const Expr& arm, bool left_is_new) {
    body.clear();
    Builder(body).rolled(i, 0, 8, [&](Builder& to) {
      if (left_is_new) to.assign(element(words, 0), cast(Expr(i), Scalar::u32));
      to.emit(Instr::wgmma, {address(scores, 0), address(words, 0), address(tile, 0)}, {Scalar::f16, 8});
      to.unrolled("r", 16, [&](Builder& each, const Expr& r) {
        each.assign(element(chosen, r), select(less(i, r), arm, literal(0, Scalar::f32)));
      });
    });
    return confuses_wgmma(body);
  };
  const Expr score = element(scores, Expr(i) * 3 + 1), scaled = score * literal(2, Scalar::f32),
             biased = (scaled + score) * (score - scaled);
  assert_false(is_confused(score, false));
  assert_false(is_confused(scaled, false));
  assert_true(is_confused(biased, false));
  const Body computed = without_branches(body);
  assert_false(confuses_wgmma(computed));
  assert_contains(print_cuda(computed), "const float either0 = ");
  assert_contains(print_cuda(computed), "chosen[r] = i < r ? either0 : 0.000000000e+00f;");
  assert_false(is_confused(biased, true));
}

// Two warpgroups: each issues its products when the other one has.
void warpgroups_issue_their_products_in_turns(void**) {
  Draft draft = Attention().draft();
  draft.kernel.threads = draft.workers = 256;
  assert_ok(overlap(draft));
  assert_text_equal(print_cuda(draft.roles), "order_begin<256>(warp / 4);\n");
  const std::string text = print_cuda(draft.loop_body);
  size_t at = 0;
  for (const char* next :
       {"mbarrier_wait", "order_wait<256>(warp / 4);", "&scores[0]", "order_arrive<256>(warp / 4);",
        "wgmma_wait<0>();", "int step", "mbarrier_wait", "order_wait<256>(warp / 4);", "&scores[0]",
        "&sums[0]", "order_arrive<256>(warp / 4);", "wgmma_wait<1>();"}) {
    at = text.find(next, at + 1);
    if (at == text.npos) print_error("%s\n", next);
    assert_true(at != text.npos);
  }
  assert_true(text.find("order_", at) == text.npos);
}

// Behind long products of warpgroups in turns, half of what is summed is there before anybody waits for them.
void half_of_the_sums_is_computed_in_front_of_the_wait(void**) {
  auto loop_of = [](int columns, int workers) {
    const Attention names{.columns = columns};
    Draft draft = names.draft();
    draft.kernel.threads = draft.workers = workers;
    Body& body = draft.section(Stage::loop).body;
    Body sum;
    Builder(sum).unrolled("r", 4, [&](Builder& each, const Expr& r) {
      const Expr total = element(names.total, r % 2);
      each.assign(total, total + element(names.powers, r));
    });
    const auto powers =
        std::find_if(body.begin(), body.end(), [](const Stmt& stmt) { return stmt.as<For>(); });
    body.insert(powers + 1, sum.begin(), sum.end());
    assert_ok(overlap(draft));
    return print_cuda(draft.loop_body);
  };
  const std::string text = loop_of(128, 256);
  const size_t summed = text.find("total[r % 2] +", text.find("wgmma_wait<1>();")),
               fence = text.find("schedule_fence(total[0]);"), waits = text.find("wgmma_wait<0>();", summed);
  assert_true(summed < fence && fence < waits && waits != text.npos);
  assert_true(text.find("schedule_fence(", fence + 1) == text.npos);
  assert_true(loop_of(128, 128).find("schedule_fence(") == text.npos);
  assert_true(loop_of(64, 256).find("schedule_fence(") == text.npos);
}

}  // namespace
}  // namespace quern::ir

int main() {
  using namespace quern::ir;
  const CMUnitTest tests[] = {cmocka_unit_test(warpgroups_issue_their_products_in_turns),
                              cmocka_unit_test(half_of_the_sums_is_computed_in_front_of_the_wait),
                              cmocka_unit_test(the_last_products_are_issued_behind_the_next_first),
                              cmocka_unit_test(first_iterations_have_masks),
                              cmocka_unit_test(others_are_refused),
                              cmocka_unit_test(arrays_that_are_needed_keep_their_place),
                              cmocka_unit_test(left_operands_do_not_live_beside_branches)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
