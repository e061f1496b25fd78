// What a caller allows kernels to look like, with the names of Mirage's search configuration. An empty list
// allows everything.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

struct Constraints {
  std::vector<std::array<int64_t, 3>> griddims;   // x, y, z
  std::vector<std::array<int64_t, 3>> blockdims;  // the product is the number of threads
  std::vector<std::array<int, 3>> imaps, omaps;   // for x, y, z the dimension that is cut, or -1
  std::vector<int> fmaps;                         // dimension that the loop cuts, or -1
  std::vector<int64_t> franges;                   // turns of the loop

  bool empty() const;
  bool allow_grid(const std::array<int64_t, kGridAxes>& grid) const;
  bool allow_turns(int64_t turns) const;
  // Whether every block graph of the muGraph keeps to them. Axes of extent 1 are left out of maps.
  bool allow(const MuGraph& mugraph) const;
};

}  // namespace quern
