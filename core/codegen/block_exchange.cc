// Partial results of lanes put together by shuffles, and tiles that a block leaves in shared memory for the
// others of its cluster.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

// Puts the partial results of lanes together, so that every lane has them.
void BlockEmitter::finish_lanes(BlockValue value) {
  Array array = arrays_[static_cast<size_t>(value)].front();
  for (const Array& other : arrays_[static_cast<size_t>(value)])
    if (other.partial_lanes == 0 && (other.scope == Stage::before || other.scope == now_)) return;
  const Symbol from = array.registers;
  array.registers = fresh_registers(base_name(value), from->type, array.spread.count());
  array.scope = place_of(value);
  Body body;
  Builder to(body);
  to.declare(array.registers);
  to.unrolled("r", array.spread.count(), [&](Builder& each, const Expr& r) {
    const Expr own = ir::element(array.registers, r);
    each.assign(own, ir::element(from, r));
    for (int bit = 0; bit < kLaneBits; ++bit)
      if (array.partial_lanes >> bit & 1)
        each.combine(array.reduction, own, ir::call(ir::Function::shuffle_xor, own.type(), {own, 1 << bit}));
  });
  array.partial_lanes = 0;
  text(array.scope) += std::move(body);
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// Places for a tile in shared memory. `pitch`: elements from one coordinate to the next.
BlockEmitter::SharedTile BlockEmitter::shared_tile(BlockValue value, DType dtype) {
  SharedTile tile;
  const Ints& shape = program_.shape(value);
  tile.pitch.assign(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 0;) {
    tile.pitch[d] = tile.size;
    tile.size *= shape[d];
    if (d + 1 == shape.size() && shape[d] >= 16) tile.size = (tile.size + 3) / 4 * 4 + 4;
  }
  tile.dtype = register_type(dtype);
  tile.memory = shared_buffer(ir::scalar_of(tile.dtype), tile.size * 4, SharedBuffer::Use::published);
  return tile;
}

// As many neighbours at once as both the tile and the registers allow; their bits of the register's number go
// first.
int BlockEmitter::shared_vector(BlockValue value, const SharedTile& tile, Spread& spread) const {
  const Ints& shape = program_.shape(value);
  const int last = static_cast<int>(shape.size()) - 1;
  int vector = 0;
  while (last >= 0 && vector < 2 && tile.dtype != DType::boolean) {
    const int64_t next = int64_t{2} << vector;
    bool aligned = shape[static_cast<size_t>(last)] % next == 0 && tile.size % next == 0;
    for (int d = 0; d < last; ++d) aligned &= tile.pitch[static_cast<size_t>(d)] % next == 0;
    const auto at = std::find(spread.registers.begin(), spread.registers.end(), CoordBit{last, vector});
    if (!aligned || at == spread.registers.end()) break;
    std::rotate(spread.registers.begin() + vector, at, at + 1);
    ++vector;
  }
  return vector;
}

// Writes a tile to shared memory, where other blocks will read it.
Body BlockEmitter::put_shared(BlockValue value, const Array& have, SharedTile& tile) {
  tile = shared_tile(value, have.dtype);
  Spread writes = have.spread;
  const int vector = shared_vector(value, tile, writes), per = 1 << vector;
  const Spread chunks = chunks_of(writes, vector);
  const Scalar type = ir::scalar_of(tile.dtype);
  Body body;
  Builder(body).when(leaders(have.spread), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      each.when(inside(value, chunks, c, false), [&](Builder& there) {
        there.store(Instr::store_shared, ir::address(tile.memory, offset(chunks, tile.pitch, c)), type, per,
                    [&](Builder& one, const Expr& j) {
                      return read(have, writes, one.named("r", c * per + j)).as(tile.dtype);
                    });
      });
    });
  });
  return body;
}

// Of threads that hold the same tile, the first.
Expr BlockEmitter::leaders(const Spread& spread) const {
  int lanes = 0, warps = 0;
  for (size_t i = 0; i < spread.lanes.size(); ++i)
    if (spread.lanes[i].dim < 0) lanes |= 1 << i;
  for (size_t i = 0; i < spread.warps.size(); ++i)
    if (spread.warps[i].dim < 0) warps |= 1 << i;
  const Expr first_lane = lanes ? equal(Expr(lane()) & lanes, 0) : ir::truth(true),
             first_warp = warps ? equal(Expr(warp()) & warps, 0) : ir::truth(true);
  return both(first_lane, first_warp);
}

}  // namespace quern
