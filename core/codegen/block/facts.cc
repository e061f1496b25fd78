#include "core/codegen/block/facts.h"

#include <algorithm>
#include <bit>

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
      warp_bits(bits_for(schedule.workers() / 32)),
      sharing_warp_bits(std::bit_width(static_cast<unsigned>(schedule.workers() / 32)) - 1) {
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
  sink_behind_loop();
  for (BlockValue value = 0; value < count(); ++value)
    staged_.push_back(program.op(value).is_load() &&
                      quern::is_staged(program.ops, schedule, value, program.stage(value), place(value)));
}

// What is computed element by element of what the loop does not change, and read behind it alone.
void BlockFacts::sink_behind_loop() {
  const int64_t held = kMostHeld * schedule.workers();
  for (BlockValue value = count(); value-- > 0;) {
    const BlockOp& op = program.op(value);
    const auto& users = program.users[static_cast<size_t>(value)];
    if (program.stage(value) != Stage::before || !is_elementwise(value) || op.type.element_count() <= held ||
        users.empty())
      continue;
    if (std::all_of(users.begin(), users.end(), [&](BlockValue user) {
          return program.stage(user) == Stage::after && !program.op(user).is_accumulate();
        }))
      program.stages[static_cast<size_t>(value)] = Stage::after;
  }
}

int BlockFacts::rank_bits() const { return std::bit_width(static_cast<uint64_t>(cluster_blocks())) - 1; }

int BlockFacts::vector_bits(BlockValue value, const RegisterLayout& layout, int inner) const {
  const TensorPlace& place = this->place(value);
  const int most = quern::vector_bits(kernel, program.op(value), place, inner);
  int bits = 0;
  while (bits < most && std::find(layout.registers.begin(), layout.registers.end(), CoordBit{inner, bits}) !=
                            layout.registers.end())
    ++bits;
  return dtype_size(place.dtype) << bits < 4 ? 0 : bits;  // vectors have whole words
}

int64_t BlockFacts::tile_bytes(BlockValue access) const {
  return program.op(access).type.element_count() * static_cast<int64_t>(dtype_size(place(access).dtype));
}

bool BlockFacts::is_shared_by_blocks(const BlockOp& op) const {
  for (int axis = 0; axis < kGridAxes; ++axis)
    if (kernel.grid[static_cast<size_t>(axis)] > 1 && op.map()[static_cast<size_t>(axis)] < 0) return true;
  return false;
}

bool BlockFacts::is_settled(const TensorPlace& place) const {
  return place.arg.kind == LaunchArg::Kind::input && !first;
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

int BlockFacts::access_bits(BlockValue access) const {
  const BlockOp& op = program.op(access);
  if (op.is_load() && is_staged(access)) return kAnyBits;
  return quern::vector_bits(kernel, op, place(op), inner_dim(op));
}

RegisterLayout BlockFacts::blocked(BlockValue value, DType dtype, int inner, int most_bits) const {
  const Ints& shape = program.shape(value);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  const int vector =
      std::min(most_bits, shared_vector_bits(shape, dtype, inner, kLaneBits + sharing_warp_bits));
  RegisterLayout layout =
      blocked_layout(shape, std::max(inner, 0), vector, sharing_warp_bits, 0, row_warp_bits);
  layout.warps.resize(static_cast<size_t>(warp_bits));
  return layout;
}

RegisterLayout BlockFacts::shared_out(BlockValue value, DType dtype, int inner, int most_bits) const {
  const RegisterLayout alone = blocked(value, dtype, inner, most_bits);
  if (rank_bits() == 0) return alone;
  const Ints& shape = program.shape(value);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  int all = -(kLaneBits + sharing_warp_bits + rank_bits());
  for (int64_t extent : shape) all += bits_for(extent);
  const int vector = leading_bits(alone, inner, std::max(all, 2));
  RegisterLayout layout = blocked_layout(shape, std::max(inner, 0), vector, sharing_warp_bits, rank_bits());
  layout.warps.resize(static_cast<size_t>(warp_bits));
  return layout;
}

}  // namespace quern
