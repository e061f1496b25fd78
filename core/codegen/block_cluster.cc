// Reductions over the blocks of a cluster. Every block leaves what it has in its shared memory; behind one
// barrier of the cluster whoever needs the result reads all of them, and where it goes to a store, every
// block reads and stores its part.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

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
    const std::string write = put_shared(operand, have, tile);
    text(Stage::after).add({write, {}, {}, {tile.buffer}});
  }
  text(Stage::after).add({"cluster_sync();\n", {}, {}, {}, true});
}

// For each block of the cluster and each row of `spread` (of the shift): by how much what that block has
// summed shrinks when it becomes relative to the maximum of all.
const std::string& BlockEmitter::cluster_factors(BlockValue shift, const Spread& spread) {
  const SharedTile& tile = published_.at(shift);
  const std::string at = offset(spread, tile.pitch, "r"), within = inside(shift, spread, "r", false);
  const auto [known, fresh_one] = cluster_factors_.try_emplace(tile.name + " " + at);
  if (!fresh_one) return known->second;
  known->second = fresh(base_name(shift) + "factor");
  const std::string blocks = std::to_string(cluster_blocks()), rows = std::to_string(spread.count());
  text(Stage::after) += "float " + known->second + "[" + rows + " * " + blocks +
                        "];\n#pragma unroll\nfor (int r = 0; r < " + rows + "; ++r) cluster_factors<" +
                        blocks + ">(&" + known->second + "[r * " + blocks + "], " + tile.name + " + " + at +
                        ", " + (within.empty() ? "true" : within) + ");\n";
  return known->second;
}

// Reads what all blocks have and puts it together.
void BlockEmitter::gather(BlockValue value, const Spread& want) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  const SharedTile& tile = published_.at(operand);
  Array array;
  array.name = fresh(base_name(value));
  array.spread = want;
  array.dtype = tile.dtype;
  array.scope = Stage::after;
  const int vector = shared_vector(operand, tile, array.spread);
  const Spread chunks = chunks_of(array.spread, vector);
  const std::string blocks = std::to_string(cluster_blocks()), per = std::to_string(1 << vector),
                    type = cuda_type(tile.dtype);
  std::string part = "v[j]";  // element j of a chunk
  if (op.combine == Combine::rescaled_sum) {
    const std::vector<int> dims = operand_dims(op.type.shape, program_.shape(op.operands[1]));
    const std::string& factors = cluster_factors(op.operands[1], renumbered(array.spread, dims));
    part = "(" + factors + "[" + renumbered_index("(c * " + per + " + j)", array.spread, dims) + " * " +
           blocks + " + block] * v[j])";
  }
  const std::string within = inside(operand, chunks, "c", false), to = array.name + "[c * " + per + " + j]";
  const std::string both =
      cuda_combine(reduction_of(op.combine), {to, tile.dtype}, {part, tile.dtype}, tile.dtype);
  std::string body = "const auto v = load_cluster<" + type + ", " + per + ">(" + tile.name + " + " +
                     offset(chunks, tile.pitch, "c") + ", block);\n#pragma unroll\nfor (int j = 0; j < " +
                     per + "; ++j) " + to + " = block == 0 ? " + part + " : " + both + ";\n";
  body = "#pragma unroll\nfor (int block = 0; block < " + blocks + "; ++block) {\n" + indent(body, 2) + "}\n";
  if (!within.empty()) body = "if (" + within + ") {\n" + indent(body, 2) + "}\n";
  text(Stage::after) += type + " " + array.name + "[" + std::to_string(want.count()) +
                        "] = {};\n#pragma unroll\nfor (int c = 0; c < " + std::to_string(chunks.count()) +
                        "; ++c) {\n" + indent(body, 2) + "}\n";
  last_gather_ = text(Stage::after).size();
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// Which blocks of a cluster have something to store: all, if the store or the value gives each its part; the
// first of those that have the same.
std::string BlockEmitter::storing_block(const BlockOp& op, const Spread& spread) const {
  if (cluster_blocks() == 1 || op.map[static_cast<size_t>(Axis::cluster)] >= 0) return "";
  if (!spread.is_shared_out()) return "rank == 0";
  unsigned same = 0;
  for (size_t i = 0; i < spread.ranks.size(); ++i)
    if (spread.ranks[i].dim < 0) same |= 1u << i;
  return same ? "(rank & " + std::to_string(same) + ") == 0" : "";
}

}  // namespace quern
