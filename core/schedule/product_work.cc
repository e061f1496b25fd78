// What products of a block cost: by FMA, mma.sync and wgmma.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/schedule/block_counter.h"

namespace quern {

void BlockCounter::join_product(BlockValue value) {
  const BlockOp& each = op(value);
  if (!each.is_load() || is_staged_load(value)) return;
  work(stages_[static_cast<size_t>(value)]).round_trips +=
      padded_elements(static_cast<size_t>(value)) / 2 / schedule_.workers() / constants_.trip_loads;
}

void BlockCounter::product_by_fma(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  const BlockOp &left = op(each.operands[0]), &right = op(each.operands[1]);
  const double columns = right.type.shape.size() < 2 ? 1 : static_cast<double>(right.type.shape.back()),
               rows = left.type.shape.size() < 2
                          ? 1
                          : static_cast<double>(left.type.shape[left.type.shape.size() - 2]);
  const FmaTile tile = fma_tile(static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                left.type.shape.back(), {is_by_inner(each.operands[0], 0), kFmaVector},
                                {is_by_inner(each.operands[1], 1), kFmaVector}, schedule_.warps);
  const double batch =
                   padded_elements(i) / static_cast<double>(padded(int64_t(rows)) * padded(int64_t(columns))),
               groups = batch * warps() * std::ldexp(1, tile.groups), loads = groups * tile.loads();
  Work& own = work(stages_[i]);
  own.fma += groups * std::ldexp(tile.sums(), tile.group) *
                 (tile.a_by_inner || tile.b_by_inner ? kFmaCyclesByInner : kFmaCycles) +
             loads;
  own.shared_bytes += loads * kFmaLoadBytes;
  own.chain += kSharedLatency;
  double exchange = 0;
  for (size_t side : {size_t{0}, size_t{1}}) {
    const BlockValue operand = each.operands[side];
    const BlockOp& from = op(operand);
    if (is_staged_load(operand) &&
        mugraph_.tensors[static_cast<size_t>(from.tensor())].type.dtype == each.type.dtype)
      continue;
    const double elements = padded_elements(static_cast<size_t>(operand));
    Work& made = work(stages_[static_cast<size_t>(operand)]);
    made.slots += elements / 32 * kCopy;
    made.shared_bytes += elements * 4;
    made.chain += constants_.barrier_cycles;
    exchange += elements * 4;
  }
  out_.exchange_bytes = std::max(out_.exchange_bytes, exchange);
  needs_.fma_sums = std::max(needs_.fma_sums, batch * tile.sums());
  needs_.fma_operands = std::max(needs_.fma_operands, static_cast<double>(tile.operand_registers()));
  keep_product(i, 0, std::ldexp(1, tile.k_warps));
}

void BlockCounter::product(size_t i) {
  const BlockOp& each = kernel_.ops[i];
  const Ints &left = op(each.operands[0]).type.shape, &own_shape = each.type.shape;
  const std::optional<DType> dtype = tensor_dtype(i);
  for (BlockValue operand : each.operands)
    if (in_loop(i) && reduced_in_front_[static_cast<size_t>(operand)]) out_.once_waits = kReducedFirst;
  if (!dtype) return product_by_fma(i);
  Work& own = work(stages_[i]);
  const int64_t rows = own_shape[own_shape.size() - 2], columns = own_shape.back(), inner = left.back();
  double batch = 1;
  for (size_t d = 0; d + 2 < own_shape.size(); ++d) batch *= static_cast<double>(padded(own_shape[d]));
  const bool wide = *dtype == DType::f32;
  if (is_by_warpgroups(i)) return wgmma_product(i, batch);
  const int64_t k_least = least_inner(*dtype);
  const ProductParts parts = parts_of(i, *dtype);
  const int64_t m = std::max<int64_t>(16, padded(rows)) / parts.m,
                n = std::max<int64_t>(8, padded(columns) / parts.n),
                k = std::max(k_least, padded(inner)) / parts.k;
  const double per_word = wide ? 1 : 2;
  const double a_words = batch * static_cast<double>(std::max<int64_t>(m, 8) * k) / per_word / 32,
               b_words = batch * static_cast<double>(n * k) / per_word / 32;
  const bool in_three = is_in_three(i);  // products, of operands that are the sum of two numbers
  const double mma = batch * fragments_of(i, *dtype) * (in_three ? 3 : 1);
  own.mma += mma;
  own.issue += mma;
  own.chain += constants_.shared_latency;
  // Those that add to the same sums wait for each other.
  const double apart = batch * static_cast<double>(std::max<int64_t>(m, 16) / 16 * (n / 8));
  own.chain += static_cast<double>(k / k_least) * std::max(0.0, constants_.mma_latency - apart * kMmaCycles);
  for (int side = 0; side < 2; ++side) {
    const BlockValue operand = each.operands[static_cast<size_t>(side)];
    const double words = side == 0 ? a_words : b_words;
    const bool from_loop = stages_[static_cast<size_t>(operand)] == Stage::loop;
    if (stages_[static_cast<size_t>(operand)] != stages_[i] && !from_loop) {
      needs_.held += words;  // packed once, before the loop
      continue;
    }
    if (!in_loop(i) && op(operand).is_compute()) needs_.made += words;
    if (in_three)
      own.slots += words * warps() * kSplitWord;
    else if (wide)
      own.issue += words * warps() * 2;  // rounded
    if (op(operand).is_load() && from_loop && schedule_.stages > 0) {
      // By ldmatrix, or one by one, of which two lie in one bank.
      const bool one_by_one = bytes_each(operand) == 4 && !is_by_inner(operand, static_cast<size_t>(side));
      own.shared_bytes += words * (one_by_one ? 8 : 4) * 32 * warps();
      own.issue += (one_by_one ? words * kLoadedWord : words / 4 * 2) * warps();
    } else {
      own.issue += words * warps() * (op(operand).is_load() ? 1 : 2);
      if (op(operand).is_load()) read_direct(operand, words);
      if (op(operand).is_load() && !in_loop(i) &&
          reduced_[static_cast<size_t>(each.operands[static_cast<size_t>(1 - side)])])
        out_.once_waits = kReducedFirst;
      if (side == 1 && op(operand).is_compute()) {
        // Nobody leaves a tile in the order in which products take their right operands.
        own.shared_bytes += padded_elements(static_cast<size_t>(operand)) * 4 + words * 4 * 32 * warps();
        own.chain += 2 * constants_.barrier_cycles + words * constants_.shared_latency;
      }
    }
    if (in_three)
      needs_.split += words * static_cast<double>(k_least) / static_cast<double>(k);
    else if (in_loop(i))
      needs_.fragments += words;
  }
  if (has_split_rows(each.operands[0])) {
    // What a warpgroup has lies in tiles of 64 rows, 16 a warp; here the rows of a warp are neighbours.
    const double elements = padded_elements(static_cast<size_t>(each.operands[0]));
    own.shared_bytes += elements * 4 * 2;
    own.issue += elements / 32 * 6;
    own.chain += constants_.barrier_cycles;
  }
  const double sums = static_cast<double>(m * n) / 32;
  keep_product(i, batch * sums, static_cast<double>(parts.k));
  if (in_three) needs_.product_sums += sums;
}

void BlockCounter::keep_product(size_t i, double thread_sums, double k_parts) {
  const bool summed = std::any_of(kernel_.ops.begin(), kernel_.ops.end(), [&](const BlockOp& user) {
    return user.is_accumulate() && user.operands[0] == static_cast<BlockValue>(i);
  });
  (summed || !in_loop(i) ? needs_.product_sums : needs_.product_middle) += thread_sums;
  if (k_parts > 1) {
    out_.exchange_bytes = std::max(out_.exchange_bytes, padded_elements(i) * 4 * k_parts);
    // What is used in the loop is exchanged there, by every warp that uses it.
    Work& own = in_loop(i) && !summed ? out_.loop : out_.once;
    own.shared_bytes += padded_elements(i) * 4 * k_parts * (1 + copies(i));
    own.chain += constants_.barrier_cycles + 2 * constants_.shared_latency;
    own.issue += padded_elements(i) / 32 * k_parts * 1.5;
  }
}

bool BlockCounter::stays_outstanding(size_t i) const {
  const std::vector<BlockValue>& operands = kernel_.ops[i].operands;
  return schedule_.producer &&
         std::all_of(operands.begin(), operands.end(),
                     [&](BlockValue each) { return is_staged_load(each); }) &&
         std::any_of(kernel_.ops.begin(), kernel_.ops.end(), [&](const BlockOp& user) {
           return user.is_accumulate(Combine::sum) && user.operands[0] == static_cast<BlockValue>(i);
         });
}

void BlockCounter::wgmma_product(size_t i, double batch) {
  const BlockOp& each = kernel_.ops[i];
  const int side = m_side();
  const auto [tile, parts, m_copies] = by_warpgroups(i);
  const auto [m, n, k, least_n] = tile;
  out_.is_possible &= wgmma_registers(static_cast<double>(std::min(n / parts.n, kWgmmaColumns)) / 2) <=
                      static_cast<double>(schedule_.launch_registers());
  const double repeats = m_copies / static_cast<double>(parts.n);
  needs_.wgmma = true;
  Work& own = work(stages_[i]);
  const int64_t filled = parts.k > 1 ? k : round_up(op(each.operands[0]).type.shape.back(), int64_t{16});
  const double size = batch * static_cast<double>(m * n * filled) * repeats;
  own.wgmma += size / (16 * 8 * 16);
  own.issue += size / (64 * 16 * static_cast<double>(std::min(n, kWgmmaColumns))) * 4 * 4;
  own.chain += constants_.wgmma_cycles;
  if (in_loop(i)) out_.holds_last_tiles |= stays_outstanding(i);
  own.operand_bytes += batch * 2 * static_cast<double>(n * k * (m / kWgmmaRows));
  if (const BlockValue made = each.operands[static_cast<size_t>(1 - side)]; transforms_.contains(made)) {
    out_.transform.shared_bytes += batch * 2 * static_cast<double>(n * k);
  } else if (is_made(made)) {
    const double bytes = batch * 2 * static_cast<double>(n * k);
    out_.makes_operands = true;
    own.shared_bytes += bytes;
    own.chain += constants_.barrier_cycles;
    out_.written_bytes += bytes;
  }
  const double m_words = batch * static_cast<double>(m * k) * m_copies / 2 / schedule_.workers();
  const BlockValue rows = each.operands[static_cast<size_t>(side)];
  const bool keeps = kept_operand(i) >= 0;
  if (keeps) out_.kept_bytes += batch * 2 * static_cast<double>(padded(m) * padded(k));
  if (keeps || is_panel_operand(rows, *tensor_dtype(i))) {
    // By every warpgroup for its own part of the N operand.
    own.operand_bytes += batch * 2 * static_cast<double>(m * k * parts.n) * repeats;
  } else {
    own.slots += m_words * warps();  // packed
    needs_.fragments += m_words;
  }
  keep_product(i, batch * static_cast<double>((m / parts.m) * (n / parts.n)) / 128,
               static_cast<double>(parts.k));
}

void BlockCounter::read_direct(BlockValue load, double words) {
  const size_t i = static_cast<size_t>(load);
  work(stages_[i]).shared_bytes += words * 4 * 32 * warps();
  if (!in_loop(i) || !schedule_.prefetch)
    work(stages_[i]).round_trips += words * 4 / widest(load) / constants_.trip_loads;
  if (!in_loop(i)) needs_.once_fragments += words;
  if (!in_loop(i) || std::exchange(straight_[i], true)) return;
  // Halves that come one at a time have a register each, those of this iteration and of the next.
  needs_.loaded += (load_width(load) < 4 ? 4 : 1) * words - loaded_bytes(op(load)) / 4 / schedule_.workers();
}

}  // namespace quern
