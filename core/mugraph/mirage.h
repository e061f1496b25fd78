// Reads muGraphs as Mirage stores them (JSON; mirage-project/mirage, kernel_graph to_json), so that published
// results can be checked and compared.
#pragma once

#include <string_view>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

// A file holds a list of kernel graphs; each becomes a valid muGraph, in order. INVALID_GRAPH with the place
// ("graph 3, operator 5, block operator 2: ...") for what is no such file, UNSUPPORTED for an operator that
// is not known here. Its norms have no epsilon; tensors between kernels, f16 in the file, become f32.
Result<std::vector<MuGraph>> read_mirage(std::string_view json);

}  // namespace quern
