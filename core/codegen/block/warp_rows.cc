#include "core/codegen/block/warp_rows.h"

#include <algorithm>
#include <functional>

#include "core/base/dtype_info.h"
#include "core/codegen/block/matrix_rows.h"

namespace quern {

namespace {

constexpr int kVector = 3;  // 16 bytes
constexpr int kRegisterBits = 5;
constexpr int64_t kWarpElements = 1 << (kRegisterBits + kLaneBits);
constexpr int64_t kAlignment = 1024;  // where swizzles begin again
constexpr int64_t kOfSystem = 1024;   // bytes of shared memory, of each block

int64_t bytes_of_warps(const BlockFacts& facts) {
  return int64_t{facts.schedule.workers()} * facts.schedule.groups() / 32 * kWarpElements * 2;
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

// Has these registers in front, in this order; false if one is not there.
bool put_in_front(RegisterLayout& layout, const std::vector<CoordBit>& bits) {
  auto& registers = layout.registers;
  for (size_t i = bits.size(); i-- > 0;) {
    const auto at = std::find(registers.begin(), registers.end(), bits[i]);
    if (at == registers.end()) return false;
    std::rotate(registers.begin(), at, at + 1);
  }
  return true;
}

// Whether it is only stored behind the loop, or computed with element by element.
bool is_late(const BlockFacts& facts, BlockValue load) {
  const auto& users = facts.program.users[static_cast<size_t>(load)];
  return std::all_of(users.begin(), users.end(), [&](BlockValue user) {
    return facts.program.stage(user) == Stage::after &&
           (facts.program.op(user).is_store() || facts.is_elementwise(user));
  });
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

// Whether a register counts so, and all of them are there.
bool counts(const RegisterLayout& layout, const CoordBit& bit) {
  const auto& registers = layout.registers;
  return std::find(registers.begin(), registers.end(), bit) != registers.end() &&
         std::none_of(layout.ends.begin(), layout.ends.end(),
                      [&](const CoordEnd& end) { return end.dim == bit.dim && end.first_bit() <= bit.bit; });
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
                   facts.access_bits(access) >= kVector && has_room(facts);
  const MatrixRows lie = may ? matrix_rows(layout, inner) : MatrixRows::none;
  if (lie == MatrixRows::none) return std::nullopt;
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
  if (!put_in_front(form.registers, words)) return std::nullopt;
  columns.insert(columns.begin(), {pair, lanes[0], lanes[1]});
  const std::vector<CoordBit> rows = {lanes[2], lanes[3], lanes[4], below};
  std::vector<CoordBit> elements = plain ? columns : rows;
  elements.insert(elements.end(), (plain ? rows : columns).begin(), (plain ? rows : columns).end());
  form.moved = form.registers;
  lay_out(form.moved, elements);
  return form;
}

SharedTile WarpRows::tile(Builder& to, BlockValue access, const AccessForm& form) {
  const Scalar type = ir::scalar_of(facts_.place(access).dtype);
  if (!memory_)
    memory_ = shared_buffer(type, bytes_of_warps(facts_), SharedBuffer::Use::exchange, kAlignment);
  SharedTile tile;
  tile.value = access;
  tile.memory = ir::make_pointer(fresh("rows"), memory_, type);
  to.let(tile.memory, ir::address(memory_, ir::thread_index() / 32 * kWarpElements));
  tile.inner = facts_.inner_dim(access);
  tile.bits = laid_out(of_step(form, form.moved));
  while (tile.bits[static_cast<size_t>(tile.row_bits)] == CoordBit{tile.inner, tile.row_bits})
    ++tile.row_bits;
  tile.swizzle = ((1 << tile.row_bits) - 1) & ~((1 << kVector) - 1);
  tile.bit_places.resize(program_.shape(access).size());
  for (size_t place = 0; place < tile.bits.size(); ++place) {
    auto& places = tile.bit_places[static_cast<size_t>(tile.bits[place].dim)];
    const auto bit = static_cast<size_t>(tile.bits[place].bit);
    places.resize(std::max(places.size(), bit + 1));
    places[bit] = static_cast<int>(place);
  }
  for (size_t d = 0; d < tile.bit_places.size(); ++d)
    tile.padded.push_back(form.moved.extent(static_cast<int>(d)));
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

void WarpRows::load(Builder& to, BlockValue load, const AccessForm& form, const Symbol& words,
                    const Expr& first) {
  const SharedTile tile = this->tile(to, load, form);
  const RegisterLayout rows = chunks_of(of_step(form, form.moved), form.vector);
  const int per = 1 << (form.vector - 1), count = per << form.together;
  const Symbol matrices = fresh_registers("matrices", Scalar::u32, count);
  to.emit(Instr::warp_barrier);
  to.unrolled("a", 1 << form.together, [&](Builder& each, const Expr& a) {
    each.store(Instr::store_shared, ir::address(tile.memory, shared_.place_in(tile, rows, a)), Scalar::u32,
               per, [&](Builder&, const Expr& j) { return ir::element(words, first + a * per + j); });
  });
  to.emit(Instr::warp_barrier);
  to.declare(matrices);
  check(shared_.read_matrices(to, tile, facts_.place(load).dtype, of_step(form, form.registers), matrices,
                              count, 0),
        "fragments are matrices");
  to.unrolled("w", count, [&](Builder& one, const Expr& w) {
    one.assign(ir::element(words, first + w), ir::element(matrices, w));
  });
}

}  // namespace quern
