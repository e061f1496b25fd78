#include "core/codegen/block/cluster_reductions.h"

#include <algorithm>

namespace quern {

void ClusterReductions::publish(BlockValue value) {
  std::vector<BlockValue> ready;
  for (BlockValue other = value; other < facts_.count(); ++other) {
    if (!program_.op(other).is_reduce_cluster()) continue;
    for (BlockValue operand : program_.op(other).operands)
      if ((operand < value || program_.op(operand).is_accumulate()) && !published_.contains(operand) &&
          std::find(ready.begin(), ready.end(), operand) == ready.end())
        ready.push_back(operand);
  }
  if (ready.empty()) return;
  for (BlockValue operand : ready) {
    const RegisterLayout layout =
        values_.is_in_parts(operand)
            ? facts_.blocked(operand, DType::f32, program_.op(operand).type.rank() - 1)
            : values_.natural(operand);
    if (!values_.find(operand, layout)) values_.materialize(operand, layout);
    const RegisterTile* const held = values_.find(operand, layout);
    if (!held) return fail(operand, "does not come into the registers where it is needed");
    const RegisterTile have = *held;
    const PublishedTile& tile = published_[operand] = place_tile(operand, have.dtype);
    text(Stage::after) += put(operand, have, tile);
  }
  text(Stage::after).add({{ir::Instruction{Instr::cluster_barrier, {}, {}}}, true});
}

ClusterReductions::PublishedTile ClusterReductions::place_tile(BlockValue value, DType dtype) {
  PublishedTile tile;
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
int ClusterReductions::vector_bits(BlockValue value, const PublishedTile& tile,
                                   RegisterLayout& layout) const {
  const Ints& shape = program_.shape(value);
  const int last = static_cast<int>(shape.size()) - 1;
  int vector = 0;
  while (last >= 0 && vector < 2 && tile.dtype != DType::boolean) {
    const int64_t next = int64_t{2} << vector;
    bool aligned = shape[static_cast<size_t>(last)] % next == 0 && tile.size % next == 0;
    for (int d = 0; d < last; ++d) aligned &= tile.pitch[static_cast<size_t>(d)] % next == 0;
    const auto at = std::find(layout.registers.begin(), layout.registers.end(), CoordBit{last, vector});
    if (!aligned || at == layout.registers.end()) break;
    std::rotate(layout.registers.begin() + vector, at, at + 1);
    ++vector;
  }
  return vector;
}

Body ClusterReductions::put(BlockValue value, const RegisterTile& have, const PublishedTile& tile) {
  RegisterLayout writes = have.layout;
  const int vector = vector_bits(value, tile, writes), per = 1 << vector;
  const RegisterLayout chunks = chunks_of(writes, vector);
  const Scalar type = ir::scalar_of(tile.dtype);
  Body body;
  Builder(body).when(leaders(have.layout), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      each.when(bounds_.inside(value, chunks, c, false), [&](Builder& there) {
        there.store(Instr::store_shared, ir::address(tile.memory, bounds_.offset(chunks, tile.pitch, c)),
                    type, per, [&](Builder& one, const Expr& j) {
                      return values_.read(have, writes, one.named("r", c * per + j)).as(tile.dtype);
                    });
      });
    });
  });
  return body;
}

// For each block of the cluster and each row of `layout` (of the shift): by how much what that block has
// summed shrinks when it becomes relative to the maximum of all.
Symbol ClusterReductions::factors(BlockValue shift, const RegisterLayout& layout) {
  const PublishedTile& tile = published_.at(shift);
  const int64_t blocks = facts_.cluster_blocks();
  const auto [known, fresh_one] =
      factors_.try_emplace(tile.memory->name + " " +
                           print(bounds_.offset(layout, tile.pitch, ir::make_variable("r", Scalar::i32))));
  if (!fresh_one) return known->second;
  known->second = fresh_registers(base_name(shift) + "factor", Scalar::f32, layout.count() * blocks);
  Body body;
  Builder to(body);
  to.declare(known->second);
  to.unrolled("r", layout.count(), [&](Builder& each, const Expr& r) {
    each.emit(Instr::cluster_factors,
              {ir::address(known->second, r * blocks),
               ir::address(tile.memory, bounds_.offset(layout, tile.pitch, r)),
               bounds_.inside(shift, layout, r, false)},
              {blocks});
  });
  text(Stage::after) += std::move(body);
  return known->second;
}

void ClusterReductions::gather(BlockValue value, const RegisterLayout& want) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  const PublishedTile& tile = published_.at(operand);
  RegisterTile out;
  out.layout = want;
  out.dtype = tile.dtype;
  out.scope = Stage::after;
  const Scalar type = ir::scalar_of(tile.dtype);
  out.registers = fresh_registers(base_name(value), type, want.count());
  const int vector = vector_bits(operand, tile, out.layout), per = 1 << vector;
  const RegisterLayout chunks = chunks_of(out.layout, vector);
  const bool rescaled = op.combine() == Combine::rescaled_sum;
  std::vector<int> dims;
  Symbol factors;
  if (rescaled) {
    dims = operand_dims(op.type.shape, program_.shape(op.operands[1]));
    factors = this->factors(op.operands[1], renumbered(out.layout, dims));
  }
  const int64_t blocks = facts_.cluster_blocks();
  Body body;
  Builder to(body);
  to.declare(out.registers, true);
  to.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
    each.when(bounds_.inside(operand, chunks, c, false), [&](Builder& there) {
      there.unrolled("block", blocks, [&](Builder& one, const Expr& block) {
        const Symbol v = ir::make_vector("v", type, per);
        one.declare(v);
        one.emit(Instr::load_cluster,
                 {v, ir::address(tile.memory, bounds_.offset(chunks, tile.pitch, c)), block}, {type, per});
        one.unrolled("j", per, [&](Builder& last, const Expr& j) {
          const Expr own = ir::element(out.registers, c * per + j);
          Expr part = ir::element(v, j);
          if (rescaled)
            part =
                ir::element(factors, renumbered_index(c * per + j, out.layout, dims) * blocks + block) * part;
          last.assign(own, ir::select(equal(block, 0), part,
                                      ir::combine(reduction_of(op.combine()), own, part, tile.dtype)));
        });
      });
    });
  });
  text(Stage::after) += std::move(body);
  last_gather_ = text(Stage::after).size();
  values_.hold(value, std::move(out));
}

}  // namespace quern
