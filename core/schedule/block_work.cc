#include "core/schedule/block_work.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/mugraph/narrow.h"
#include "core/schedule/block_counter.h"
#include "core/schedule/transforms.h"

namespace quern {

BlockWork BlockCounter::run() {
  out_.is_possible = ends_fit();
  for (int64_t extent : kernel_.grid) out_.blocks *= static_cast<double>(extent);
  out_.cluster = kernel_.grid[kGridAxes - 1];
  out_.trip_count = kernel_.trip_count;
  out_.fresh_share = 0;
  for (size_t i = 0; i < kernel_.ops.size(); ++i)
    if (transforms_.contains(static_cast<BlockValue>(i)))
      count_transform(i);
    else
      count(i);
  out_.is_possible &= !schedule_.transform || fits_transform();
  // Nobody writes to a stage that others still read.
  if (schedule_.stages > 0)
    out_.loop.chain += schedule_.producer ? constants_.handover_cycles : constants_.barrier_cycles;
  out_.is_possible &= !schedule_.shared_a || out_.kept_bytes > 0;
  pass_over();
  needs_.once_loaded = out_.once_bytes / 4 / schedule_.workers();
  if (out_.loop_bytes > 0 && kernel_.trip_count > 1) needs_.before_loop = needs_.once_loaded;
  out_.registers = estimate_registers(needs_, schedule_);
  return out_;
}

void BlockCounter::pass_over() {
  if (unmasked_.mean == 1 || (schedule_.overlap && !schedule_.intervals)) return;
  auto visited = [&](double share) {
    return std::clamp<int64_t>(std::llround(share * static_cast<double>(kernel_.trip_count)), 1,
                               kernel_.trip_count);
  };
  if (schedule_.intervals) {
    out_.trip_count = visited(unmasked_.mean);
    out_.longest_trip_count = visited(unmasked_.most);
    for (int32_t tensor : tensors_to_look_at(mugraph_, kernel_))
      out_.looked_at_bytes += bytes_of(mugraph_.tensors[static_cast<size_t>(tensor)].type);
    out_.looks_behind = sums_show_finite(mugraph_, kernel_);
    return;
  }
  out_.passed_share = 1 - unmasked_.mean;
  out_.longest_trip_count = out_.trip_count;
  out_.longest_passed_share = 1 - unmasked_.most;
  if (schedule_.stages < 2) {
    out_.passed = out_.loop;  // it looks at none
    return;
  }
  // Tiles of iterations that are passed over are read from shared memory, and all threads meet.
  for (double Work::* part : kLoads) out_.passed.*part = out_.loop.*part;
  out_.passed.chain = constants_.barrier_cycles + constants_.handover_cycles;
  for (BlockValue load : loads_that_must_be_finite(mugraph_, kernel_)) {
    const double bytes = loaded_bytes(op(load));
    out_.passed.shared_bytes += bytes;
    out_.passed.slots += bytes / 4 * kLookedAtWord / 32;
  }
}

double BlockCounter::computed_share(size_t i) const {
  const bool masks = in_loop(i) && masking_.contains(static_cast<BlockValue>(i));
  return masks && unmasked_.mean > 0 ? unmasked_.partly / unmasked_.mean : 1;
}

void BlockCounter::elementwise(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  if (each.operands.empty()) return;
  const ElementCost cost = element_cost(each.code());
  const double elements = elements_for(i, static_cast<BlockValue>(i));
  Work& own = work(stages_[i]);
  own.slots += elements / 32 * cost.issue * computed_share(i);
  own.special += elements / 32 * cost.special;
  for (BlockValue operand : each.operands) {
    if (!is_staged_load(operand)) continue;
    const double bytes = static_cast<double>(bytes_each(operand));
    own.shared_bytes += elements_for(i, operand) * bytes;
    if (bytes == 2) own.slots += elements_for(i, operand) / 32;  // converted
  }
  if (is_of_product(static_cast<BlockValue>(i)))
    for (BlockValue operand : each.operands) join_product(operand);
  if (in_loop(i)) needs_.block_middle = std::max(needs_.block_middle, padded_elements(i));
  if (lives_on(static_cast<BlockValue>(i))) needs_.loop_kept += padded_elements(i);
}

void BlockCounter::count(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  if (is_kept(i)) needs_.block_kept = std::max(needs_.block_kept, padded_elements(i));
  find_neighbours(i);
  switch (each.kind()) {
    case BlockOp::Kind::load:
      return load(i);
    case BlockOp::Kind::store: {
      const TensorType& whole = mugraph_.tensors[static_cast<size_t>(each.tensor())].type;
      const SectorWaste waste = sector_waste(memory_row(static_cast<BlockValue>(i)));
      out_.unique_bytes += bytes_of(whole) * waste.dram * dram_share(each);
      out_.once_l2 += loaded_bytes(each) * waste.l2;
      Work& own = work(stages_[i]);
      own.issue += padded_elements(i) / 32 * 1.5;
      own.chain += 2 * constants_.shared_latency + constants_.barrier_cycles;
      if (by_rows_[static_cast<size_t>(each.operands[0])] == true) make_room_to_exchange(i);
      return;
    }
    case BlockOp::Kind::accumulate:
    case BlockOp::Kind::reduce_cluster:
      return accumulate(i);
    case BlockOp::Kind::rescale_factor:  // in no muGraph
      return;
    case BlockOp::Kind::compute:
      break;
  }
  switch (op_info(each.code()).kind) {
    case OpKind::contraction:
      return product(i);
    case OpKind::reduction:
      return reduction(i);
    case OpKind::elementwise:
    case OpKind::composite:
      return elementwise(i);
    case OpKind::movement:
      if (each.code() == OpCode::transpose) transpose(i);
      return;
    default:
      return;
  }
}

void BlockCounter::transpose(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  const Ints& perm = *each.attrs().perm;
  size_t last = perm.size();
  while (last > 0 && each.type.shape[last - 1] == 1) --last;
  const Ints& from = op(each.operands[0]).type.shape;
  const bool turns = last > 0 && std::any_of(from.begin() + perm[last - 1] + 1, from.end(),
                                             [](int64_t extent) { return extent > 1; });
  if (turns && by_rows_[i] != false) exchange(i);
}

void BlockCounter::exchange(size_t i) {
  needs_.turned = std::max(needs_.turned, padded_elements(i));
  Work& own = work(stages_[i]);
  own.shared_bytes += 2 * 4 * padded_elements(i);
  own.chain += constants_.barrier_cycles + 2 * kSharedLatency;
  make_room_to_exchange(i);
}

void BlockCounter::make_room_to_exchange(size_t i) {
  const double bytes = padded_elements(i) * static_cast<double>(dtype_size(kernel_.ops[i].type.dtype));
  double& room = in_loop(i) ? out_.written_bytes : out_.exchange_bytes;
  room = std::max(room, bytes);
}

void BlockCounter::find_neighbours(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  if (each.is_compute(OpKind::contraction)) {
    if (is_by_warpgroups(i)) by_rows_[i] = m_side() == 1;
    return;
  }
  const bool turns = is_turned_matrix(each);
  if (!turns && !is_beside_product(each)) return;
  for (BlockValue operand : each.operands)
    if (const auto from = by_rows_[static_cast<size_t>(operand)]) by_rows_[i] = *from != turns;
}

void BlockCounter::load(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  if (!is_from_memory(each)) return;
  if (lives_on(static_cast<BlockValue>(i))) needs_.loop_kept += padded_elements(i);
  const TensorType& whole = mugraph_.tensors[static_cast<size_t>(each.tensor())].type;
  const BlockValue value = static_cast<BlockValue>(i);
  const double bytes = loaded_bytes(each);
  const Row row = memory_row(value);
  const SectorWaste waste = sector_waste(row);
  const double dram = bytes_of(whole) * waste.dram * dram_share(each);
  out_.unique_bytes += dram;
  out_.fresh_bytes += dram;
  const bool looped = in_loop(i), staged = is_staged_load(value);
  const double asked_for = bytes * out_.blocks * static_cast<double>(looped ? kernel_.trip_count : 1);
  out_.fresh_share = std::max(out_.fresh_share, std::min(1.0, dram / asked_for));
  out_.asked_bytes += asked_for;
  out_.distinct_bytes += std::min(asked_for, bytes_of(whole));
  (looped ? out_.loop_bytes : out_.once_bytes) += bytes;
  // Of what blocks share each asks for half.
  const double asked = staged && is_multicast(schedule_, each) ? 0.5 : 1;
  (looped ? out_.loop_l2 : out_.once_l2) += bytes * waste.l2 * asked;
  const double width = staged ? copy_width(value) : load_width(value), instructions = bytes / width / 32;
  TileLoad& how = out_.loads.emplace_back(
      TileLoad{value, staged, false, !staged && !is_kept(value) && is_fragment(value), bytes, width});
  if (looped) needs_.loaded += bytes / 4 / schedule_.workers();
  if (!staged && !place(value).pieces.empty()) needs_.parted += bytes / 4 / schedule_.workers();
  Work& own = work(stages_[i]);
  if (schedule_.producer && is_kept_as_it_is(value)) {
    const StagedTile tile = staged_tile(value, row);
    how.tma = tile.copies > 0;
    own.copies += tile.copies;
    own.lines += tile.copies > 0 ? tile.lines : 0;
  }
  if (!staged) {
    if (!how.tma) own.issue += instructions * 3;
    return;
  }
  const StagedTile tile = staged_tile(value, row);
  out_.loop_room += tile.bytes;
  // What a tensor map has the L2 cache fetch beyond a piece of a line is gone again when another block wants it.
  if (bytes_of(whole) > target_.l2_mib * (1 << 20) / 2)
    (looped ? out_.loop_l2 : out_.once_l2) += (tile.requests - 1) * bytes * waste.l2 * asked;
  how.tma = tile.copies > 0;
  if (how.tma)
    own.operand_bytes += constants_.tma_share * bytes;
  else
    own.shared_bytes += bytes;
  // An odd number of panels is shared by their rows.
  own.copies += tile.copies * (std::fmod(tile.copies, 2) == 0 ? asked : 1);
  own.lines += tile.lines * asked;
  if (!how.tma) own.issue += instructions * 4;
  // Asynchronous copies have at least four bytes.
  if (width < 4) own.round_trips += instructions / warps() / constants_.trip_loads;
}

bool BlockCounter::is_kept_as_it_is(BlockValue load) const {
  for (size_t i = 0; i < kernel_.ops.size(); ++i)
    if (kept_operand(i) == load && place(load).dtype == *tensor_dtype(i)) return true;
  return false;
}

void BlockCounter::find_transforms() {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    if (!kernel_.ops[i].is_compute(OpKind::contraction) || !in_loop(i) || !is_by_warpgroups(i)) continue;
    const BlockValue operand = kernel_.ops[i].operands[static_cast<size_t>(1 - m_side())];
    if (is_made(operand))
      transforms_.merge(made_of_stage(
          kernel_.ops, stages_,
          [&](BlockValue load) {
            return is_staged_load(load) ? inner_dim(place(load), op(load).type.shape) : -1;
          },
          static_cast<BlockValue>(i), operand));
  }
}

