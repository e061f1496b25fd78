// Values that positions decide, as masks are: made of iotas, numbers, and integers that positions are compared with, such as
// the lengths of sequences. Kernels compute them from where their tiles lie, and read the integers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/lang/attrs.h"
#include "core/lang/op.h"
#include "core/lang/type.h"

namespace quern {

struct MadeOfPositions {
  size_t operators = 1;
  // What it varies along: a bit for each dimension, the innermost is the lowest.
  uint32_t positions = 0, integers = 0;
  bool reads = false;  // integers from memory

  // Where the integers are the same for all positions of a tile, it is not worth memory of its own.
  bool is_decided() const { return !reads || (positions != 0 && (positions & integers) == 0); }
  // Whether operators of a kernel compute a tile, in place of reading it: beyond so many memory is cheaper.
  bool is_computed_in_kernels() const {
    constexpr size_t kMostOperators = 24;
    return is_decided() && operators > 1 && operators <= kMostOperators;
  }
};

// Of iotas and numbers, of elementwise operators and transposes over what is known; nothing of other operators.
std::optional<MadeOfPositions> made_by(OpCode code, const Attrs& attrs, int rank,
                                       const std::vector<std::optional<MadeOfPositions>>& operands);
// Of what lies in memory: few integers.
std::optional<MadeOfPositions> made_of_integers(DType dtype, const Ints& shape);

// A value of a graph: what positions it is made of, and whether operators compute it of them.
struct ValueOfPositions {
  std::optional<MadeOfPositions> made;
  bool computed = false;
};
// Of each. What `is_renamed` holds for is as its operand, where that is computed, but for the bits of its dimensions.
std::vector<ValueOfPositions> positions_of(const Graph& graph,
                                           const std::function<bool(ValueId)>& is_renamed = {});

}  // namespace quern
