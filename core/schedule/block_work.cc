#include "core/schedule/block_work.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/mugraph/narrow.h"
#include "core/mugraph/tile_masks.h"
#include "core/schedule/model_constants.h"
#include "core/schedule/register_estimate.h"
#include "core/schedule/scheduled_block.h"

namespace quern {

namespace {

class Counter : private ScheduledBlock {
 public:
  Counter(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
          const Target& target)
      : ScheduledBlock(mugraph, kernel, schedule, target),
        constants_(model_constants(target)),
        unmasked_(unmasked_share(mugraph, kernel)),
        straight_(kernel.ops.size()),
        by_rows_(kernel.ops.size()) {
    if (schedule.intervals) masking_ = masking_values(mugraph, kernel);
    find_reductions();
  }

  BlockWork run() {
    out_.is_possible = ends_fit();
    for (int64_t extent : kernel_.grid) out_.blocks *= static_cast<double>(extent);
    out_.cluster = kernel_.grid[kGridAxes - 1];
    out_.trip_count = kernel_.trip_count;
    out_.fresh_share = 0;
    for (size_t i = 0; i < kernel_.ops.size(); ++i) count(i);
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

 private:
  static constexpr double kLookedAtWord = 3;  // instructions
  static constexpr double kMmaCycles = 6.5;   // of a sub-partition, for one of 16 x 8 x 16
  // What is reduced is loaded, then loaded again as operands lie in registers; behind both come the other operands.
  static constexpr double kReducedFirst = 2;

  // What an iteration brings it brings whether or not all of it is masked; with intervals there are fewer of
  // them. Without, iterations that overlap are not passed over.
  void pass_over() {
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
    for (double Work::*part : kLoads) out_.passed.*part = out_.loop.*part;
    out_.passed.chain = constants_.barrier_cycles + constants_.handover_cycles;
    for (BlockValue load : loads_that_must_be_finite(mugraph_, kernel_)) {
      const double bytes = loaded_bytes(op(load));
      out_.passed.shared_bytes += bytes;
      out_.passed.slots += bytes / 4 * kLookedAtWord / 32;
    }
  }

  // Of the iterations, those in which it is computed: with intervals masks are made where a tile is masked in part.
  double computed_share(size_t i) const {
    const bool masks = in_loop(i) && masking_.contains(static_cast<BlockValue>(i));
    return masks && unmasked_.mean > 0 ? unmasked_.partly / unmasked_.mean : 1;
  }

  Work& work(Stage stage) { return stage == Stage::loop ? out_.loop : out_.once; }

  void elementwise(size_t i) {
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

  void count(size_t i) {
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

  // Where another dimension becomes the innermost, threads exchange elements, so that they load and store neighbours.
  void transpose(size_t i) {
    const BlockOp& each = kernel_.ops[i];
    const Ints& perm = *each.attrs().perm;
    size_t last = perm.size();
    while (last > 0 && each.type.shape[last - 1] == 1) --last;
    const Ints& from = op(each.operands[0]).type.shape;
    const bool turns = last > 0 && std::any_of(from.begin() + perm[last - 1] + 1, from.end(),
                                               [](int64_t extent) { return extent > 1; });
    if (turns && by_rows_[i] != false) exchange(i);
  }

  // Elements that other threads store than have them, through shared memory.
  void exchange(size_t i) {
    needs_.turned = std::max(needs_.turned, padded_elements(i));
    Work& own = work(stages_[i]);
    own.shared_bytes += 2 * 4 * padded_elements(i);
    own.chain += constants_.barrier_cycles + 2 * kSharedLatency;
    make_room_to_exchange(i);
  }
  // No time is counted where a product is stored as it is: with it, wgmma would be ranked behind mma.sync, which is
  // slower (gatedmlp_b8: 18.0 and 21.1 us).
  void make_room_to_exchange(size_t i) {
    const double bytes = padded_elements(i) * static_cast<double>(dtype_size(kernel_.ops[i].type.dtype));
    double& room = in_loop(i) ? out_.written_bytes : out_.exchange_bytes;
    room = std::max(room, bytes);
  }

  // Whoever has neighbours along the rows of a product has them along the columns of what it is turned into.
  void find_neighbours(size_t i) {
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

  void load(size_t i) {
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
    TileLoad& how =
        out_.loads.emplace_back(TileLoad{value, staged, false, !staged && !is_kept(value) && is_fragment(value), bytes, width});
    if (looped) needs_.loaded += bytes / 4 / schedule_.workers();
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

  // Nothing is computed between it and the product, whose operand may come by TMA then.
  bool is_kept_as_it_is(BlockValue load) const {
    for (size_t i = 0; i < kernel_.ops.size(); ++i)
      if (kept_operand(i) == load && place(load).dtype == *tensor_dtype(i)) return true;
    return false;
  }

  // A tile that meets a product is loaded as that lies in registers: two elements at a time.
  void join_product(BlockValue value) {
    const BlockOp& each = op(value);
    if (!each.is_load() || is_staged_load(value)) return;
    work(stages_[static_cast<size_t>(value)]).round_trips +=
        padded_elements(static_cast<size_t>(value)) / 2 / schedule_.workers() / constants_.trip_loads;
  }

  // Without tensor cores: both operands out of shared memory, where what the ring does not bring is left
  // first.
  void product_by_fma(size_t i) {
    const BlockOp& each = kernel_.ops[i];
    const BlockOp &left = op(each.operands[0]), &right = op(each.operands[1]);
    const double columns = right.type.shape.size() < 2 ? 1 : static_cast<double>(right.type.shape.back()),
                 rows = left.type.shape.size() < 2
                            ? 1
                            : static_cast<double>(left.type.shape[left.type.shape.size() - 2]);
    const FmaTile tile = fma_tile(static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                  left.type.shape.back(), {is_by_inner(each.operands[0], 0), kFmaVector},
                                  {is_by_inner(each.operands[1], 1), kFmaVector}, schedule_.warps);
    const double batch = padded_elements(i) /
                         static_cast<double>(padded(int64_t(rows)) * padded(int64_t(columns))),
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

  void product(size_t i) {
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
    own.chain +=
        static_cast<double>(k / k_least) * std::max(0.0, constants_.mma_latency - apart * kMmaCycles);
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

  // Registers of a thread for the result of a product, and the exchange of what warps along k have of it.
  void keep_product(size_t i, double thread_sums, double k_parts) {
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

  // The next iteration begins before it has landed.
  bool stays_outstanding(size_t i) const {
    const std::vector<BlockValue>& operands = kernel_.ops[i].operands;
    return schedule_.producer &&
           std::all_of(operands.begin(), operands.end(),
                       [&](BlockValue each) { return is_staged_load(each); }) &&
           std::any_of(kernel_.ops.begin(), kernel_.ops.end(), [&](const BlockOp& user) {
             return user.is_accumulate(Combine::sum) && user.operands[0] == static_cast<BlockValue>(i);
           });
  }

  // Tensor cores read staged operands by themselves, the N operand once for every 64 rows of the M operand.
  void wgmma_product(size_t i, double batch) {
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
    if (is_made(each.operands[static_cast<size_t>(1 - side)])) {
      const double bytes = batch * 2 * static_cast<double>(n * k);
      own.shared_bytes += bytes;
      own.chain += constants_.barrier_cycles;
      out_.written_bytes += bytes;
    }
    const double m_words = batch * static_cast<double>(m * k) * m_copies / 2 / schedule_.workers();
    const BlockValue rows = each.operands[static_cast<size_t>(side)];
    const bool keeps = kept_operand(i) >= 0;
    if (keeps) out_.kept_bytes += batch * 2 * static_cast<double>(m * k);
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

  // What each value is made of: reductions, and such that are made in front of the loop.
  void find_reductions() {
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

  // Every warp loads the fragments that it needs by itself, those that others load too out of the L1 cache.
  void read_direct(BlockValue load, double words) {
    const size_t i = static_cast<size_t>(load);
    work(stages_[i]).shared_bytes += words * 4 * 32 * warps();
    if (!in_loop(i) || !schedule_.prefetch)
      work(stages_[i]).round_trips += words * 4 / widest(load) / constants_.trip_loads;
    if (!in_loop(i)) needs_.once_fragments += words;
    if (!in_loop(i) || std::exchange(straight_[i], true)) return;
    // Halves that come one at a time have a register each, those of this iteration and of the next.
    needs_.loaded +=
        (load_width(load) < 4 ? 4 : 1) * words - loaded_bytes(op(load)) / 4 / schedule_.workers();
  }

  void reduction(size_t i) {
    const BlockOp& each = kernel_.ops[i];
    const ReducedParts parts = parts_of_reduction(each);
    work(stages_[i]).slots += elements_for(static_cast<size_t>(each.operands[0]), each.operands[0]) / 32;
    Work& own = in_loop(i) && !is_summed(i) ? out_.loop : out_.once;
    own.slots += parts.values * parts.lane_bits * 2 * warps();
    own.chain += parts.lane_bits * kShuffleLatency;
    if (parts.across_warps) {
      out_.written_bytes += padded_elements(i) * 4 * warps();
      own.shared_bytes += parts.values * 32 * 4 * 2 * warps();
      own.chain += constants_.barrier_cycles + 2 * kSharedLatency;
    }
  }

  void accumulate(size_t i) {
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

  const ModelConstants& constants_;
  const UnmaskedShare unmasked_;
  std::set<BlockValue> masking_;  // what most iterations do without
  std::vector<char> straight_;  // loads whose fragments are counted
  // Of what is computed of a product by warpgroups: whether registers of a thread have neighbours along its rows, not
  // along its columns.
  std::vector<std::optional<bool>> by_rows_;
  std::vector<bool> reduced_, reduced_in_front_;
  RegisterNeeds needs_;
  BlockWork out_;
};

}  // namespace

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
  return Counter(mugraph, kernel, schedule, target).run();
}

}  // namespace quern
