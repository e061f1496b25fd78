// A plan as text and as JSON: what `get`, `show` and `run` print of it.
#pragma once

#include <string>
#include <vector>

#include "core/base/plan.h"
#include "tools/output.h"

namespace quern {

// Gives inputs and outputs the names that a request has for them; a list of another length is left alone.
void name_buffers(Plan& plan, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);

// Kernels with grid, block, cluster, shared memory and arguments.
std::string launches_text(const Plan& plan);
std::string tensors_text(const Plan& plan);
Json launches_json(const Plan& plan);
// Everything but the bytes of the cubin.
Json plan_json(const Plan& plan);

}  // namespace quern
