// Which values of a muGraph are values of its graph.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/base/dtype_info.h"
#include "core/mugraph/mugraph.h"
#include "core/verify/evaluate.h"
#include "core/verify/field.h"

namespace quern {

// Sets `rounds_to`, `of_narrow` and `in_f32` of all block operators (core/mugraph/narrow.h) to what the graph
// says, once: a muGraph that is `noted` stays as it is, and so does one with other inputs or outputs than the
// graph's. Both programs are evaluated at a random point of the finite field (field.h), on the small
// instance: a value all of whose elements are elements of 16-bit values of the graph is rounded by the
// unfused program, too, however the muGraph comes to it. So decided on what values are, not on how they are
// written. Where there is no instance that is small enough, only loads are known; so too when `stop` said so,
// and it is not noted then. Also sets `down` of exponentials (core/mugraph/numerators.h).
void note_rounded_values(const Graph& graph, MuGraph& mugraph, std::function<bool()> stop = nullptr);

// What has been noted of a muGraph with the same operators.
void copy_notes(const MuGraph& from, MuGraph& to);

// Whether tensors between kernels round what they are given.
bool has_rounded_tensors(const MuGraph& mugraph);

// A trial in the field that knows the 16-bit values of a graph: first the graph is evaluated, then its
// muGraph. Tensors between kernels and operands of tensor cores may hold in 16 bits what the graph has in
// that dtype, because the unfused program rounds it there, too.
class RoundedValues : public FieldDomain {
 public:
  using FieldDomain::FieldDomain;

  void note_inputs(const Graph& graph, const std::vector<Elements<FieldValue>>& inputs);
  // Softmaxes over values of the decomposed graph that is evaluated; it must outlive the evaluation.
  void note_softmaxes(const Graph& primitive);
  Value finish(const Value& value, const Node& node) {
    if (mugraph_) return value;
    note(value, node.type.dtype);
    if (const auto at = softmaxes_.find(&node); at != softmaxes_.end())
      values_[at->second].insert(key_of(value));
    return value;
  }
  void enter_mugraph() { mugraph_ = true; }
  // Conditions are true and false in turn: a branch that is never taken would not be seen.
  Value convert(Value value, DType from, DType to) const {
    return to == DType::boolean && is_float(from) ? integer((value.p ^ value.p >> 9) & 1)
                                                  : FieldDomain::convert(value, from, to);
  }
  Value store(const Value& value, DType from, DType to);
  void see(const BlockOp& op, const Elements<FieldValue>& elements);

  // The dtype in which the muGraph stores a value that the graph does not have.
  const std::optional<DType>& invented() const { return invented_; }
  // The dtype in which the graph has all elements of a block operator.
  std::optional<DType> known(const BlockOp& op) const { return known_of(op, 0); }
  // The one to which it rounds the softmax over all of them.
  std::optional<DType> known_softmax(const BlockOp& op) const { return known_of(op, kSoftmax); }
  // Whether the graph computes all of them in f32.
  bool known_in_f32(const BlockOp& op) const;

 private:
  static constexpr const auto& kNarrow = kNarrowDTypes;
  // Sets of values: those of narrow dtypes, those in f32, and those whose softmax is rounded to narrow dtypes.
  static constexpr size_t kF32 = kNarrow.size(), kSoftmax = kF32 + 1, kSets = kSoftmax + kNarrow.size();
  // An infinity is no value of a graph.
  static uint64_t key_of(const Value& value) {
    return value.identity_of == OpCode::input ? value.p : ~uint64_t{0};
  }
  void note(const Value& value, DType dtype);
  std::optional<DType> known_of(const BlockOp& op, size_t first) const;

  bool mugraph_ = false;
  using Known = std::array<bool, kSets>;
  std::array<std::unordered_set<uint64_t>, kSets> values_;
  std::unordered_map<const Node*, size_t> softmaxes_;
  struct Seen {
    Known all;              // whether all elements are in these sets
    bool are_zeros = true;  // which say nothing: f32 and 16-bit values may both be 0
  };
  std::unordered_map<const BlockOp*, Seen> seen_;
  std::optional<DType> invented_;
};

}  // namespace quern
