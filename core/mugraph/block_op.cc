#include "core/mugraph/block_op.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

namespace quern {

namespace {

// The reductions, in the order of Combine.
constexpr OpCode kReductions[] = {
#define QUERN_REDUCTION(id, ...) OpCode::reduce_##id,
#include "core/lang/ops.def"
};

// Kind numbers the alternatives of Parts.
template <BlockOp::Kind kind, class Part>
constexpr bool numbers =
    std::is_same_v<std::variant_alternative_t<static_cast<size_t>(kind), BlockOp::Parts>, Part>;
using Kind = BlockOp::Kind;
static_assert(numbers<Kind::load, BlockOp::Load> && numbers<Kind::compute, BlockOp::Compute> &&
              numbers<Kind::accumulate, BlockOp::Accumulate> &&
              numbers<Kind::reduce_cluster, BlockOp::ReduceCluster> && numbers<Kind::store, BlockOp::Store> &&
              numbers<Kind::rescale_factor, BlockOp::RescaleFactor>);

static_assert(std::variant_size_v<BlockOp::Parts> == 6);  // of which find_access and find_combine know all

std::string kind_text(const BlockOp& op) {
  switch (op.kind()) {
    case Kind::load:
      return "load";
    case Kind::compute:
      return op.is_compute(OpCode::constant) ? "constant" : op_info(op.code()).text;
    case Kind::accumulate:
      return "accumulate_" + combine_text(op.combine());
    case Kind::reduce_cluster:
      return "cluster_" + combine_text(op.combine());
    case Kind::store:
      return "store";
    case Kind::rescale_factor:
      return "rescale factor";
  }
  return "operator of no kind";
}

}  // namespace

OpCode reduction_of(Combine combine) {
  if (combine == Combine::rescaled_sum) return OpCode::reduce_sum;
  check(combine != Combine::concat, "a concatenation is no reduction");
  return kReductions[static_cast<size_t>(combine)];
}

Combine combine_of(OpCode reduction) {
  const auto at = std::find(std::begin(kReductions), std::end(kReductions), reduction);
  check(at != std::end(kReductions), "the operator is no reduction");
  return static_cast<Combine>(at - std::begin(kReductions));
}

std::string combine_text(Combine combine) {
  switch (combine) {
    case Combine::rescaled_sum:
      return "rescaled";
    case Combine::concat:
      return "concat";
    default:
      return op_info(reduction_of(combine)).text;
  }
}

void BlockOp::lacks(const char* what, const Here& here) const {
  fatal(here.file_name(), static_cast<int>(here.line()),
        kind_text(*this) + (name.empty() ? "" : " (" + name + ")") + " has no " + what);
}

}  // namespace quern
