#include "core/codegen/block/access_form.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/block/warp_rows.h"

namespace quern {

namespace {

// Pairs of 16 bits, as tensor cores leave them, have neighbours in other lanes.
std::optional<AccessForm> form_by_words(const BlockFacts& facts, BlockValue access,
                                        const RegisterLayout& layout) {
  constexpr int kMostExchangedBits = 2;  // four words are one access
  const int inner = facts.inner_dim(access);
  for (int words = kMostExchangedBits; words > 0; --words) {
    // Registers that count parts of a dimension that ends stay the last ones.
    const bool ends = std::any_of(layout.ends.begin(), layout.ends.end(), [&](const CoordEnd& end) {
      return end.dim == inner && end.first_bit() < 1 + kMostExchangedBits + words;
    });
    if (ends) continue;
    AccessForm form{layout, layout, 1 + words, words};
    bool there = true;
    for (int bit = 0; bit < words && there; ++bit) {
      CoordBit& lane = form.moved.lanes[static_cast<size_t>(bit)];
      const auto at = std::find(form.moved.registers.begin(), form.moved.registers.end(),
                                CoordBit{inner, 1 + kMostExchangedBits + bit});
      there = lane == CoordBit{inner, 1 + bit} && at != form.moved.registers.end();
      if (there) std::swap(lane, *at);
    }
    if (!there || facts.vector_bits(access, form.moved, inner) != form.vector) continue;
    put_first(form.registers, inner, 1 + kMostExchangedBits, 1 + kMostExchangedBits + words);
    put_first(form.registers, inner, 0, 1);
    put_first(form.moved, inner, 0, form.vector);
    return form;
  }
  return std::nullopt;
}

}  // namespace

AccessForm access_form(const BlockFacts& facts, BlockValue access, RegisterLayout layout) {
  const BlockOp& op = facts.program.op(access);
  const int inner = facts.inner_dim(op), vector = facts.vector_bits(access, layout, inner);
  const bool every_lane = std::all_of(layout.lanes.begin(), layout.lanes.end(),
                                      [](const CoordBit& lane) { return lane.dim >= 0; });
  const bool once = op.is_store() || (facts.program.stage(access) == Stage::before &&
                                      !facts.is_staged(access) && facts.place(op).pieces.empty());
  if (is_packed_in_pairs(facts.place(op).dtype) && every_lane && once) {
    if (auto form = form_by_warp_rows(facts, access, layout)) return *form;
    if (vector == 1)
      if (auto form = form_by_words(facts, access, layout)) return *form;
  }
  put_first(layout, inner, 0, vector);
  return {layout, layout, vector};
}

namespace {

// Bits of a tile's coordinates in the order in which its elements are neighbours in memory, as far as they are: of the inner
// dimension, then of the next one where the tile has all of a power of two of the one before.
std::vector<CoordBit> neighbours_in_memory(const BlockFacts& facts, BlockValue access) {
  const TensorPlace& place = facts.place(access);
  const Ints& tile = facts.program.op(access).type.shape;
  std::vector<CoordBit> bits;
  for (int dim = facts.inner_dim(access); dim >= 0;) {
    const auto at = static_cast<size_t>(dim);
    append_bits(bits, dim, 0, bits_for(tile[at]));
    const int64_t next = place.strides[at] * place.shape[at];
    if (tile[at] != place.shape[at] || int64_t{1} << bits_for(tile[at]) != tile[at] || !place.pieces.empty())
      break;
    dim = -1;
    for (size_t d = 0; d < tile.size() && dim < 0; ++d)
      if (place.strides[d] == next && tile[d] > 1) dim = static_cast<int>(d);
  }
  return bits;
}

}  // namespace

int64_t run_bytes(const BlockFacts& facts, BlockValue access, const RegisterLayout& layout, int vector) {
  const std::vector<CoordBit> bits = neighbours_in_memory(facts, access);
  auto run = static_cast<size_t>(vector);
  for (const CoordBit& lane : layout.lanes) run += run < bits.size() && lane == bits[run];
  return static_cast<int64_t>(dtype_size(facts.place(access).dtype)) << run;
}

}  // namespace quern
