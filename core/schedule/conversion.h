// How to get from one register layout to another: the cheapest of nothing, moves between a thread's
// registers, shuffles within warps, and an exchange through shared memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/schedule/layout.h"
#include "core/schedule/shared_exchange.h"
#include "core/schedule/shuffle.h"

namespace quern {

struct ConversionOptions {
  int element_bytes = 4;  // 1, 2 or 4
  int max_vector_bytes = 16;
  bool permit_shuffles = true;
};

// What a warp executes.
struct ConversionCost {
  int shuffles = 0, selects = 0;
  int accesses = 0, wavefronts = 0;  // of shared memory
  int warp_barriers = 0, block_barriers = 0;

  // A rough estimate in issue cycles, to compare conversions with each other.
  int cycles() const;
};

ConversionCost cost_of(const ShufflePlan& plan);
ConversionCost cost_of(const SharedExchange& exchange);

enum class ConversionKind { none, registers, shuffle, shared };

struct Conversion {
  ConversionKind kind = ConversionKind::none;
  ConversionCost cost = {};
  // none, registers: destination register r is source register register_source[r].
  std::vector<int> register_source = {};
  // shuffle: fills the destination's registers `filled`; word w of the plan is filled[w << word_bits ...].
  std::optional<ShufflePlan> shuffle = {};
  std::vector<int> filled = {};
  // shared: fills the same registers.
  std::optional<SharedExchange> shared = {};
  // shuffle, shared: then register r of the destination is a copy of register copy_of[r], itself if it was
  // filled.
  std::vector<int> copy_of = {};
};

// Both layouts go from register, lane and warp (any may be missing) to the same dimensions, in any order,
// within one block. INVALID_ARGUMENT if they are not over the same tensor and threads, or if the source does
// not hold all that the destination wants; UNSUPPORTED if elements are spread over blocks.
Result<Conversion> plan_conversion(const Layout& source, const Layout& destination,
                                   const ConversionOptions& options);

// The layout with inputs (register, lane, warp), each there even if it has one value, and outputs in this
// order.
Layout normalized(const Layout& layout, const std::vector<LayoutDim>& output_order);

}  // namespace quern
