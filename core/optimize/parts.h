// A muGraph in parts that can be verified one by one, where the whole is too large to be decided.
//
// Tensors that have the name of a value of the graph are taken to hold it. A part is kernels that hand on
// other tensors among themselves: if it computes its named outputs from its named inputs, and all other parts
// do, the whole is right.
#pragma once

#include <string>
#include <vector>

#include "core/mugraph/mugraph.h"
#include "core/verify/certificate.h"

namespace quern {

struct Part {
  Graph graph;
  MuGraph mugraph;
};

// In the order of their first kernels. UNSUPPORTED with the reason if there are no parts: values that are not
// named as in the graph, or a part that does not read what its outputs are made of.
Result<std::vector<Part>> parts_of(const Graph& graph, const MuGraph& mugraph);

// What the field says of each of them.
Result<std::vector<Certificate>> verify_parts(const Graph& graph, const MuGraph& mugraph, uint64_t seed);

// As facts, a line each, or why there are none.
std::string part_facts(const Result<std::vector<Certificate>>& parts);

}  // namespace quern
