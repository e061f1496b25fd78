// The baseline emitter: a correct program for every valid graph, at once and without search.
//
// decompose -> prepare (split long sums, remove empty ones) -> partition into kernels -> one text a kernel.
// Kernels fuse elementwise chains into the reductions and matrix products they feed or follow; what crosses
// from one kernel to the next lies in a planned workspace, as f32, i32 or bool, or in its own dtype where
// tensor cores read it.
#pragma once

#include <string>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "core/codegen/launch_work.h"
#include "core/graph/graph.h"
#include "core/kernel/ir.h"
#include "core/kernel/launch_facts.h"
#include "core/kernel/passes/passes.h"

namespace quern {

// The kernel of a launch, or of a part of a joined one (core/kernel/join.h), and what is known of what it is
// launched on.
struct LaunchedKernel {
  ir::Kernel kernel;
  ir::LaunchFacts facts;
  size_t launch = 0;  // of the plan
};

struct Emitted {
  std::string source;            // prelude_text() and the kernels: a complete program for NVRTC
  std::string kernels;           // the kernels alone, for whoever brings another prelude
  Plan plan;                     // tier baseline, with everything but the cubin
  std::vector<LaunchWork> work;  // of each of `code`; of a program of muGraphs empty
  std::vector<LaunchedKernel> code;  // of each launch, in order; of a joined one each part
};

// Deterministic: the same graph and target give the same bytes. No valid graph is refused. The observer sees
// every kernel after each pass. `alone`: when a program of one kernel lets what is launched behind it begin;
// kernels of others do at their end. `prefix`: of the kernels' names, for those that are part of another program.
Result<Emitted> emit_baseline(const Graph& graph, const Target& target, const ir::PassObserver& observer = {},
                              ir::LaunchesDependents alone = ir::LaunchesDependents::never,
                              const std::string& prefix = {});

}  // namespace quern
