// The job of a worker on a GPU: from the programs of a graph to the one that is fastest there.
#pragma once

#include <functional>
#include <memory>

#include "capi/wire/messages.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"
#include "core/profile/bench.h"
#include "daemon/worker.h"

namespace quern {

// The GPU for the programs of one graph; `tf32`: those that compute f32 products in tf32 may come.
using OpenGraphBench = std::function<Result<std::unique_ptr<Bench>>(const Graph& graph, bool tf32)>;

// `compiler` may be null, and is not used when it is not that of the key. INVALID_GRAPH, UNSUPPORTED
// (target), CORRUPT (programs); BUSY when others use the GPU, NO_DEVICE when it is lost, OUT_OF_MEMORY when
// the graph does not fit there.
Result<wire::JobDone> run_measure(Compiler* compiler, const OpenGraphBench& open, const wire::Job& job,
                                  const WorkerSkill::Send& send);

// What GPU `number` is, as a timing depends on it; and how many there are.
GpuState find_gpu(int number, uint32_t& count);

}  // namespace quern
