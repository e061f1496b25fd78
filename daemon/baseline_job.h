// The job of a real worker: from canonical graph text to the plan of tier baseline.
#pragma once

#include <string>

#include "core/jit/compiler.h"
#include "daemon/workers.h"

namespace quern {

// INVALID_GRAPH, UNSUPPORTED (target), or COMPILE with the compiler's log.
Result<wire::JobDone> compile_baseline(Compiler& compiler, const std::string& graph,
                                       const std::string& target);

}  // namespace quern
