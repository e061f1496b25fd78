// Iotas of a small instance count in strides, so that what is compared with them keeps its meaning: on 8 of
// 1024 positions a window of 256 is 2 wide. Or they count by one, so that positions which are next to each
// other occur: two rows see two of four keys. Either way what was on one side of where a slice or a concatenation cuts is there still.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/dtype.h"
#include "core/lang/attrs.h"

namespace quern {

// What the inputs that stand for iotas hold, one tensor each.
struct ShortIotas {
  std::vector<std::vector<double>>
      in_strides;  // in each part index * (extent there / extent here), rounded down
  std::vector<std::vector<double>> by_one;
  std::vector<DType> dtypes;

  // Where a dimension is cut, from 0 to its extent: before it was made shorter, and now.
  struct Cuts {
    Ints before, now;
  };
  void add(const Attrs& iota, const Cuts& cuts);
};

}  // namespace quern
