#include "core/codegen/block/facts.h"

#include <algorithm>

namespace quern {

BlockFacts::BlockFacts(const MuKernel& kernel, BlockProgram given, const std::vector<TensorPlace>& places,
                       const KernelSchedule& schedule, bool first, const Target& target, bool approximate,
                       const BlockOrder& order)
    : kernel(kernel),
      program(std::move(given)),
      places(places),
      schedule(schedule),
      target(target),
      order(order),
      first(first),
      approximate(approximate),
      warp_bits(bits_for(schedule.workers() / 32)) {
  if (!has_product(program.ops)) row_warp_bits = bits_for(schedule.warps[0]);
  for (BlockOp& op : program.ops) {
    if (!op.is_load() || place(op).numbered < 0) continue;
    BlockOp::Compute iota{.code = OpCode::iota, .tile = op.access()};  // from where its tile begins
    iota.attrs.axis = Ints{place(op).numbered};
    op.become(std::move(iota));
  }
  // The factor of a running maximum is a value like others, so that it finds its way where it is needed.
  for (BlockValue value = 0, last = count(); value < last; ++value) {
    const BlockOp op = program.op(value);
    if (!op.is_accumulate(Combine::rescaled_sum)) continue;
    const BlockValue shift = op.operands[1];
    if (factors.contains(shift)) continue;
    factors[shift] = count();
    BlockOp factor{BlockOp::RescaleFactor()};
    factor.type = program.op(shift).type;
    factor.name = program.op(shift).name;
    program.ops.push_back(factor);
    program.stages.push_back(Stage::loop);
    program.users.push_back({value, value});
  }
}

int BlockFacts::rank_bits() const {
  const int bits = bits_for(cluster_blocks());
  return cluster_blocks() == int64_t{1} << bits ? bits : 0;
}

int BlockFacts::inner_dim(const BlockOp& access) const {
  const TensorPlace& place = this->place(access);
  const Ints& tile = access.type.shape;
  int best = -1;
  for (int d = 0; d < static_cast<int>(tile.size()); ++d)
    if (place.strides[static_cast<size_t>(d)] == 1 && place.shape[static_cast<size_t>(d)] > 1 &&
        (best < 0 || tile[static_cast<size_t>(d)] > tile[static_cast<size_t>(best)]))
      best = d;
  return best;
}

int BlockFacts::vector_bits(BlockValue value, const RegisterLayout& layout, int inner) const {
  if (inner < 0) return 0;
  const BlockOp& op = program.op(value);
  const TensorPlace& place = this->place(op);
  auto divides_pieces = [&](int64_t number) {
    return std::all_of(place.pieces.begin(), place.pieces.end(), [&](const TensorPlace& piece) {
      for (size_t d = 0; d < piece.shape.size(); ++d)
        if (static_cast<int>(d) != inner && piece.shape[d] > 1 && piece.strides[d] % number != 0)
          return false;
      const size_t at = static_cast<size_t>(inner);
      return piece.offset % number == 0 && piece.shape[at] % number == 0 && piece.strides[at] == 1;
    });
  };
  auto divides = [&](int64_t number) {
    if (place.shape[static_cast<size_t>(inner)] % number != 0 ||
        op.type.shape[static_cast<size_t>(inner)] % number != 0 || place.offset % number != 0 ||
        !divides_pieces(number))
      return false;
    // Wherever blocks and iterations cut it, they cut between vectors.
    int64_t part = place.shape[static_cast<size_t>(inner)];
    for (int axis = 0; axis <= kGridAxes; ++axis) {
      if (!cuts(op, axis, inner)) continue;
      part = kernel.part(axis, part);
      if (part % number != 0) return false;
    }
    for (size_t d = 0; d < place.shape.size(); ++d)
      if (static_cast<int>(d) != inner && place.shape[d] > 1 && place.strides[d] % number != 0) return false;
    return true;
  };
  int bits = 0;
  while ((dtype_size(place.dtype) << (bits + 1)) <= 16 && divides(int64_t{2} << bits) &&
         std::find(layout.registers.begin(), layout.registers.end(), CoordBit{inner, bits}) !=
             layout.registers.end())
    ++bits;
  return dtype_size(place.dtype) << bits < 4 ? 0 : bits;  // vectors have whole words
}

bool BlockFacts::is_shared_by_blocks(const BlockOp& op) const {
  for (int axis = 0; axis < kGridAxes; ++axis)
    if (kernel.grid[static_cast<size_t>(axis)] > 1 && op.map()[static_cast<size_t>(axis)] < 0) return true;
  return false;
}

bool BlockFacts::is_settled(const TensorPlace& place) const {
  return place.arg.kind == LaunchArg::Kind::input && !first;
}

bool BlockFacts::is_staged(BlockValue value) const {
  return schedule.stages > 1 && program.stage(value) == Stage::loop && place(value).dtype != DType::boolean;
}

namespace {

// For each dimension of the result of a view its number in the operand; `dims` is the other way round.
std::vector<int> inverse_dims(const std::vector<int>& dims, size_t rank) {
  std::vector<int> back(rank, -1);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0) back[static_cast<size_t>(dims[i])] = static_cast<int>(i);
  return back;
}

}  // namespace

