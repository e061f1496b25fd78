// An operator of a block graph: what a block does with tiles. It is of one of several kinds, each with parts
// of its own; reading a part that an operator does not have ends the program.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/lang/attrs.h"
#include "core/lang/type.h"

namespace quern {

// Axes along which work is spread: the grid, the blocks of a cluster (which can read each other's shared
// memory), the loop.
enum class Axis : uint8_t { x, y, z, cluster };
inline constexpr int kGridAxes = 4;
inline constexpr int64_t kMaxClusterBlocks = 16;  // 8 are portable; more must be asked for
// For each axis, the dimension of the tensor that it cuts, or -1: every block sees all of it. A dimension cut
// by several axes is cut by the first one first.
using AxisMap = std::array<int, kGridAxes>;
inline constexpr AxisMap kReplicated = {-1, -1, -1, -1};

// How an accumulator puts the values of the loop's iterations (or of the cluster's blocks) together: as a
// reduction does, one of ops.def, or in another way.
enum class Combine : uint8_t {
#define QUERN_REDUCTION(id, ...) id,
#include "core/lang/ops.def"
  // Sum of values that were computed relative to a shift which changes from iteration to iteration: what is
  // there is multiplied by exp(old shift - new shift) first. The shift is a `max` accumulator of the same
  // kernel (online softmax).
  rescaled_sum,
  // Iterations lie one after the other along one dimension of the result.
  concat,
};
// What two values are combined by: of a rescaled sum, once they have the same shift, reduce_sum. Not for
// concat.
OpCode reduction_of(Combine combine);
Combine combine_of(OpCode reduction);
// "sum", "max", ...: the name of a reduction, or of the other form.
std::string combine_text(Combine combine);

struct TensorDim {
  int32_t tensor = -1;
  int dim = 0;
  bool operator==(const TensorDim&) const = default;
};

using BlockValue = int32_t;  // the index of the block operator that makes the value

// The kinds of block operators, with what each of them has.
struct BlockOpKinds {
  // Where a tile lies in a tensor in global memory.
  struct Access {
    int32_t tensor = -1;
    AxisMap map = kReplicated;  // imap or omap
    // The dimension the loop cuts (fmap), -1 = none. A store that it cuts is in the loop: it stores the
    // iteration's tile.
    int loop_dim = -1;
    auto operator<=>(const Access&) const = default;
  };
  struct Load {
    Access access;
    bool operator==(const Load&) const = default;
  };
  // Any primitive or composite operator over tiles. Constants are operators without operands, with `number`,
  // or, if `extents` names any, with the product of those extents of global tensors (so that the mean over a
  // dimension survives a change of its extent).
  struct Compute {
    OpCode code = OpCode::constant;
    Attrs attrs = {};
    double number = 0;
    std::vector<TensorDim> extents = {};
    // Of an iota: it numbers a dimension of this tile, from where that begins. core/codegen alone makes it.
    std::optional<Access> tile = {};
    bool operator==(const Compute&) const = default;
  };
  // Over the iterations of the loop. Operands: the value; of a rescaled sum also its `max` accumulator.
  struct Accumulate {
    Combine combine = Combine::sum;
    int concat_dim = -1;
    bool operator==(const Accumulate&) const = default;
  };
  // Over the blocks of a cluster, of which every one gets the result. Operands as of accumulators.
  struct ReduceCluster {
    Combine combine = Combine::sum;
    bool operator==(const ReduceCluster&) const = default;
  };
  struct Store {
    Access access;
    bool operator==(const Store&) const = default;
  };
  // What a rescaled sum is multiplied by in an iteration; its `max` accumulator makes it. core/codegen alone
  // has it.
  struct RescaleFactor {
    bool operator==(const RescaleFactor&) const = default;
  };

  using Parts = std::variant<Load, Compute, Accumulate, ReduceCluster, Store, RescaleFactor>;
  enum class Kind : uint8_t { load, compute, accumulate, reduce_cluster, store, rescale_factor };
  bool operator==(const BlockOpKinds&) const = default;
};

// A value is *in the loop* when it depends on a load that the loop cuts, and not only through an accumulator;
// it then has one tile per iteration. What does not is computed once, before the loop or after it.
struct BlockOp : BlockOpKinds {
  using Here = std::source_location;  // who reads a part

  explicit BlockOp(Parts parts, std::vector<BlockValue> operands = {})
      : operands(std::move(operands)), parts_(std::move(parts)) {}
  bool operator==(const BlockOp&) const = default;
  static BlockOp constant(double number) { return BlockOp(Compute{.number = number}); }
  // Makes another operator of it, with the same operands and type.
  void become(Parts parts) { parts_ = std::move(parts); }