void BlockCounter::count_transform(size_t i) {
  const RegisterNeeds needs = needs_;
  transforming_ = kernel_.ops[i].is_compute();
  count(i);
  transforming_ = false;
  needs_ = needs;
}

bool BlockCounter::fits_transform() const {
  constexpr double kOther = 24;  // registers, beside those of the tile
  double words = 0;
  for (BlockValue value : transforms_)
    if (is_staged_load(value)) words = std::max(words, loaded_bytes(op(value)) / 4 / schedule_.workers());
  return words > 0 && words + kOther <= static_cast<double>(schedule_.transform_registers());
}

void BlockCounter::find_reductions() {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& each = kernel_.ops[i];
    const bool reduces = each.is_compute(OpKind::reduction) || each.is_compute(OpKind::composite);
    auto any_of = [&](const std::vector<bool>& known) {
      return std::any_of(each.operands.begin(), each.operands.end(),
                         [&](BlockValue operand) { return known[static_cast<size_t>(operand)]; });
    };
    reduced_in_front_.push_back(reduces ? stages_[i] == Stage::before : any_of(reduced_in_front_));
    reduced_.push_back(reduces || any_of(reduced_));
  }
}

void BlockCounter::reduction(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  const ReducedParts parts = parts_of_reduction(each);
  work(stages_[i]).slots += elements_for(static_cast<size_t>(each.operands[0]), each.operands[0]) / 32;
  Work& own = work(in_loop(i) && !is_summed(i) ? Stage::loop : Stage::after);
  own.slots += parts.values * parts.lane_bits * 2 * warps();
  own.chain += parts.lane_bits * kShuffleLatency;
  if (parts.across_warps) {
    out_.written_bytes += padded_elements(i) * 4 * warps();
    own.shared_bytes += parts.values * 32 * 4 * 2 * warps();
    own.chain += constants_.barrier_cycles + 2 * kSharedLatency;
  }
}

