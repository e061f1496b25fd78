// Runs a plan on the CPU as a GPU may run it, and watches every step: out-of-bounds, misaligned and
// uninitialised accesses, races, divergent or missing synchronisation, undefined arithmetic and outputs left
// unwritten are errors.
//
// Blocks of a cluster run together. Stricter than a GPU: shuffles and votes order no memory (only __syncwarp
// of the whole warp and __syncthreads do), and threads that have ended may not be missing at a barrier or
// collective.
//
// Not seen: a thread's own uninitialised variables (they hold a pattern that spoils results), and a block
// larger than its __launch_bounds__. Needs 25 bytes for each byte of outputs and workspace, 1 for each of
// inputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/plan.h"
#include "core/base/status.h"
#include "core/emulator/compile.h"

namespace quern::emulated {

struct EmulatorOptions {
  uint64_t seed = 1;  // of the order in which threads and blocks run
};

// The program of a plan: `text` is what was emitted for it after the prelude.
ProgramSource make_source(std::string text, const Plan& plan);

// The outputs of one run of the plan's launches, TensorDesc::span() elements each. inputs[i] holds the bytes
// of plan.inputs[i], likewise. Buffers are aligned to what Plan promises and no further, everything the plan
// must not rely on is poisoned. INVALID_ARGUMENT if the plan does not fit the program, the inputs or the
// GPU's limits; INTERNAL for a rule that a kernel broke, with kernel, block, thread, line, address and rule.
// One run at a time for programs of one compile_programs call.
Result<std::vector<std::string>> run_plan(Program& program, const Plan& plan,
                                          std::span<const std::string_view> inputs,
                                          const EmulatorOptions& options = {});

}  // namespace quern::emulated
