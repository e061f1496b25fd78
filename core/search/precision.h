// What tensor cores can take the values of a DAG as: what core/mugraph/narrow.h decides on block graphs, told
// of classes, so that the cost model knows of a contraction how fast it is.
#pragma once

#include <vector>

#include "core/search/dag.h"

namespace quern {

enum class Precision : uint8_t {
  narrow,  // 16 bits: the unfused program rounds it to them, too
  tf32,    // more, but made of 16-bit values alone
  full,    // f32: no tensor cores
};

// Of every operator of `dag`, as what it goes into takes it: operands of products that the unfused program computes in
// f32 are rounded to nothing that they are not already. A value that the search invents, such as an input times a
// factor that was moved in front of a product, has no place among the 16-bit values.
std::vector<Precision> precisions(const Dag& dag, const Terms& terms);

}  // namespace quern
