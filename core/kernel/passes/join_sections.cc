// Joins the sections of a draft to the setup and the body of its kernel.
#include "core/base/status.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"
#include "core/kernel/replace.h"

namespace quern::ir {

namespace {

// The number of the warp, told anew: in a loop over tiles within another one, ptxas (CUDA 13.0) keeps what is computed of it in
// registers of the warp only where it is known to be the same for the warp in that loop.
Symbol known_again(const Draft& draft, Builder& turn) {
  const Symbol again = make_variable("warp_of_tile", Scalar::i32);
  turn.let(again, call(Function::broadcast, Scalar::i32, {Expr(draft.warp)}));
  return again;
}

}  // namespace

Status join_sections(Draft& draft, const PassContext&) {
  check(!draft.loop, "a pass has made the loop");
  Builder setup(draft.kernel.setup), to(draft.kernel.body);
  for (Body* part : {&draft.thread_names, &draft.memory_names, &draft.block_names, &draft.barrier_setup})
    setup.add(std::exchange(*part, {}));
  Draft::Section& after = draft.section(Stage::after);
  if (after.begins_with_barrier) after.body.insert(after.body.begin(), draft.barrier());
  to.add(std::exchange(draft.guard, {}));
  if (draft.turns) to.add(std::exchange(draft.roles, {}));  // know the tile's place by themselves
  auto tiles_of = [&](int group) {
    Body body;
    Builder work(body);
    const Symbol settled = draft.turns ? draft.turns->settled : nullptr;
    if (settled) work.declare(settled, true);
    if (draft.finite) {
      work.declare(draft.finite);
      work.assign(element(draft.finite, 0), truth(true));
    }
    each_attempt(draft, work, settled ? element(settled, 0) : truth(true), [&](Builder& attempt) {
      if (settled) attempt.assign(element(settled, 0), truth(true));
      each_turn_of(draft, group, attempt, [&](Builder& turn) {
        const Symbol warp = draft.schedule.wgmma && draft.turns && draft.turns->attempt
                                ? known_again(draft, turn)
                                : draft.warp;
        for (const Body* part : {&draft.prologue, &draft.roles, &draft.section(Stage::before).body,
                                 &draft.loop_body, &after.body})
          turn.add(warp == draft.warp ? *part : renamed(*part, draft.warp, warp));
      });
    });
    work.add(draft.end);
    return body;
  };
  const int warps = draft.workers / 32;
  for (int group = draft.groups() - 1; group > 0; --group)
    to.add(WarpRole{"group " + std::to_string(group), group * warps,
                    with_own_numbers(draft, group * warps, tiles_of(group)), warps});
  to.add(tiles_of(0));
  for (Body* part : {&draft.prologue, &draft.roles, &draft.section(Stage::before).body, &draft.loop_body,
                     &after.body, &draft.end})
    part->clear();
  return {};
}

}  // namespace quern::ir
