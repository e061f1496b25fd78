// Products that are packed into one, as the gate and the other half of a gated MLP are, whose weights are one tensor.
#pragma once

#include <optional>

#include "core/graph/graph.h"

namespace quern {

// The same graph, where the products that slices take apart again are products of their own, with slices of the operand: for two
// or three slices of equal extents, along the columns or the rows of a product, that are all read of it and that meet in one
// element by element (silu(h[:, :n]) * h[:, n:]). Elementwise operators between the product and the slices are computed for
// each. So one kernel can make what they meet in, and reads the operand where its slices lie. Nothing where there is no such product.
std::optional<Graph> unpack_products(const Graph& graph);

}  // namespace quern
