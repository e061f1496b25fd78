// One kernel of a program, before it has a text: which values it makes, and over which points.
#pragma once

#include <map>
#include <vector>

#include "core/codegen/trace.h"

namespace quern {

// How a kernel makes a value.
enum class Role : uint8_t {
  element,    // one expression a point of the domain
  row,        // one expression a row
  reduction,  // a sum or maximum over the points of a row
  product,    // the matrix product of a matmul kernel, at each point
};

// The domain is a space of points in row-major order; the dimensions `axes` of it are what reductions run
// over, and the others number the rows. A kernel without reductions has no axes, and every point is a row.
// The domain of a matmul kernel is the shape of its product.
struct Kernel {
  Ints domain, axes;
  std::map<ValueId, Role> makes;
  ValueId product = -1;               // of a matmul kernel
  std::map<ValueId, int> levels;      // of reductions: those of one level are independent of each other
  std::vector<ValueId> reads;         // values made by earlier kernels, and inputs
  std::vector<ValueId> narrow_reads;  // likewise, as operands of tensor cores
  int cost = 0;

  bool is_matmul() const { return product >= 0; }
  int64_t points() const;
  int64_t row_length() const;
  int64_t rows() const { return points() / row_length(); }
};

// The coordinates of one point of a kernel's domain.
struct Frame {
  Index row, position;  // numbers of the row and of the point
  Coords coords;        // of the point in the domain

  // `inner` numbers the points of a row.
  static Frame of(const Kernel& kernel, IndexSpace& space, const Index& row, const Index& inner);
  // Where a value that the kernel makes in this role is made, in the value's own coordinates.
  Coords own(IndexSpace& space, const Ints& shape, Role role) const;
};

// What a kernel does about the values it meets: it expands what is no root, loads what other kernels make,
// holds its own reductions and product, and expands its other roots; its own only where it makes them, at the
// point of `frame`.
Meet kernel_meet(const Graph& graph, IndexSpace& space, const Kernel& kernel, const Frame& frame,
                 const std::vector<bool>& is_root);

}  // namespace quern
