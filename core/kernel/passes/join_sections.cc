// Joins the sections of a draft to the setup and the body of its kernel.
#include "core/base/status.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"

namespace quern::ir {

Status join_sections(Draft& draft, const PassContext&) {
  check(!draft.loop, "a pass has made the loop");
  Builder setup(draft.kernel.setup), to(draft.kernel.body);
  for (Body* part : {&draft.thread_names, &draft.memory_names, &draft.block_names, &draft.barrier_setup})
    setup.add(std::exchange(*part, {}));
  Draft::Section& after = draft.section(Stage::after);
  if (after.begins_with_barrier) after.body.insert(after.body.begin(), draft.barrier());
  for (Body* part : {&draft.prologue, &draft.roles, &draft.section(Stage::before).body, &draft.loop_body,
                     &after.body, &draft.end})
    to.add(std::exchange(*part, {}));
  return {};
}

}  // namespace quern::ir
