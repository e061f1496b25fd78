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
  reduction,  // over the points of a row
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

// What a kernel computes at one point of its domain, as a function of two variables: the number of a row, and
// of a point in it. The partition decides by it what a kernel can make, and the emitters put the indices of
// their loops in for the variables: index arithmetic has no normal form, so that what is found to be at the
// same place with some variables need not be found so with others.
//
// It expands what is no root, loads what other kernels make, holds the kernel's own reductions and product,
// and expands its other roots; its own only where it makes them.
class KernelTrace {
 public:
  KernelTrace(const Graph& graph, const Kernel& kernel, const std::vector<bool>& is_root);
  KernelTrace(const KernelTrace&) = delete;

  // When it has failed, a value is not at hand where it is needed.
  const Trace& trace() const { return trace_; }
  // The item that is computed for a value that the kernel makes: of a reduction, what is reduced; of a
  // product, nothing (-1).
  int computed(ValueId value) const { return computed_.at(value); }
  // The item that is stored.
  int stored(ValueId value) const { return stored_.at(value); }
  bool uses_inner(int item) const { return trace_.item(item).uses & space_.uses(inner_); }
  int cost() const { return cost_; }

  // The items and the number of the point, with indices of another space in place of the two variables.
  struct Placed {
    std::vector<Item> items;
    Index position;
  };
  Placed place(IndexSpace& space, const Index& row, const Index& inner) const;

 private:
  Coords own(ValueId value, Role role);
  Meeting meet(ValueId value, const Coords& coords);

  const Graph& graph_;
  const Kernel& kernel_;
  const std::vector<bool>& is_root_;
  IndexSpace space_;
  Index row_, inner_, position_;
  Coords coords_;  // of the point in the domain
  Trace trace_;
  std::map<ValueId, int> computed_, stored_;
  int cost_ = 0;
};

}  // namespace quern
