// Programmatic dependent launch: a kernel that begins while the one before it ends waits for that before it
// touches memory, and tells the GPU when the next one may begin.
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"

namespace quern::ir {

Status overlap_kernels(Draft& draft, const PassContext&) {
  Builder setup(draft.kernel.setup);
  if (draft.waits_for_previous) setup.emit(Instr::grid_wait);
  if (draft.launches_dependents == LaunchesDependents::at_once) setup.emit(Instr::grid_launch_dependents);
  if (draft.launches_dependents == LaunchesDependents::at_end)
    Builder(draft.kernel.body).emit(Instr::grid_launch_dependents);
  return {};
}

}  // namespace quern::ir
