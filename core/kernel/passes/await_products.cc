// The last statement of an iteration waits for the wgmma groups that it has left outstanding. Where the
// loop's groups may stay outstanding, it waits for those of the iteration before it.
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern::ir {

Status await_products(Draft& draft, const PassContext&) {
  if (!draft.loop || draft.schedule.overlap) return {};
  const std::vector<Symbol>& sums = draft.loop->outstanding;
  Builder to(draft.section(Stage::loop).body);
  if (draft.loop->groups_stay_outstanding)
    to.emit(Instr::wgmma_wait, {}, {static_cast<int>(sums.size())});
  else
    to.add(wait_for_products(sums));
  return {};
}

}  // namespace quern::ir