bool BlockFacts::is_free(BlockValue value) const {
  const BlockOp& op = program.op(value);
  if (!op.is_compute()) return false;
  const OpKind kind = op_info(op.code()).kind;
  return kind == OpKind::elementwise || is_cast(op) || op.code() == OpCode::iota ||
         (kind == OpKind::movement && is_view(program, value));
}

std::vector<int> BlockFacts::asked_dims(BlockValue value, size_t operand) const {
  const Ints &shape = program.shape(value), &from = program.shape(program.op(value).operands[operand]);
  if (!program.is_compute(value, OpKind::movement)) return operand_dims(shape, from);
  std::vector<int> back = inverse_dims(view_dims(program, value), shape.size());
  for (size_t d = 0; d < back.size(); ++d)  // repeated by a broadcast
    if (back[d] >= 0 && from[static_cast<size_t>(back[d])] == 1 && shape[d] != 1) back[d] = -1;
  return back;
}

BlockValue BlockFacts::root_load(BlockValue value) const {
  const BlockOp& op = program.op(value);
  if (op.is_load()) return value;
  if (!program.is_compute(value, OpKind::elementwise) && !is_cast(op)) return -1;
  for (BlockValue operand : op.operands)
    if (program.shape(operand) == op.type.shape)
      if (const BlockValue load = root_load(operand); load >= 0) return load;
  return -1;
}

bool BlockFacts::is_summed(BlockValue value) const {
  const auto& users = program.users[static_cast<size_t>(value)];
  if (users.size() != 1 || program.stage(value) != Stage::loop) return false;
  const BlockOp& user = program.op(users[0]);
  return user.is_accumulate() && user.combine() != Combine::concat &&
         reduction_of(user.combine()) == OpCode::reduce_sum;
}

bool BlockFacts::is_shift(BlockValue value) const {
  const auto& users = program.users[static_cast<size_t>(value)];
  return program.op(value).combine() == Combine::max &&
         (factors.contains(value) || std::any_of(users.begin(), users.end(), [&](BlockValue user) {
            return program.stage(user) == Stage::loop;
          }));
}

bool BlockFacts::keeps_parts(BlockValue value) const {
  const BlockOp& op = program.op(value);
  const BlockValue operand = op.operands[0];
  if (op.combine() == Combine::concat || is_shift(value) || !program.only_for(operand, value) ||
      program.stage(operand) != Stage::loop)
    return false;
  if (program.is_compute(operand, OpKind::contraction))
    return reduction_of(op.combine()) == OpCode::reduce_sum;
  return program.is_compute(operand, OpKind::reduction) &&
         program.op(operand).code() == reduction_of(op.combine());
}

RegisterLayout BlockFacts::blocked(BlockValue value, DType dtype, int inner) const {
  const Ints& shape = program.shape(value);
  int all = -(kLaneBits + warp_bits);
  for (int64_t extent : shape) all += bits_for(extent);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  int vector = 0;
  while (inner >= 0 && (dtype_size(dtype) << (vector + 1)) <= 16 && vector + 1 <= all &&
         shape[static_cast<size_t>(inner)] % (int64_t{2} << vector) == 0)
    ++vector;
  return blocked_layout(shape, std::max(inner, 0), vector, warp_bits, 0, row_warp_bits);
}

RegisterLayout BlockFacts::shared_out(BlockValue value, DType dtype, int inner) const {
  const RegisterLayout alone = blocked(value, dtype, inner);
  if (rank_bits() == 0) return alone;
  const Ints& shape = program.shape(value);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  int all = -(kLaneBits + warp_bits + rank_bits());
  for (int64_t extent : shape) all += bits_for(extent);
  const int vector = leading_bits(alone, inner, std::max(all, 2));
  return blocked_layout(shape, std::max(inner, 0), vector, warp_bits, rank_bits());
}

}  // namespace quern
