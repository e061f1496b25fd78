// Which tensors between kernels round what they are given.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "core/mugraph/mugraph.h"
#include "core/verify/field.h"

namespace quern {

// The tensors between kernels that are f16 or bf16, and what they may hold: values that the graph has with
// that dtype, because the unfused program rounds them there, too.
class RoundedTensors : public FieldDomain {
 public:
  using FieldDomain::FieldDomain;

  static bool rounds(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
  static bool any(const MuGraph& mugraph) {
    return std::any_of(mugraph.tensors.begin(), mugraph.tensors.end(),
                       [](const MuTensor& tensor) { return rounds(tensor.type.dtype); });
  }
  void knows(const Value& value, DType dtype) {
    if (rounds(dtype)) known_.insert(key(value, dtype));
  }
  // The graph's values; `store` is for the muGraph's.
  Value finish(const Value& value, const Node& node) {
    if (!mugraph_) knows(value, node.type.dtype);
    return value;
  }
  void enter_mugraph() { mugraph_ = true; }
  Value store(const Value& value, DType from, DType to) {
    const Value stored = FieldDomain::store(value, from, to);
    if (rounds(to) && !known_.count(key(stored, to))) invented_ = to;
    return stored;
  }
  // The dtype in which the muGraph stores a value that the graph does not have.
  const std::optional<DType>& invented() const { return invented_; }

 private:
  static uint64_t key(const Value& value, DType dtype) {
    return (uint64_t{value.p} << 8) | static_cast<uint64_t>(dtype);
  }
  std::unordered_set<uint64_t> known_;
  bool mugraph_ = false;
  std::optional<DType> invented_;
};

}  // namespace quern
