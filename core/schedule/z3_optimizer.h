// Z3 `optimize` for the choices of a block. Never linked into quernd.
#pragma once

#include <chrono>
#include <memory>

#include "core/schedule/optimizer.h"

namespace quern {

// A block has up to five questions; with this limit, emitting it stays well below the time of compiling it.
inline constexpr std::chrono::milliseconds kChoiceLimit{20};

// Each question gets at most `limit`; when it is up, the best answer so far counts. Null in a build without
// libz3: then choices are greedy.
std::unique_ptr<Optimizer> make_z3_optimizer(std::chrono::milliseconds limit);

}  // namespace quern
