#include "core/codegen/block/warp_rows.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/block/matrix_rows.h"

namespace quern {

namespace {

constexpr int kVector = 3;  // 16 bytes
constexpr int kRegisterBits = 5;
constexpr int64_t kWarpElements = 1 << (kRegisterBits + kLaneBits);

int64_t bytes_of_warps(const BlockFacts& facts) {
  return int64_t{facts.schedule.computing()} / 32 * kWarpElements * 2;
}

// What a step of a form has of a layout, of a warp.
RegisterLayout of_step(const AccessForm& form, RegisterLayout layout) {
  layout.registers.resize(static_cast<size_t>(form.step()));
  layout.warps.clear();
  layout.ends.clear();
  return layout;
}

// The other way round: of elements as they follow each other in the warp's memory, what a thread accesses, then lanes.
void lay_out(RegisterLayout& layout, const std::vector<CoordBit>& elements) {
  std::copy_n(elements.begin(), kVector, layout.registers.begin());
  std::copy_n(elements.begin() + kVector, kLaneBits, layout.lanes.begin());
  std::copy(elements.begin() + kVector + kLaneBits, elements.end(), layout.registers.begin() + kVector);
}
std::vector<CoordBit> laid_out(const RegisterLayout& step) {
  std::vector<CoordBit> elements(step.registers.begin(), step.registers.begin() + kVector);
  elements.insert(elements.end(), step.lanes.begin(), step.lanes.end());
  elements.insert(elements.end(), step.registers.begin() + kVector, step.registers.end());
  return elements;
}

// Blocks that stay have no room where the tiles of the loop were, but beside what is there all along.
bool has_room(const BlockFacts& facts) {
  if (facts.schedule.persistent == 0) return true;
  int64_t bytes = bytes_of_warps(facts) + kSwizzleBytes;
  for (BlockValue value = 0; value < facts.count(); ++value)
    if (facts.program.op(value).is_load())
      bytes += facts.tile_bytes(value) * (facts.is_staged(value) ? facts.schedule.stages : 1);
  const int64_t blocks = std::max<int64_t>(1, facts.schedule.persistent / facts.target.sms);  // of an SM
  return bytes <= facts.target.shared_bytes_per_block &&
         (bytes + kSystemSharedBytes) * blocks <= facts.target.shared_bytes_per_sm;
}

// Whether a register counts so, and all of them are there.
bool counts(const RegisterLayout& layout, const CoordBit& bit) {
  const auto& registers = layout.registers;
  return std::find(registers.begin(), registers.end(), bit) != registers.end() &&
         std::none_of(layout.ends.begin(), layout.ends.end(),
                      [&](const CoordEnd& end) { return end.dim == bit.dim && end.first_bit() <= bit.bit; });
}

}  // namespace

std::optional<AccessForm> form_by_warp_rows(const BlockFacts& facts, BlockValue store,
                                            const RegisterLayout& layout) {
  const BlockOp& op = facts.program.op(store);
  const TensorPlace& place = facts.place(op);
  const MatrixRows lie = matrix_rows(layout, facts.inner_dim(op));
  const bool may = lie != MatrixRows::none && op.is_store() && facts.program.stage(store) == Stage::after &&
                   facts.target.tma && facts.schedule.producer && facts.cluster_blocks() == 1 &&
                   dtype_size(place.dtype) == 2 && place.pieces.empty() &&
                   facts.access_bits(store) >= kVector && !has_other_tiles(facts, store) && has_room(facts);
  if (!may) return std::nullopt;
  // Behind the pair, sums of a lane are eight rows of the product further down, then in the next eight columns.
  const bool plain = lie == MatrixRows::plain;
  if (!plain && facts.schedule.persistent == 0) return std::nullopt;  // others have room for long rows
  const auto& lanes = layout.lanes;
  const CoordBit pair = layout.registers[0], below{lanes[2].dim, 3};
  std::vector<CoordBit> words = {pair, below}, columns;
  for (int bit = 3; bit < 6 && counts(layout, {pair.dim, bit}); ++bit) columns.push_back({pair.dim, bit});
  if (columns.size() < (plain ? 3 : 1)) return std::nullopt;
  words.insert(words.end(), columns.begin(), columns.end());
  AccessForm form{layout, layout, kVector, 0, true, static_cast<int>(words.size()) - kVector};
  if (!std::all_of(words.rbegin(), words.rend(),
                   [&](const CoordBit& word) { return put_first(form.registers, word); }))
    return std::nullopt;
  columns.insert(columns.begin(), {pair, lanes[0], lanes[1]});
  const std::vector<CoordBit> rows = {lanes[2], lanes[3], lanes[4], below};
  std::vector<CoordBit> elements = plain ? columns : rows;
  elements.insert(elements.end(), (plain ? rows : columns).begin(), (plain ? rows : columns).end());
  form.moved = form.registers;
  lay_out(form.moved, elements);
  return form;
}

SharedTile WarpRows::tile(Builder& to, BlockValue store, const AccessForm& form) {
  const Scalar type = ir::scalar_of(facts_.place(store).dtype);
  if (!memory_)
    memory_ = shared_buffer(type, bytes_of_warps(facts_), SharedBuffer::Use::exchange, kSwizzleBytes);
  SharedTile tile;
  tile.value = store;
  tile.memory = ir::make_pointer(fresh("rows"), memory_, type);
  to.let(tile.memory, ir::address(memory_, ir::thread_index() / 32 * kWarpElements));
  tile.inner = facts_.inner_dim(store);
  for (int d = 0; d < program_.op(store).type.rank(); ++d) tile.padded.push_back(form.moved.extent(d));
  tile.bits = laid_out(of_step(form, form.moved));
  while (tile.bits[static_cast<size_t>(tile.row_bits)] == CoordBit{tile.inner, tile.row_bits})
    ++tile.row_bits;
  shared_.find_places(tile);
  return tile;
}

void WarpRows::store(Builder& to, BlockValue store, const AccessForm& form, const SharedTiles::Number& number,
                     const Row& row) {
  const SharedTile tile = this->tile(to, store, form);
  const RegisterLayout rows = chunks_of(of_step(form, form.moved), form.vector);
  const int per = 1 << form.vector;
  to.emit(Instr::warp_barrier);
  check(shared_.write_matrices(to, tile, of_step(form, form.registers), number), "fragments are matrices");
  to.emit(Instr::warp_barrier);
  to.unrolled("a", 1 << form.together, [&](Builder& each, const Expr& a) {
    const Symbol own = fresh_registers("own", tile.memory->type, per);
    each.declare(own);
    each.emit(Instr::load_shared,
              {ir::address(own, 0), ir::address(tile.memory, shared_.place_in(tile, rows, a))},
              {tile.memory->type, per});
    row(each, a, own);
  });
}

}  // namespace quern
