// Tiles of scheduled blocks that end where no power of two does: which values have such, and whether the lowering
// can leave out the registers and warps beyond.
#include <algorithm>

#include "core/schedule/scheduled_block.h"

namespace quern {

namespace {

// Dimensions, counted from the last, of `flags` in which the two have the same extent.
unsigned in_common(const BlockOp& a, const BlockOp& b, unsigned flags) {
  const Ints &own = a.type.shape, &other = b.type.shape;
  unsigned out = 0;
  for (size_t i = 0; i < std::min(own.size(), other.size()); ++i)
    if (own[own.size() - 1 - i] == other[other.size() - 1 - i]) out |= flags & 1u << i;
  return out;
}

unsigned reduced_dims(const BlockOp& reduction, const BlockOp& operand) {
  unsigned out = 0;
  for (int64_t axis : *reduction.attrs().axis) out |= 1u << (operand.type.rank() - 1 - axis);
  return out;
}

bool is_power_of_two(int64_t extent) { return padded(extent) == extent; }

unsigned turned(unsigned flags) { return (flags & ~3u) | (flags & 1u) << 1 | (flags & 2u) >> 1; }

}  // namespace

double ScheduledBlock::padded_elements(size_t i) const {
  double count = 1;
  for (size_t d = kernel_.ops[i].type.shape.size(); d-- > 0;) count *= static_cast<double>(room(i, d));
  return count;
}

bool ScheduledBlock::has_three_warpgroups() const { return !are_powers_of_two(schedule_.warps); }

bool ScheduledBlock::is_unpadded_load(BlockValue load) const {
  for (int d = 0; d < op(load).type.rank(); ++d)
    if (is_staged_load(load) &&
        is_unpadded(kernel_, schedule_, op(load), places_[static_cast<size_t>(load)], d))
      return true;
  return false;
}

bool ScheduledBlock::has_one_tile_each(int64_t m) const {
  const int m_warps = schedule_.warps[static_cast<size_t>(m_side())];
  return m * kWgmmaWarps == m_warps * kWgmmaRows && schedule_.workers() == 32 * m_warps;
}

// As ProductPlans::columns_end_early decides: an instruction has all columns that the operand has.
bool ScheduledBlock::columns_end_early(size_t product, size_t side, int64_t extent) const {
  const BlockOp& each = kernel_.ops[product];
  const Ints& shape = each.type.shape;
  const bool is_batch = std::any_of(shape.begin(), shape.end() - 2, [](int64_t count) { return count > 1; });
  return schedule_.producer && !is_batch && extent < kWgmmaColumns && extent % kColumnUnit == 0 &&
         has_one_tile_each(padded(shape[shape.size() - (side == 0 ? 1 : 2)])) &&
         root_load(each.operands[side]) == each.operands[side] &&
         is_stored_alone(kernel_.ops, static_cast<BlockValue>(product));
}

unsigned ScheduledBlock::unpadded_of_product(size_t product) const {
  const BlockOp& each = kernel_.ops[product];
  unsigned out = 0;
  for (size_t side : {size_t{0}, size_t{1}}) {
    const BlockValue operand = each.operands[side];
    const int free = op(operand).type.rank() - (side == 0 ? 2 : 1);
    const bool of_three = static_cast<int>(side) == m_side() && has_three_warpgroups(),
               cut_short =
                   is_panel_operand(operand, *tensor_dtype(product)) &&
                   is_unpadded(kernel_, schedule_, op(operand), places_[static_cast<size_t>(operand)], free);
    const bool early = static_cast<int>(side) != m_side() &&
                       columns_end_early(product, side, op(operand).type.shape[static_cast<size_t>(free)]);
    if (of_three || cut_short || early) out |= side == 0 ? 2 : 1;
  }
  return out;
}

// What is loaded to meet such a value lies as that does.
void ScheduledBlock::find_unpadded() {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& each = kernel_.ops[i];
    unsigned& own = unpadded_[i];
    if (each.is_compute(OpKind::contraction)) {
      if (is_by_warpgroups(i)) own = unpadded_of_product(i);
      continue;
    }
    if (is_turned_matrix(each)) {
      own = turned(unpadded_[static_cast<size_t>(each.operands[0])]);
      continue;
    }
    for (BlockValue operand : each.operands) {
      const unsigned from = unpadded_[static_cast<size_t>(operand)];
      if (from != 0 && is_beside_product(each)) own |= in_common(each, op(operand), from);
    }
    if (own == 0) continue;
    for (BlockValue operand : each.operands)
      if (op(operand).is_load()) unpadded_[static_cast<size_t>(operand)] |= in_common(op(operand), each, own);
  }
}

bool ScheduledBlock::is_beside_product(const BlockOp& each) const {
  if (each.is_compute(OpCode::reshape))
    return differ_in_front(each.type.shape, op(each.operands[0]).type.shape);
  return is_elementwise(each) || each.is_compute(OpCode::cast) || each.is_accumulate() || each.is_store();
}

// As ProductPlans::plan_ends decides.
bool ScheduledBlock::product_ends_fit(size_t product) const {
  const size_t m_dim = m_side() == 0 ? 1 : 0, n_dim = 1 - m_dim;
  const int64_t m = room(product, m_dim), n = room(product, n_dim);
  const int m_warps = schedule_.warps[static_cast<size_t>(m_side())];
  const bool is_batch = padded_elements(product) > static_cast<double>(m * n);
  if (has_three_warpgroups()) {
    if (m % (3 * kWgmmaRows) != 0 || !is_power_of_two(m / 3)) return false;
  } else if (!is_power_of_two(m) && (m % kWgmmaRows != 0 || m_warps > kWgmmaWarps || is_batch)) {
    return false;
  }
  // All columns are of one instruction, and each warpgroup has one.
  return is_power_of_two(n) || (n <= kWgmmaColumns && has_one_tile_each(m) && !is_batch);
}

bool ScheduledBlock::ends_fit() const {
  const bool three = has_three_warpgroups();
  if (three && !(has_product_ && schedule_.producer && schedule_.wgmma)) return false;
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& each = kernel_.ops[i];
    const bool is_product = each.is_compute(OpKind::contraction),
               by_warpgroups = is_product && is_by_warpgroups(i);
    if (is_product && three && !by_warpgroups) return false;
    if (by_warpgroups && unpadded_[i] != 0 && !product_ends_fit(i)) return false;
    for (BlockValue operand : each.operands) {
      const bool as_panel = by_warpgroups && is_panel_operand(operand, *tensor_dtype(i));
      if (is_unpadded_load(operand) && !as_panel) return false;
      const unsigned ends = unpadded_[static_cast<size_t>(operand)];
      const bool keeps =
          is_product || is_beside_product(each) || each.is_reduce_cluster() || is_turned_matrix(each) ||
          (each.is_compute(OpKind::reduction) && (ends & reduced_dims(each, op(operand))) == 0);
      if (ends != 0 && !keeps) return false;
    }
  }
  return true;
}

}  // namespace quern
