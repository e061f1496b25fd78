// Joins the sections of a draft to the setup and the body of its kernel.
#include "core/base/status.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern::ir {

Status join_sections(Draft& draft, const PassContext&) {
  check(!draft.loop, "a pass has made the loop");
  Builder setup(draft.kernel.setup), to(draft.kernel.body);
  for (Body* part : {&draft.thread_names, &draft.memory_names, &draft.block_names, &draft.barrier_setup})
    setup.add(std::exchange(*part, {}));
  Draft::Section& after = draft.section(Stage::after);
  if (after.begins_with_barrier) after.body.insert(after.body.begin(), draft.barrier());
  if (draft.turns) to.add(std::exchange(draft.roles, {}));  // know the tile's place by themselves
  each_turn(draft, to, [&](Builder& turn) {
    for (Body* part :
         {&draft.prologue, &draft.roles, &draft.section(Stage::before).body, &draft.loop_body, &after.body})
      turn.add(std::exchange(*part, {}));
  });
  to.add(std::exchange(draft.end, {}));
  return {};
}

}  // namespace quern::ir