void BlockCounter::accumulate(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  const double elements = padded_elements(i);
  const BlockOp& summed = op(each.operands[0]);
  const bool product = summed.is_compute(OpKind::contraction),
             parts = summed.is_compute(OpKind::reduction) && !is_of_product(each.operands[0]) &&
                     each.is_accumulate() && each.combine() != Combine::max;
  if (parts)
    needs_.held += parts_of_reduction(summed).values;
  else if (!product)
    needs_.block_sums += elements;
  if (each.is_reduce_cluster()) {
    out_.once.chain += constants_.cluster_cycles;
    out_.once.shared_bytes += 2 * elements * 4;
    return;
  }
  if (each.combine() == Combine::rescaled_sum) out_.loop.slots += elements / 32;
  if (each.combine() == Combine::max) {
    out_.loop.issue += elements / 32 * 8 + warps() * 4;
    out_.loop.special += elements / 32;
  }
}

bool gains_by_tf32(const MuKernel& kernel) {
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    if (!op.is_compute(OpKind::contraction)) continue;
    const auto value = static_cast<BlockValue>(i);
    if (tensor_core_dtype(kernel.ops, value, true) != tensor_core_dtype(kernel.ops, value, false))
      return true;
  }
  return false;
}

BlockWork block_work(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                     const Target& target) {
  return BlockCounter(mugraph, kernel, schedule, target).run();
}

}  // namespace quern
