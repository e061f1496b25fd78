#include "core/codegen/block/warp_rows.h"

#include <algorithm>
#include <functional>

#include "core/base/dtype_info.h"
#include "core/codegen/block/matrix_rows.h"

namespace quern {

namespace {

constexpr int kRowBits = 6, kRows = 4;  // 64 numbers, 16 rows
constexpr int kBits = kRowBits + kRows, kRegisterBits = kBits - kLaneBits;
constexpr int64_t kAlignment = 1024;  // where swizzles begin again
constexpr int64_t kOfSystem = 1024;   // bytes of shared memory, of each block

int64_t bytes_of_warps(const BlockFacts& facts) {
  return (int64_t{facts.schedule.workers()} * facts.schedule.groups() / 32 << kBits) * 2;
}

// What a step of a form has of a layout, of a warp.
RegisterLayout of_step(RegisterLayout layout) {
  layout.registers.resize(kRegisterBits);
  layout.warps.clear();
  layout.ends.clear();
  return layout;
}

// Whether only what comes behind the loop uses it.
bool is_late(const BlockFacts& facts, BlockValue load) {
  const auto& users = facts.program.users[static_cast<size_t>(load)];
  return std::all_of(users.begin(), users.end(),
                     [&](BlockValue user) { return facts.program.stage(user) == Stage::after; });
}

// Blocks that stay have no room where the tiles of the loop were, but beside what is there all along.
bool has_room(const BlockFacts& facts) {
  if (facts.schedule.persistent == 0) return true;
  int64_t bytes = 0;
  for (BlockValue value = 0; value < facts.count(); ++value) {
    const BlockOp& op = facts.program.op(value);
    if (!op.is_load() || is_late(facts, value)) continue;
    const auto size = static_cast<int64_t>(dtype_size(facts.place(op).dtype));
    bytes += op.type.element_count() * size * (facts.is_staged(value) ? facts.schedule.stages : 1);
  }
  bytes += bytes_of_warps(facts) + kAlignment;
  const int64_t blocks = std::max<int64_t>(1, facts.schedule.persistent / facts.target.sms);  // of an SM
  return bytes <= facts.target.shared_bytes_per_block &&
         (bytes + kOfSystem) * blocks <= facts.target.shared_bytes_per_sm;
}

}  // namespace

std::optional<AccessForm> form_by_warp_rows(const BlockFacts& facts, BlockValue access,
                                            const RegisterLayout& layout) {
  const BlockOp& op = facts.program.op(access);
  const TensorPlace& place = facts.place(op);
  const int inner = facts.inner_dim(op);
  const bool late = op.is_store() ? facts.program.stage(access) == Stage::after : is_late(facts, access);
  const bool may = facts.target.tma && facts.schedule.producer && facts.cluster_blocks() == 1 && late &&
                   dtype_size(place.dtype) == 2 && place.pieces.empty() &&
                   facts.access_bits(access) >= kWarpRowsVector &&
                   matrix_rows(layout, inner) == MatrixRows::plain && has_room(facts);
  if (!may) return std::nullopt;
  for (const CoordEnd& end : layout.ends)
    if (end.dim == inner && end.first_bit() < kRowBits) return std::nullopt;
  AccessForm form{layout, layout, kWarpRowsVector, 0, kWarpRowsAccesses};
  auto& registers = form.registers.registers;
  put_first(form.registers, inner, 3, kRowBits);
  // Lanes tell eight rows apart; a register the other eight.
  const auto row = std::find_if(registers.begin(), registers.end(),
                                [&](const CoordBit& bit) { return bit.dim == layout.lanes[2].dim; });
  const bool has_row = row != registers.end() && registers.size() >= kRegisterBits;
  if (!has_row) return std::nullopt;
  std::rotate(registers.begin(), row, row + 1);
  put_first(form.registers, inner, 0, 1);
  for (int bit = 3; bit < kRowBits; ++bit)
    if (registers[static_cast<size_t>(bit - 1)] != CoordBit{inner, bit}) return std::nullopt;
  // Pairs of registers and lanes name columns, then rows; they change places with those that lanes next to each other have.
  const auto& lanes = layout.lanes;
  const CoordBit row3 = registers[1];
  form.moved = form.registers;
  form.moved.lanes = {CoordBit{inner, 3}, CoordBit{inner, 4}, CoordBit{inner, 5}, lanes[2], lanes[3]};
  std::copy_n(std::array{CoordBit{inner, 0}, CoordBit{inner, 1}, CoordBit{inner, 2}, lanes[4], row3}.begin(),
              kRegisterBits, form.moved.registers.begin());
  return form;
}

SharedTile WarpRows::tile(Builder& to, BlockValue access, const AccessForm& form) {
  const Scalar type = ir::scalar_of(facts_.place(access).dtype);
  if (!memory_)
    memory_ = shared_buffer(type, bytes_of_warps(facts_), SharedBuffer::Use::exchange, kAlignment);
  SharedTile tile;
  tile.value = access;
  tile.memory = ir::make_pointer(fresh("rows"), memory_, type);
  to.let(tile.memory, ir::address(memory_, ir::thread_index() / 32 * (1 << kBits)));
  tile.inner = facts_.inner_dim(access);
  tile.swizzle = ((1 << kRowBits) - 1) & ~((1 << kWarpRowsVector) - 1);
  append_bits(tile.bits, tile.inner, 0, kRowBits);
  const RegisterLayout& moved = form.moved;
  for (const CoordBit& row : {moved.lanes[3], moved.lanes[4], moved.registers[3], moved.registers[4]})
    tile.bits.push_back(row);
  tile.bit_places.resize(program_.shape(access).size());
  for (size_t place = 0; place < tile.bits.size(); ++place) {
    auto& places = tile.bit_places[static_cast<size_t>(tile.bits[place].dim)];
    const auto bit = static_cast<size_t>(tile.bits[place].bit);
    places.resize(std::max(places.size(), bit + 1));
    places[bit] = static_cast<int>(place);
  }
  for (size_t d = 0; d < tile.bit_places.size(); ++d)
    tile.padded.push_back(moved.extent(static_cast<int>(d)));
  return tile;
}

void WarpRows::store(Builder& to, BlockValue store, const AccessForm& form, const SharedTiles::Number& number,
                     const Row& row) {
  const SharedTile tile = this->tile(to, store, form);
  const RegisterLayout rows = chunks_of(of_step(form.moved), form.vector);
  const int per = 1 << form.vector;
  to.emit(Instr::warp_barrier);
  check(shared_.write_matrices(to, tile, of_step(form.registers), number), "fragments are matrices");
  to.emit(Instr::warp_barrier);
  to.unrolled("a", 1 << form.rows, [&](Builder& each, const Expr& a) {
    const Symbol own = fresh_registers("own", tile.memory->type, per);
    each.declare(own);
    each.emit(Instr::load_shared,
              {ir::address(own, 0), ir::address(tile.memory, shared_.place_in(tile, rows, a))},
              {tile.memory->type, per});
    row(each, a, own);
  });
}

void WarpRows::load(Builder& to, BlockValue load, const AccessForm& form, const Symbol& words,
                    const Expr& first) {
  const SharedTile tile = this->tile(to, load, form);
  const RegisterLayout rows = chunks_of(of_step(form.moved), form.vector);
  const int per = 1 << (form.vector - 1), count = per << form.rows;
  const Symbol matrices = fresh_registers("matrices", Scalar::u32, count);
  to.emit(Instr::warp_barrier);
  to.unrolled("a", 1 << form.rows, [&](Builder& each, const Expr& a) {
    each.store(Instr::store_shared, ir::address(tile.memory, shared_.place_in(tile, rows, a)), Scalar::u32,
               per, [&](Builder&, const Expr& j) { return ir::element(words, first + a * per + j); });
  });
  to.emit(Instr::warp_barrier);
  to.declare(matrices);
  check(
      shared_.read_matrices(to, tile, facts_.place(load).dtype, of_step(form.registers), matrices, count, 0),
      "fragments are matrices");
  to.unrolled("w", count, [&](Builder& one, const Expr& w) {
    one.assign(ir::element(words, first + w), ir::element(matrices, w));
  });
}

}  // namespace quern
