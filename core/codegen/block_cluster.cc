// Reductions over the blocks of a cluster. Every block leaves what it has in its shared memory; behind one
// barrier of the cluster whoever needs the result reads all of them, and where it goes to a store, every
// block reads and stores its part.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

// Leaves the operands of this and of all later reductions that can be left already.
void BlockEmitter::publish(BlockValue value) {
  std::vector<BlockValue> ready;
  for (BlockValue other = value; other < static_cast<BlockValue>(program_.ops.size()); ++other) {
    if (program_.op(other).kind != BlockOp::Kind::reduce_cluster) continue;
    for (BlockValue operand : program_.op(other).operands)
      if ((operand < value || program_.op(operand).kind == BlockOp::Kind::accumulate) &&
          !published_.contains(operand) && std::find(ready.begin(), ready.end(), operand) == ready.end())
        ready.push_back(operand);
  }
  if (ready.empty()) return;
  for (BlockValue operand : ready) {
    const Spread spread = in_parts_.contains(operand)
                              ? blocked(operand, DType::f32, program_.op(operand).type.rank() - 1)
                              : natural(operand);
    if (!find(operand, spread)) materialize(operand, spread);
    const Array* array = find(operand, spread);
    if (!array) return fail(operand, "does not come into the registers where it is needed");
    const Array have = *array;
    SharedTile& tile = published_[operand];
    text(Stage::after) += put_shared(operand, have, tile);
  }
  text(Stage::after).add({{ir::Instruction{Instr::cluster_barrier, {}, {}}}, true});
}

// For each block of the cluster and each row of `spread` (of the shift): by how much what that block has
// summed shrinks when it becomes relative to the maximum of all.
Symbol BlockEmitter::cluster_factors(BlockValue shift, const Spread& spread) {
  const SharedTile& tile = published_.at(shift);
  const int64_t blocks = cluster_blocks();
  const auto [known, fresh_one] = cluster_factors_.try_emplace(
      tile.memory->name + " " + print(offset(spread, tile.pitch, ir::make_variable("r", Scalar::i32))));
  if (!fresh_one) return known->second;
  known->second = fresh_registers(base_name(shift) + "factor", Scalar::f32, spread.count() * blocks);
  Body body;
  Builder to(body);
  to.declare(known->second);
  to.unrolled("r", spread.count(), [&](Builder& each, const Expr& r) {
    each.emit(Instr::cluster_factors,
              {ir::address(known->second, r * blocks),
               ir::address(tile.memory, offset(spread, tile.pitch, r)), inside(shift, spread, r, false)},
              {blocks});
  });
  text(Stage::after) += std::move(body);
  return known->second;
}

// Reads what all blocks have and puts it together.
void BlockEmitter::gather(BlockValue value, const Spread& want) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  const SharedTile& tile = published_.at(operand);
  Array array;
  array.spread = want;
  array.dtype = tile.dtype;
  array.scope = Stage::after;
  const Scalar type = ir::scalar_of(tile.dtype);
  array.registers = fresh_registers(base_name(value), type, want.count());
  const int vector = shared_vector(operand, tile, array.spread), per = 1 << vector;
  const Spread chunks = chunks_of(array.spread, vector);
  const bool rescaled = op.combine == Combine::rescaled_sum;
  std::vector<int> dims;
  Symbol factors;
  if (rescaled) {
    dims = operand_dims(op.type.shape, program_.shape(op.operands[1]));
    factors = cluster_factors(op.operands[1], renumbered(array.spread, dims));
  }
  const int64_t blocks = cluster_blocks();
  Body body;
  Builder to(body);
  to.declare(array.registers, true);
  to.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
    each.when(inside(operand, chunks, c, false), [&](Builder& there) {
      there.unrolled("block", blocks, [&](Builder& one, const Expr& block) {
        const Symbol v = ir::make_vector("v", type, per);
        one.declare(v);
        one.emit(Instr::load_cluster, {v, ir::address(tile.memory, offset(chunks, tile.pitch, c)), block},
                 {type, per});
        one.unrolled("j", per, [&](Builder& last, const Expr& j) {
          const Expr own = ir::element(array.registers, c * per + j);
          Expr part = ir::element(v, j);
          if (rescaled)
            part = ir::element(factors, renumbered_index(c * per + j, array.spread, dims) * blocks + block) *
                   part;
          last.assign(own, ir::select(equal(block, 0), part,
                                      ir::combine(reduction_of(op.combine), own, part, tile.dtype)));
        });
      });
    });
  });
  text(Stage::after) += std::move(body);
  last_gather_ = text(Stage::after).size();
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// Which blocks of a cluster have something to store: all, if the store or the value gives each its part; the
// first of those that have the same.
Expr BlockEmitter::storing_block(const BlockOp& op, const Spread& spread) const {
  if (cluster_blocks() == 1 || op.map[static_cast<size_t>(Axis::cluster)] >= 0) return ir::truth(true);
  if (!spread.is_shared_out()) return equal(rank(), 0);
  int same = 0;
  for (size_t i = 0; i < spread.ranks.size(); ++i)
    if (spread.ranks[i].dim < 0) same |= 1 << i;
  return same ? equal(Expr(rank()) & same, 0) : ir::truth(true);
}

}  // namespace quern
