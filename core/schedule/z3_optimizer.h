// Z3 `optimize` for the choices of a block. Never linked into quernd.
#pragma once

#include <chrono>
#include <memory>

#include "core/schedule/optimizer.h"

namespace quern {

// Each question gets at most `limit`; when it is up, the best answer so far counts.
std::unique_ptr<Optimizer> make_z3_optimizer(std::chrono::milliseconds limit);

}  // namespace quern