  Kind kind() const { return static_cast<Kind>(parts_.index()); }
  bool is_load() const { return kind() == Kind::load; }
  bool is_store() const { return kind() == Kind::store; }
  bool is_accumulate() const { return kind() == Kind::accumulate; }
  bool is_accumulate(Combine combine) const { return is_accumulate() && *find_combine() == combine; }
  bool is_reduce_cluster() const { return kind() == Kind::reduce_cluster; }
  bool is_rescale_factor() const { return kind() == Kind::rescale_factor; }
  bool is_compute() const { return kind() == Kind::compute; }
  bool is_compute(OpCode code) const { return is_compute() && this->code() == code; }
  bool is_compute(OpKind kind) const { return is_compute() && op_info(code()).kind == kind; }

  // Of a load, a store, an iota of a tile.
  bool has_access() const { return find_access() != nullptr; }
  const Access& access(Here here = Here::current()) const { return *had(find_access(), "tensor", here); }
  int32_t tensor(Here here = Here::current()) const { return access(here).tensor; }
  const AxisMap& map(Here here = Here::current()) const { return access(here).map; }
  int loop_dim(Here here = Here::current()) const { return access(here).loop_dim; }

  const Compute& compute(Here here = Here::current()) const { return *had(find_compute(), "code", here); }
  OpCode code(Here here = Here::current()) const { return compute(here).code; }
  const Attrs& attrs(Here here = Here::current()) const { return compute(here).attrs; }
  // Of a constant.
  double number(Here here = Here::current()) const { return had(find_constant(), "number", here)->number; }
  const std::vector<TensorDim>& extents(Here here = Here::current()) const {
    return had(find_constant(), "extents", here)->extents;
  }

  // Of an accumulator, and of a reduction over the cluster.
  bool has_combine() const { return find_combine() != nullptr; }
  Combine combine(Here here = Here::current()) const { return *had(find_combine(), "combine", here); }
  // Of an accumulator that concatenates.
  int concat_dim(Here here = Here::current()) const {
    return had(is_accumulate(Combine::concat) ? std::get_if<Accumulate>(&parts_) : nullptr, "dimension", here)
        ->concat_dim;
  }

  // To change it.
  Access& access(Here here = Here::current()) {
    return const_cast<Access&>(std::as_const(*this).access(here));
  }
  Compute& compute(Here here = Here::current()) {
    return const_cast<Compute&>(std::as_const(*this).compute(here));
  }

  std::vector<BlockValue> operands;
  // Of the tile of a block that is not at a ragged edge; dtype f32 inside (nothing is rounded).
  TensorType type;
  std::string name;
  // The 16-bit dtype to which the unfused program rounds this very value, where that is known: validate()
  // knows it of loads, note_rounded_values (core/verify) of what the graph has. Of a load, whether all that
  // it is made of has 16 bits.
  std::optional<DType> rounds_to = {};
  // The 16-bit dtype to which it rounds the softmax over this value, known in the same way.
  std::optional<DType> softmax_rounds_to = {};
  bool of_narrow = false;
  // Whether the unfused program computes this value, or what it goes into first of what the graph has, in
  // f32.
  bool in_f32 = false;
  bool keeps_precision = false;  // a cast (kept_casts.h)
  int down = 0;  // of an exponential: it is scaled by 2^-down (numerators.h)

 private:
  const Compute* find_compute() const { return std::get_if<Compute>(&parts_); }
  const Compute* find_constant() const { return is_compute(OpCode::constant) ? find_compute() : nullptr; }
  const Access* find_access() const {
    if (const auto* load = std::get_if<Load>(&parts_)) return &load->access;
    if (const auto* store = std::get_if<Store>(&parts_)) return &store->access;
    const Compute* compute = find_compute();
    return compute && compute->tile ? &*compute->tile : nullptr;
  }
  const Combine* find_combine() const {
    if (const auto* accumulate = std::get_if<Accumulate>(&parts_)) return &accumulate->combine;
    const auto* reduce = std::get_if<ReduceCluster>(&parts_);
    return reduce ? &reduce->combine : nullptr;
  }
  template <class Part>
  const Part* had(const Part* part, const char* what, const Here& here) const {
    if (!part) [[unlikely]]
      lacks(what, here);
    return part;
  }
  [[noreturn]] void lacks(const char* what, const Here& here) const;

  Parts parts_;
};

}  // namespace quern
