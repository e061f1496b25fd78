// Block graphs as graphs: what is known about graphs (which dimensions are one, how to evaluate operators)
// then holds for the tiles of a block.
#pragma once

#include "core/graph/dims.h"
#include "core/mugraph/mugraph.h"

namespace quern {

// Node i is operator i, with the type of its tile. Loads, accumulators, reductions over the cluster and
// stores are inputs; constants have the value they have for these tensors.
Graph block_graph(const MuGraph& mugraph, const MuKernel& kernel);

// The one operator of a kernel over whole tensors: an input for each operand, then the operator, the output.
Graph operator_graph(const MuGraph& mugraph, const MuKernel& kernel);

// The value of a constant operator: its number, or the product of the extents it names.
double constant_value(const MuGraph& mugraph, const BlockOp& op);

// The attributes of an operator for the tiles of one block. A reshape that only adds or removes extents of 1
// keeps the other extents of its operand, which at a ragged edge are smaller than the nominal ones.
Attrs attrs_for_tile(const MuKernel& kernel, const BlockOp& op, const Ints& operand_shape);

// Dimension classes of the tiles: those of the operators, and accumulators, reductions over the cluster and
// stores have the dimensions of their operand (but for the one along which iterations lie one after the
// other).
Dimensions block_dimensions(const MuKernel& kernel, const Graph& block);

}  // namespace quern
