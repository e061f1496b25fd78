// Which values of a muGraph are values of its graph.
#pragma once

#include "core/graph/graph.h"
#include "core/mugraph/mugraph.h"

namespace quern {

// Sets `rounds_to` and `of_narrow` of all block operators (core/mugraph/narrow.h) to what the graph says.
// Both programs are evaluated at a random point of the finite field (field.h), on the small instance: a value
// all of whose elements are elements of 16-bit values of the graph is rounded by the unfused program, too,
// however the muGraph comes to it. So decided on what values are, not on how they are written. Where there is
// no instance that is small enough, only loads are known.
void note_rounded_values(const Graph& graph, MuGraph& mugraph);

}  // namespace quern
