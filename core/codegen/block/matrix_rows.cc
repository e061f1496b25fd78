#include "core/codegen/block/matrix_rows.h"

#include <algorithm>

namespace quern {

namespace {

constexpr int kFewRegisters = 16;  // with fewer, barriers take longer
constexpr int64_t kLongRow = 128;  // bytes: twice what lanes store next to each other

bool count_up(const CoordBit& a, const CoordBit& b, const CoordBit& c) {
  return a.dim >= 0 && a.bit == 0 && b == CoordBit{a.dim, 1} && c == CoordBit{a.dim, 2};
}

// Whether a load in front of the loop brings more than half so many elements for it.
bool is_made_of_tiles(const BlockFacts& facts, BlockValue value, int64_t elements) {
  const BlockOp& op = facts.program.op(value);
  if (op.is_load())
    return facts.program.stage(value) != Stage::loop && op.type.element_count() * 2 > elements;
  return facts.is_elementwise(value) &&
         std::any_of(op.operands.begin(), op.operands.end(),
                     [&](BlockValue operand) { return is_made_of_tiles(facts, operand, elements); });
}

// Whether the tile has room where those of the loop were.
bool fits_ring(const BlockFacts& facts, BlockValue store) {
  int64_t bytes = 0;
  for (BlockValue value = 0; value < facts.count(); ++value)
    if (facts.program.op(value).is_load() && facts.is_staged(value)) bytes += facts.tile_bytes(value);
  return facts.tile_bytes(store) <= bytes * facts.schedule.stages;
}

bool gains_by_long_rows(const BlockFacts& facts, BlockValue store) {
  const BlockOp& op = facts.program.op(store);
  const auto inner = static_cast<size_t>(facts.inner_dim(op));
  const int64_t row = op.type.shape[inner] * static_cast<int64_t>(dtype_size(facts.place(op).dtype));
  const auto stores = std::count_if(facts.program.ops.begin(), facts.program.ops.end(),
                                    [](const BlockOp& other) { return other.is_store(); });
  return stores == 1 && row >= kLongRow && fits_ring(facts, store) && !has_other_tiles(facts, store);
}

}  // namespace

bool has_other_tiles(const BlockFacts& facts, BlockValue store) {
  const BlockOp& op = facts.program.op(store);
  return is_made_of_tiles(facts, op.operands[0], op.type.element_count());
}

MatrixRows matrix_rows(const RegisterLayout& layout, int inner) {
  if (layout.registers.empty()) return MatrixRows::none;
  const CoordBit& pair = layout.registers[0];
  const auto& lanes = layout.lanes;
  if (!count_up(pair, lanes[0], lanes[1]) || !count_up(lanes[2], lanes[3], lanes[4]) ||
      pair.dim == lanes[2].dim)
    return MatrixRows::none;
  return pair.dim == inner       ? MatrixRows::plain
         : lanes[2].dim == inner ? MatrixRows::turned
                                 : MatrixRows::none;
}

RegisterLayout rows_of_matrices(const RegisterLayout& layout, bool plain, int matrices,
                                const std::vector<CoordBit>& words) {
  RegisterLayout rows;
  for (size_t i = 0; i < 3; ++i)
    rows.lanes[i] = plain ? layout.lanes[i + 2] : (i == 0 ? layout.registers[0] : layout.lanes[i - 1]);
  for (size_t i = 0; i < static_cast<size_t>(matrices); ++i) rows.lanes[i + 3] = words[i];
  rows.warps = layout.warps;
  rows.registers.assign(words.begin() + matrices, words.end());
  return rows;
}

bool is_stored_by_stmatrix(const BlockFacts& facts, BlockValue store, const RegisterLayout& layout) {
  const BlockOp& op = facts.program.op(store);
  const TensorPlace& place = facts.place(op);
  const KernelSchedule& schedule = facts.schedule;
  const bool may = facts.target.tma && schedule.producer && schedule.persistent == 0 &&
                   facts.cluster_blocks() == 1 && facts.program.stage(store) == Stage::after &&
                   dtype_size(place.dtype) == 2 && place.pieces.empty() && layout.count() >= kFewRegisters;
  if (!may) return false;
  const MatrixRows rows = matrix_rows(layout, facts.inner_dim(op));
  return rows == MatrixRows::turned || (rows == MatrixRows::plain && gains_by_long_rows(facts, store));
}

}  // namespace quern
