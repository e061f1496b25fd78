#include "core/schedule/conversion.h"

#include <algorithm>

#include "core/schedule/layout_text.h"

namespace quern {

namespace {

// Issue cycles of one warp. A shuffle and a wavefront each take the one path to shared memory that four
// schedulers share; waiting for a result is paid once per conversion, for all warps of a block at a barrier.
constexpr int kShuffleCycles = 2;
constexpr int kSelectCycles = 1;
constexpr int kAccessCycles = 2;
constexpr int kWavefrontCycles = 1;
constexpr int kRoundTripCycles = 24;  // to shared memory or another lane
constexpr int kWarpBarrierCycles = 4;
constexpr int kBlockBarrierCycles = 100;

Status mismatch(const std::string& what, const Layout& source, const Layout& destination) {
  return Status(ErrorCode::INVALID_ARGUMENT, "no conversion: " + what + "; source " + print_layout(source) +
                                                 "destination " + print_layout(destination));
}

Status check_inputs(const Layout& source, const Layout& destination) {
  for (const Layout* layout : {&source, &destination})
    for (const LayoutDim& dim : layout->inputs())
      if (dim.name != kRegister && dim.name != kLane && dim.name != kWarp && dim.bits > 0)
        return Status(ErrorCode::UNSUPPORTED,
                      "no conversion: input dimension " + dim.name +
                          "; only register, lane and warp of one block are converted");
  for (std::string_view name : {kLane, kWarp})
    if (source.input_bits(name) != destination.input_bits(name))
      return mismatch("the number of " + std::string(name) + "s differs", source, destination);
  if (source.outputs().size() != destination.outputs().size())
    return mismatch("the dimensions differ", source, destination);
  for (const LayoutDim& dim : source.outputs())
    if (!destination.has_output(dim.name) || destination.output_bits(dim.name) != dim.bits)
      return mismatch("dimension " + dim.name + " differs", source, destination);
  return {};
}

// Which register each register is a copy of: the one with the same image that has independent bits only.
std::vector<int> copies(const Layout& layout) {
  F2Span registers(layout.columns(kRegister));
  std::vector<int> result;
  for (uint64_t r = 0; r >> layout.input_bits(kRegister) == 0; ++r)
    result.push_back(static_cast<int>(*registers.express(layout.apply(r))));
  return result;
}

// The table of a plan in which every round moves the same word within every thread.
Conversion register_moves(const Layout& source, const Layout& destination, const ShufflePlan& plan,
                          const std::vector<int>& filled, const std::vector<int>& copy_of) {
  std::vector<int> source_of(copy_of.size());
  for (const ShuffleRound& round : plan.rounds)
    for (uint64_t e = 0; e >> plan.word_bits == 0; ++e)
      source_of[filled[(round.receive << plan.word_bits) + e]] =
          static_cast<int>((round.send << plan.word_bits) + e);
  Conversion result{.kind = ConversionKind::registers};
  bool moves = false;
  for (size_t r = 0; r < copy_of.size(); ++r) {
    // Of copies in the source, the register of the same number is best.
    const bool same = r >> source.input_bits(kRegister) == 0 && source.apply(r) == destination.apply(r);
    result.register_source.push_back(same ? static_cast<int>(r) : source_of[copy_of[r]]);
    moves = moves || !same;
  }
  if (!moves) result.kind = ConversionKind::none;
  return result;
}

}  // namespace

ConversionCost cost_of(const ShufflePlan& plan) {
  return {.shuffles = plan.shuffles(), .selects = plan.selects()};
}

ConversionCost cost_of(const SharedExchange& exchange) {
  return {.accesses = exchange.instructions(),
          .wavefronts = exchange.wavefronts(),
          .warp_barriers = exchange.across_warps ? 0 : 1,
          .block_barriers = exchange.across_warps ? 1 : 0};
}

int ConversionCost::cycles() const {
  const bool waits = shuffles > 0 || accesses > 0;
  return shuffles * kShuffleCycles + selects * kSelectCycles + accesses * kAccessCycles +
         wavefronts * kWavefrontCycles + warp_barriers * kWarpBarrierCycles +
         block_barriers * kBlockBarrierCycles + (waits ? kRoundTripCycles * (accesses > 0 ? 2 : 1) : 0);
}

Layout normalized(const Layout& layout, const std::vector<LayoutDim>& output_order) {
  Layout result = layout;
  std::vector<std::string_view> others, outputs;
  for (const LayoutDim& dim : layout.inputs())
    if (dim.name != kRegister && dim.name != kLane && dim.name != kWarp) others.push_back(dim.name);
  for (std::string_view other : others) result = result.without_input(other);
  for (std::string_view name : {kRegister, kLane, kWarp})
    if (!result.has_input(name)) result = result * Layout::zeros(name, 0);
  for (const LayoutDim& dim : output_order) outputs.push_back(dim.name);
  const std::string_view inputs[] = {kRegister, kLane, kWarp};
  return result.reordered(inputs, outputs);
}

Result<Conversion> plan_conversion(const Layout& source, const Layout& destination,
                                   const ConversionOptions& options) {
  if (Status status = check_inputs(source, destination); !status.ok()) return status;
  const Layout from = normalized(source, source.outputs()), to = normalized(destination, source.outputs());
  F2Span held(from.matrix().columns);
  for (uint64_t column : to.matrix().columns)
    if (!held.contains(column)) return mismatch("the source does not hold all elements", source, destination);

  const std::vector<int> kept = to.independent_bits(kRegister), copy_of = copies(to);
  std::vector<int> filled;
  for (int r = 0; r >> kept.size() == 0; ++r) {
    int scattered = 0;
    for (size_t i = 0; i < kept.size(); ++i) scattered |= (r >> i & 1) << kept[i];
    filled.push_back(scattered);
  }
  std::optional<ShufflePlan> shuffle =
      plan_shuffle(from, to.with_input_bits(kRegister, kept), word_element_bits(options.element_bytes));
  if (shuffle && shuffle->is_register_permutation())
    return register_moves(from, to, *shuffle, filled, copy_of);

  SharedExchange shared = plan_exchange(from, to, options.element_bytes, options.max_vector_bytes);
  const ConversionCost shared_cost = cost_of(shared);
  if (shuffle && options.permit_shuffles && cost_of(*shuffle).cycles() <= shared_cost.cycles()) {
    const ConversionCost cost = cost_of(*shuffle);
    return Conversion{.kind = ConversionKind::shuffle,
                      .cost = cost,
                      .register_source = {},
                      .shuffle = std::move(shuffle),
                      .filled = std::move(filled),
                      .shared = {},
                      .copy_of = copy_of};
  }
  return Conversion{.kind = ConversionKind::shared,
                    .cost = shared_cost,
                    .register_source = {},
                    .shuffle = {},
                    .filled = std::move(filled),
                    .shared = std::move(shared),
                    .copy_of = copy_of};
}

}  // namespace quern
