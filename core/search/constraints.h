// What a caller allows kernels to look like, with the names of Mirage's search configuration. An empty list
// allows everything.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/mugraph/mugraph.h"

namespace quern {

struct Constraints {
  std::vector<std::array<int64_t, 3>> griddims;   // x, y, z
  std::vector<std::array<int64_t, 3>> blockdims;  // the product is the number of threads
  std::vector<std::array<int, 3>> imaps, omaps;   // for x, y, z the dimension that is cut, or -1
  std::vector<int> fmaps;                         // dimension that the loop cuts, or -1
  std::vector<int64_t> franges;                   // iterations of the loop

  bool empty() const;
  bool allow_grid(const std::array<int64_t, kGridAxes>& grid) const;
  bool allow_trip_count(int64_t trip_count) const;
  // Whether every block graph of the muGraph keeps to them. Axes of extent 1 are left out of maps.
  bool allow(const MuGraph& mugraph) const;
};

// "griddims 96,1,1 64,1,1; fmaps 0 -1; franges 16": lists with a name, divided by semicolons, values by
// spaces. Numbers that a triple lacks are 1 in dimensions and -1 in maps. INVALID_ARGUMENT names the value.
Result<Constraints> parse_constraints(std::string_view text);
// Its inverse, the same text for constraints that allow the same; empty when they are.
std::string print_constraints(const Constraints& constraints);

}  // namespace quern
