// The job of a real worker in the background: from canonical graph text to the plan of tier modelled that the
// search leads to.
#pragma once

#include <functional>

#include "capi/wire/messages.h"
#include "core/jit/compiler.h"
#include "core/search/piece_memo.h"
#include "daemon/workers.h"

namespace quern {

// Without a plan, and with the reason in its findings, when the search leads to none. INVALID_GRAPH,
// INVALID_ARGUMENT (constraints), UNSUPPORTED (target).
// `memo` is that of the worker: graphs that share a piece share its result. `send` is told what counts if the
// worker is killed for its time.
Result<wire::JobDone> run_optimize(Compiler& compiler, PieceMemo& memo, const wire::Job& job,
                                   const std::function<void(const wire::JobProgress&)>& send = {});

}  // namespace quern
