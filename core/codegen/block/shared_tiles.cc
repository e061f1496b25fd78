#include "core/codegen/block/shared_tiles.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/base/integers.h"
#include "core/codegen/block/matrix_rows.h"

namespace quern {

std::vector<CoordBit> SharedTiles::bits_of(const SharedTile& tile, const std::vector<int>& dims) {
  std::vector<CoordBit> bits;
  for (size_t i = dims.size() - 1; i-- > 0;)
    append_bits(bits, dims[i], 0, bits_for(tile.padded[static_cast<size_t>(dims[i])]));
  return bits;
}

// First those that lanes tell apart, of fragments the pair in a word before them: what ldmatrix
// reads together lies in eight rows that follow each other. (Of tf32, where rows are not those of matrices, a
// lane's next word: then four lanes that read 32 bytes each are two rows apart, in different banks.)
std::vector<CoordBit> SharedTiles::bits_as_read(const SharedTile& tile, const RegisterLayout& layout) const {
  std::vector<CoordBit> bits;
  const std::vector<CoordBit> all = bits_of(tile, dims_by_stride(tile));
  auto add = [&](const CoordBit& bit) {
    const bool is_there = std::find(all.begin(), all.end(), bit) != all.end();
    if (is_there && std::find(bits.begin(), bits.end(), bit) == bits.end()) bits.push_back(bit);
  };
  if (!layout.registers.empty() && layout.registers[0].dim == layout.lanes[0].dim) add(layout.registers[0]);
  for (const CoordBit& bit : layout.lanes) add(bit);
  for (const CoordBit& bit : all) add(bit);
  return bits;
}

void SharedTiles::put_in_panels(SharedTile& tile, const std::vector<CoordBit>& others) const {
  const int64_t size = static_cast<int64_t>(dtype_size(facts_.place(tile.value).dtype));
  const int64_t inner = tile.padded[static_cast<size_t>(tile.inner)], row = panel_row(inner * size);
  tile.row_bits = bits_for(row / size);
  append_bits(tile.bits, tile.inner, 0, tile.row_bits);
  tile.bits.insert(tile.bits.end(), others.begin(), others.end());
  tile.panel_bits = static_cast<int>(tile.bits.size());
  append_bits(tile.bits, tile.inner, tile.row_bits, bits_for(inner));
  find_places(tile);
  const int64_t unit = alignment();  // where the tile behind it can begin
  tile.elements = panel_elements(tile, size);
  tile.bytes = round_up(size * tile.elements, unit);
}

void SharedTiles::find_places(SharedTile& tile) const {
  const int64_t size = static_cast<int64_t>(dtype_size(facts_.place(tile.value).dtype)),
                row = size << tile.row_bits;
  tile.swizzle = row >= kLeastSwizzle ? static_cast<int>((row - 1) / size & 0x70 / size) : 0;
  tile.bit_places.resize(tile.padded.size());
  for (size_t d = 0; d < tile.padded.size(); ++d)
    tile.bit_places[d].resize(static_cast<size_t>(bits_for(tile.padded[d])));
  for (size_t at = 0; at < tile.bits.size(); ++at)
    tile.bit_places[static_cast<size_t>(tile.bits[at].dim)][static_cast<size_t>(tile.bits[at].bit)] =
        static_cast<int>(at);
}

std::vector<int> SharedTiles::beyond(const SharedTile& tile, const RegisterLayout& layout) {
  std::vector<int> dims;
  for (int d = 0; d < static_cast<int>(tile.padded.size()); ++d)
    if (layout.extent(d) > tile.padded[static_cast<size_t>(d)]) dims.push_back(d);
  return dims;
}

Expr SharedTiles::place_in(const SharedTile& tile, const RegisterLayout& layout, const Expr& index,
                           bool swizzled) {
  return place_from(thread_place(tile, layout, swizzled), tile, layout, index, swizzled);
}

namespace {

// Bits that are somewhere in the tile, and where they are. Who reads beyond it looks at beyond() first.
template <class Bits>
std::vector<BitMove> moves_into(const std::vector<std::vector<int>>& bit_places, const Bits& bits) {
  std::vector<BitMove> moves;
  int from = 0;
  for (const CoordBit& bit : bits) {
    const int number = from++;
    if (bit.dim < 0) continue;
    const std::vector<int>& places = bit_places[static_cast<size_t>(bit.dim)];
    if (bit.bit < static_cast<int>(places.size()))
      moves.push_back({number, places[static_cast<size_t>(bit.bit)]});
  }
  return moves;
}

}  // namespace

Expr SharedTiles::thread_place(const SharedTile& tile, const RegisterLayout& layout, bool swizzled) {
  if (tile.bit_places.empty()) return bounds_.offset(layout, tile.pitch, 0);
  const Expr thread = move_bits(lane(), moves_into(tile.bit_places, layout.lanes)) +
                      move_bits(warp(), moves_into(tile.bit_places, layout.warps));
  if (tile.swizzle == 0 || !swizzled) return bounds_.define("i", thread);
  return bounds_.define("i", ir::call(ir::Function::swizzled, Scalar::i32, {thread}, {tile.swizzle}));
}

Expr SharedTiles::place_from(const Expr& base, const SharedTile& tile, const RegisterLayout& layout,
                             const Expr& index, bool swizzled) {
  if (tile.bit_places.empty()) return base + TileBounds::register_offset(layout, tile.pitch, index);
  const Expr mine = move_bits(index, moves_into(tile.bit_places, layout.registers));
  if (tile.swizzle == 0 || !swizzled) return base + mine;
  return ir::call(ir::Function::swizzled_sum, Scalar::i32, {base, mine}, {tile.swizzle});
}

bool SharedTiles::read_matrices(Builder& out, const SharedTile& tile, DType dtype,
                                const RegisterLayout& layout, const Symbol& to, int words,
                                const Expr& skipped) {
  if (layout.registers.empty() || !beyond(tile, layout).empty()) return false;
  const bool pairs = is_packed_in_pairs(dtype);
  const CoordBit pair = layout.registers[0];
  auto is = [&](const CoordBit& bit, int number) { return bit == CoordBit{tile.inner, number}; };
  const bool plain = pairs ? is(pair, 0) && is(layout.lanes[0], 1) && is(layout.lanes[1], 2)
                           : is(layout.lanes[0], 0) && is(layout.lanes[1], 1);
  const bool turned = is(layout.lanes[2], 0) && is(layout.lanes[3], 1) && is(layout.lanes[4], 2) &&
                      pair.dim != tile.inner && layout.lanes[0].dim != tile.inner &&
                      layout.lanes[1].dim != tile.inner;
  if (!plain && !pairs) {
    out.unrolled("r", words, [&](Builder& each, const Expr& r) {
      const Expr number = ir::element(tile.memory, place_in(tile, layout, skipped * words + r));
      each.assign(ir::element(to, r), ir::call(ir::Function::float_bits, Scalar::u32, {number}));
    });
    return true;
  }
  if (!plain && !turned) return false;
  const int matrices = std::min(2, bits_for(words));
  const RegisterLayout rows = rows_of_matrices(
      layout, plain, matrices, {layout.registers.begin() + (pairs ? 1 : 0), layout.registers.end()});
  const int count = 1 << matrices, reads = words >> matrices;
  out.unrolled("r", reads, [&](Builder& each, const Expr& r) {
    each.emit(
        plain ? Instr::ldmatrix : Instr::ldmatrix_trans,
        {ir::address(to, r * count), ir::address(tile.memory, place_in(tile, rows, skipped * reads + r))},
        {count});
  });
  return true;
}

bool SharedTiles::write_matrices(Builder& out, const SharedTile& tile, const RegisterLayout& layout,
                                 const Number& number) {
  const Scalar type = tile.memory->type;
  const MatrixRows lies = matrix_rows(layout, tile.inner);
  if (!target_.tma || ir::bytes_of(type) != 2 || lies == MatrixRows::none || !beyond(tile, layout).empty())
    return false;
  const bool plain = lies == MatrixRows::plain;
  // So many matrices at a time as registers make whole groups of.
  const int words = layout.count() / 2, matrices = words % 4 == 0 ? 2 : words % 2 == 0 ? 1 : 0;
  const RegisterLayout rows =
      rows_of_matrices(layout, plain, matrices, {layout.registers.begin() + 1, layout.registers.end()});
  const int per = 2 << matrices;
  out.unrolled("c", layout.count() / per, [&](Builder& each, const Expr& c) {
    each.store(plain ? Instr::stmatrix : Instr::stmatrix_trans,
               ir::address(tile.memory, place_in(tile, rows, c)), type, per,
               [&](Builder& one, const Expr& j) { return number(one.named("r", c * per + j)); });
  });
  return true;
}

}  // namespace quern
