// Passes over the work of iterations that are masked wholly. Whether one is, positions say; whether it then
// changes nothing, all threads that compute look at together: they agree by a barrier, which other
// iterations do not have.
#include "core/kernel/builder.h"
#include "core/kernel/effects.h"
#include "core/kernel/passes/passes.h"

namespace quern::ir {

Status skip_masked_tiles(Draft& draft, const PassContext&) {
  if (!draft.loop || !draft.loop->masked || draft.loop->groups_stay_outstanding || draft.schedule.overlap ||
      draft.schedule.intervals)
    return {};
  Draft::Section& section = draft.section(Stage::loop);
  if (has_barriers(section.body) || (!draft.loop->loads.empty() && !draft.producer)) return {};
  const MaskedIterations& masked = *draft.loop->masked;
  const Symbol possible = make_variable("possible", Scalar::boolean),
               busy = make_variable("busy", Scalar::boolean);
  const Expr no = truth(false);
  Body guarded;
  Builder to(guarded);
  to.let(possible, masked.possible);
  to.declare(masked.vanishes, true);
  to.when(equal(Expr(possible), no), [&](Builder& none) { none.add(masked.look); });
  const Expr agreed =
      call(Function::all_agree, Scalar::boolean, {element(masked.vanishes, 0)}, {draft.workers});
  to.let(busy, either(Expr(possible), equal(agreed, no)));
  to.when(Expr(busy), [&](Builder& work) { work.add(std::move(section.body)); });
  section.body = std::move(guarded);
  return {};
}

}  // namespace quern::ir
