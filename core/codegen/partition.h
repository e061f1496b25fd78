// Decides which values are stored between kernels, and which kernels make them.
//
// Roots are the values that a kernel makes: outputs, reductions, matrix products, operands of these that are
// no plain views, and values whose expression would grow too large or be repeated too often. Everything else
// is computed where it is read. Every expression has a bounded size, so the text of all kernels is linear in
// the graph.
#pragma once

#include "core/base/target.h"
#include "core/codegen/kernel.h"

namespace quern {

// Where an operand of a matrix product lies: base(batch) + row * row_stride + column * column_stride, in
// elements of `source`. `batch` numbers the matrices of the product; it and `base` are of the view's own
// space.
struct MatrixView {
  IndexSpace space;
  Index batch, base;
  ValueId source = -1;
  int64_t row_stride = 0, column_stride = 0;
};
// Nothing when the operand is no such view of a stored value. `product` is the shape of the product.
std::optional<MatrixView> view_matrix(const Graph& graph, const std::vector<bool>& is_root, ValueId operand,
                                      const Ints& product);

struct Partition {
  std::vector<Kernel> kernels;  // in order of launch
  std::vector<bool> is_root;    // by value; values without elements are none
};

// `graph` as prepare() makes it.
Partition partition(const Graph& graph, const Target& target);

}  // namespace quern
