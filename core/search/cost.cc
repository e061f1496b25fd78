#include "core/search/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/grid.h"
#include "core/base/integers.h"
#include "core/base/wgmma.h"
#include "core/search/tiles.h"

namespace quern {

namespace {

// Reading N MB once on an H200, best of several grids, cold L2, in a CUDA graph (measured): MB, us. Other
// targets are scaled by their bandwidth, less the time of an empty kernel.
constexpr double kReadFloor[][2] = {{0, 1.4},  {2, 1.9},   {4, 2.4},   {8, 3.4},   {16, 5.2},
                                    {32, 9.0}, {48, 12.8}, {64, 16.5}, {96, 24.0}, {128, 31.3}};
constexpr double kMeasuredGbps = 4300;
constexpr double kLaunchUs = 0.5;         // an empty kernel in a graph
constexpr double kNextKernelUs = 1.2;     // drain and fill between dependent kernels
constexpr double kMemoryLatencyUs = 0.8;  // DRAM, under load
constexpr double kIterationUs = 0.04;          // barriers and address arithmetic of an iteration that is prefetched
constexpr double kExposedIterationUs = 0.5;    // what prefetching does not hide on the first iteration
constexpr double kClusterUs = 0.9;        // cluster barriers and remote reads of a small accumulator
constexpr double kStages = 3;             // tiles of a loop that are in flight or in use
constexpr double kMostPerSm = 1.5;        // bandwidth that one SM can draw, times its even share
constexpr double kAloneOnSm = 0.85;   // of the bandwidth, when no other block of an SM loads while one waits
constexpr double kContention = 0.25;  // of what runs beside the slowest, the part that still shows
constexpr double kMmaEfficiency = 0.6;
// Of the rate for 16-bit operands: tensor cores do half as much of tf32, and only by mma.sync.
constexpr double kTf32Share = 0.35;
constexpr double kMmaSyncShare = 0.6;  // of the rate of wgmma, which needs 64 rows or columns
constexpr int kThreadChoices[] = {128, 256};
constexpr double kRegisterValues = 96;  // f32 values a thread can hold beside what it needs otherwise
constexpr int kMostThreads = 512;  // that schedules give a block
constexpr int64_t kMostBlocks = int64_t{1} << 24;
// Parts that a second kernel puts together: of any grid, and of one that would leave SMs without a block.
constexpr int64_t kMostParts = 32, kMostPartsOfSmall = 1024;
constexpr double kMostOfParts = 1 << 14;  // values that a block puts together, if the parts are many
constexpr double kSectorBytes = 32;  // DRAM brings pairs of them

double volume(const std::vector<Label>& labels, const std::array<int64_t, kMaxLabels>& tiles) {
  double product = 1;
  for (Label label : labels) product *= static_cast<double>(tiles[label]);
  return product;
}

double rounded(int64_t extent, int64_t to) { return static_cast<double>(round_up(extent, to)); }

std::vector<Label> labels_of(LabelSet set) {
  std::vector<Label> labels;
  for (Label label = 0; label < kMaxLabels; ++label)
    if (has_label(set, label)) labels.push_back(label);
  return labels;
}

// f32 operations for one element.
double operations(const DagOp& op) {
  switch (op.term.kind) {
    case BlockKind::matmul:
    case BlockKind::concat_matmul:
      return 2;
    case BlockKind::reduction:
      return 2;
    case BlockKind::composite:
      return op.term.code == OpCode::softmax ? 24 : 8;
    default:
      break;
  }
  switch (op.term.code) {
    case OpCode::add:
    case OpCode::sub:
    case OpCode::mul:
    case OpCode::max:
    case OpCode::min:
    case OpCode::neg:
    case OpCode::square:
      return 2;
    case OpCode::exp:
    case OpCode::sqrt:
    case OpCode::rsqrt:
    case OpCode::reciprocal:
    case OpCode::div:
    case OpCode::sigmoid:
    case OpCode::silu:
    case OpCode::tanh:
      return 16;
    default:
      return 24;
  }
}

bool is_contraction(const DagOp& op) {
  return op.term.kind == BlockKind::matmul || op.term.kind == BlockKind::concat_matmul;
}

Precision operand_precision(const DagOp& op, const std::vector<Precision>& precision) {
  Precision most = Precision::narrow;
  for (int operand : op.operands) most = std::max(most, precision[static_cast<size_t>(operand)]);
  return most;
}

// f32 operations a second that a contraction of operands of this precision can do, in TFLOP/s.
double contraction_tflops(Precision precision, const Target& target) {
  if (precision == Precision::full) return target.fma_tflops;
  return target.mma_tflops * kMmaEfficiency * (precision == Precision::tf32 ? kTf32Share : 1);
}

LabelSet work_labels(const Dag& dag, const DagOp& op) {
  LabelSet set = op.labels;
  for (int operand : op.operands) set |= dag.ops[operand].labels;
  if (op.term.label2 >= 0) set &= ~label_bit(op.term.label2);  // counted apart
  return set;
}

// Tile extents worth trying: powers of two, and the whole.
std::vector<int64_t> tile_choices(int64_t extent, int64_t least, int64_t most) {
  std::vector<int64_t> choices;
  for (int64_t tile = least; tile < extent && tile <= most; tile *= 2) choices.push_back(tile);
  choices.push_back(extent);
  return choices;
}

}  // namespace

double dram_floor_us(double bytes, const Target& target) {
  const double mb = bytes / 1e6;
  const size_t rows = std::size(kReadFloor);
  size_t row = 1;
  while (row + 1 < rows && kReadFloor[row][0] < mb) ++row;
  const auto& [x0, y0] = kReadFloor[row - 1];
  const auto& [x1, y1] = kReadFloor[row];
  const double us = y0 + (mb - x0) * (y1 - y0) / (x1 - x0);
  return kLaunchUs + (us - kLaunchUs) * std::max(1.0, kMeasuredGbps / target.dram_gbps);
}

double arithmetic_us(const Dag& dag, const Terms& terms, const Target& target) {
  double us = 0;
  const std::vector<Precision> precision = precisions(dag, terms);
  for (const DagOp& op : dag.ops) {
    if (op.term.kind == BlockKind::leaf || op.term.kind == BlockKind::constant) continue;
    double elements = 1;
    for (Label label : labels_of(work_labels(dag, op)))
      elements *= static_cast<double>(terms.labels[label].extent);
    if (op.term.label2 >= 0)
      elements *= 1 + static_cast<double>(terms.labels[op.term.label2].extent) /
                          static_cast<double>(terms.labels[op.term.label].extent);
    const double rate = is_contraction(op) ? contraction_tflops(operand_precision(op, precision), target) : target.fma_tflops;
    us += elements * operations(op) / rate * 1e-6;
  }
  return us;
}

KernelModel::KernelModel(const KernelDag& kernel, const Roles& roles, const std::vector<Dims>& tensors,
                         const std::vector<double>& element_bytes, const Terms& terms, const Target& target)
    : roles_(roles), target_(target) {
  for (const LabelInfo& label : terms.labels) extents_.push_back(label.extent);
  auto count = [&](const Dims& dims) {
    double elements = 1;
    for (Label label : dims)
      if (label >= 0) elements *= static_cast<double>(extents_[label]);
    return elements;
  };
  const std::vector<Precision> precision = precisions(kernel.dag, terms);
  for (size_t at = 0; at < kernel.dag.ops.size(); ++at) {
    const DagOp& op = kernel.dag.ops[at];
    if (op.term.kind == BlockKind::leaf) {
      const double bytes = element_bytes[op.term.index];
      const Dims dims = leaf_dims(op, tensors);
      const Label row = dims.empty() ? kNoLabel : dims.back();
      if (op.term.label >= 0)
        loaded_again_.push_back({labels_of(op.labels), false, bytes, row});
      else
        loads_.push_back({labels_of(op.labels), roles.form.stages[at] == Stage::loop, bytes, row,
                          count(dims) * bytes});
    } else if (op.term.kind != BlockKind::constant) {
      add_work(kernel, roles, terms, precision, at);
    }
  }
  for (size_t i = 0; i < kernel.stores.size(); ++i) {
    const double bytes = element_bytes[kernel.stores[i]];
    const Dims& dims = tensors[kernel.stores[i]];
    stores_.push_back({labels_of(kernel.dag.ops[kernel.dag.outputs[i]].labels), false, bytes,
                       dims.empty() ? kNoLabel : dims.back(), count(dims) * bytes});
  }
}

void KernelModel::add_work(const KernelDag& kernel, const Roles& roles, const Terms& terms,
                           const std::vector<Precision>& precision, size_t at) {
  const DagOp& op = kernel.dag.ops[at];
  const bool accumulates = roles.form.accumulates[at];
  const bool looped = roles.form.stages[at] == Stage::loop || accumulates;
  Work work{
      labels_of(work_labels(kernel.dag, op)), looped, 0, kNoLabel, kNoLabel, kNoLabel, is_contraction(op)};
  const Precision of_operands = operand_precision(op, precision);
  work.wgmma = work.contraction && of_operands == Precision::narrow && target_.wgmma;
  const double rate = work.contraction ? contraction_tflops(of_operands, target_) : target_.fma_tflops;
  work.rate = operations(op) / (rate / target_.sms) * 1e-6;
  if (work.contraction) {
    const LabelSet a = kernel.dag.ops[op.operands[0]].labels, b = kernel.dag.ops[op.operands[1]].labels;
    const LabelSet reduced = reduced_by_operators(kernel.dag);
    work.inner = op.term.label;
    for (size_t i = work.labels.size(); i-- > 0;) {
      const Label label = work.labels[i];
      if (label == work.inner) continue;
      if (!has_label(b, label) && makes_better_tiles(label, work.row, terms, reduced)) work.row = label;
      if (!has_label(a, label) && makes_better_tiles(label, work.column, terms, reduced)) work.column = label;
    }
    if (op.term.label2 >= 0)
      work.rate *= 1 + static_cast<double>(terms.labels[op.term.label2].extent) /
                           static_cast<double>(terms.labels[op.term.label].extent);
  }
  if (work.contraction) common_outer_ &= work.outer();
  const bool reduced_at_once = std::any_of(work.labels.begin(), work.labels.end(), [&](Label label) {
    return terms.labels[label].whole_of >= 0 && has_label(op.labels, label);
  });
  if (accumulates)
    accumulators_.push_back({labels_of(op.labels), true, 4});
  else if (!reduced_at_once)
    values_.push_back({labels_of(op.labels), looped, 4});
  work_.push_back(std::move(work));
}

// As schedules will have them.
KernelModel::Tiles KernelModel::tiles(const Sizes& sizes) const {
  Tiles tiles{};
  for (size_t label = 0; label < extents_.size(); ++label) tiles[label] = extents_[label];
  for (size_t axis = 0; axis < roles_.grid.size(); ++axis)
    tiles[roles_.grid[axis]] = round_tile(tiles[roles_.grid[axis]], sizes.grid[axis]);
  if (roles_.loop >= 0)
    tiles[roles_.loop] = round_tile(divide_up(tiles[roles_.loop], sizes.ranks), sizes.trip_count);
  return tiles;
}

KernelModel::Waste KernelModel::waste(const Access& access, const Tiles& tile) const {
  if (access.row < 0 || access.bytes == 0 || tile[access.row] >= extents_[access.row]) return {};
  const double row = static_cast<double>(tile[access.row]) * access.bytes;
  return {std::max(1.0, kSectorBytes / row), std::clamp(2 * kSectorBytes / row, 1.0, 2.0)};
}

int64_t KernelModel::longest(const Tiles& tile, LabelSet outer) const {
  // Products that follow each other have the same warps along the same rows.
  int64_t most = 1;
  for (Label label : labels_of(outer & common_outer_ ? outer & common_outer_ : outer))
    most = std::max(most, tile[label]);
  return most;
}

std::optional<Cost> KernelModel::evaluate(Sizes& sizes) const {
  const Tiles tile = tiles(sizes);
  const double trip_count = static_cast<double>(sizes.trip_count), ranks = static_cast<double>(sizes.ranks);
  Cost cost;
  cost.blocks = sizes.ranks;
  for (size_t axis = 0; axis < roles_.grid.size(); ++axis) cost.blocks *= sizes.grid[axis];
  const double blocks = static_cast<double>(cost.blocks);

  // What a block holds: loaded tiles in shared memory, accumulators and the largest value in registers.
  double loaded = 0, in_flight = 0, largest = 0, accumulated = 0;
  for (const Access& load : loads_) {
    const double bytes = volume(load.labels, tile) * load.bytes;
    const Waste wasted = waste(load, tile);
    loaded += bytes * wasted.l2 * (load.looped ? trip_count : 1);
    cost.dram_bytes += load.whole * wasted.dram;
    cost.shared_bytes += bytes * (load.looped && sizes.trip_count > 1 ? kStages : 1);
    in_flight += bytes * (load.looped && sizes.trip_count > 1 ? kStages - 1 : 1);
  }
  if (cost.shared_bytes > target_.shared_bytes_per_block) return std::nullopt;
  // Out of the L2 cache into registers, before the loop.
  for (const Access& load : loaded_again_) {
    const double bytes = volume(load.labels, tile) * load.bytes;
    if (bytes > 4 * kRegisterValues * kMostThreads) return std::nullopt;
    loaded += bytes;
  }
  for (const Access& store : stores_) cost.dram_bytes += store.whole * waste(store, tile).dram;
  for (const Access& value : values_) largest = std::max(largest, volume(value.labels, tile));
  for (const Access& value : accumulators_) accumulated += volume(value.labels, tile);
  for (int threads : kThreadChoices) {
    sizes.threads = threads;
    if (accumulated + largest <= kRegisterValues * threads) break;
  }
  if (accumulated + largest > kRegisterValues * sizes.threads) return std::nullopt;
  if (!roles_.stores_in_loop && sizes.ranks > kMostParts && accumulated * ranks > kMostOfParts)
    return std::nullopt;

  const double per_sm =
      std::max(1.0, std::min({std::floor(target_.shared_bytes_per_sm / (cost.shared_bytes + kSystemSharedBytes)),
                              2048.0 / sizes.threads, 16.0}));
  double block_us = 0;  // arithmetic of one block, alone on its SM
  for (const Work& work : work_) {
    double elements = volume(work.labels, tile);
    if (work.contraction) {
      const int64_t row = work.row < 0 ? 1 : tile[work.row], column = work.column < 0 ? 1 : tile[work.column];
      const int64_t inner = tile[work.inner];
      const int64_t wgmma_rows = longest(tile, work.outer());
      const double padded =
          std::min(rounded(row, 16) * rounded(column, 8), rounded(row, 8) * rounded(column, 16)) *
          rounded(inner, 16);
      if (work.wgmma && wgmma_rows < kWgmmaRows) elements /= kMmaSyncShare;
      elements *=
          padded / (static_cast<double>(row) * static_cast<double>(column) * static_cast<double>(inner));
    }
    block_us += elements * work.rate * (work.looped ? trip_count : 1);
  }

  // Waves: SMs work side by side, the last wave may be partly empty.
  const double slots = target_.sms * per_sm;
  const double resident = std::min(blocks, slots);
  const double busiest = std::ceil(blocks / target_.sms);
  cost.compute_us = block_us * busiest;
  const double imbalance = busiest * target_.sms / blocks;

  double l2_bytes = loaded * blocks;
  if (roles_.split == Split::second_kernel) {
    double partial = 0;
    for (const Access& value : accumulators_) partial += volume(value.labels, tile) * 4 * blocks;
    l2_bytes += 2 * partial;
    cost.dram_bytes += partial;  // written back at least
    cost.fixed_us += kNextKernelUs + kLaunchUs;
  }
  // Bytes in flight against latency times bandwidth, and what the busy SMs can draw.
  const double wanted = kMemoryLatencyUs * target_.dram_gbps * 1e3;
  const double flow =
      std::min({1.0, resident * in_flight / wanted,
                std::min(blocks, static_cast<double>(target_.sms)) / target_.sms * kMostPerSm});
  const double alone = resident < 2 * target_.sms ? kAloneOnSm : 1;
  const double floor_us = dram_floor_us(cost.dram_bytes, target_);
  const double idle = dram_floor_us(0, target_);
  cost.dram_us = idle + (floor_us - idle) / std::min(flow, alone) *
                            (blocks > target_.sms ? 1 + 0.5 * (imbalance - 1) : 1);
  cost.l2_us = l2_bytes / (target_.l2_gbps * 1e3);
  if (roles_.split == Split::cluster) {
    cost.fixed_us += kClusterUs;
    for (const Access& value : accumulators_)  // every block reads all parts
      cost.l2_us += volume(value.labels, tile) * 4 * blocks * ranks / (target_.l2_gbps * 1e3);
  }
  const double rounds = std::ceil(blocks / slots);
  cost.fixed_us += rounds * (trip_count * kIterationUs + (sizes.trip_count > 1 ? kExposedIterationUs : 0)) + kLaunchUs;
  // Loads run beside arithmetic when a loop prefetches, or other blocks of the SM compute meanwhile.
  const double together = std::max({cost.dram_us, cost.l2_us, cost.compute_us});
  const bool overlaps = sizes.trip_count > 1 || resident >= 2 * target_.sms;
  cost.us = cost.fixed_us + (overlaps ? together + kContention * (cost.l2_us + cost.compute_us)
                                      : std::max(cost.dram_us, cost.l2_us) + cost.compute_us);
  return cost;
}

namespace {

constexpr int64_t kWaves = 2;

// Parts of the loop of so many blocks: powers of two and, where these are no cluster, those with which the blocks are a wave, or
// two.
std::vector<int64_t> part_choices(int64_t blocks, int64_t sms, int64_t most, bool cluster) {
  std::vector<int64_t> out;
  for (int64_t parts = 2; parts <= most; parts *= 2) out.push_back(parts);
  if (cluster) return out;
  for (int64_t waves = 1; waves <= kWaves; ++waves) {
    const int64_t parts = waves * sms / blocks;
    if (parts > 2 && parts <= most && std::find(out.begin(), out.end(), parts) == out.end())
      out.push_back(parts);
  }
  return out;
}

}  // namespace

std::vector<SizedKernel> best_sizes(const KernelModel& model, const Roles& roles, const Terms& terms,
                                    const Target& target, size_t count,
                                    const std::function<bool(const Sizes&)>& allowed) {
  std::vector<SizedKernel> best;
  std::vector<int64_t> grid_tiles[3];
  for (size_t axis = 0; axis < 3; ++axis)
    grid_tiles[axis] = axis < roles.grid.size() ? tile_choices(terms.labels[roles.grid[axis]].extent, 1, 256)
                                                : std::vector<int64_t>{1};
  auto extent = [&](size_t axis) {
    return axis < roles.grid.size() ? terms.labels[roles.grid[axis]].extent : 1;
  };
  const bool is_small = !roles.stores_in_loop &&
                        double(extent(0)) * double(extent(1)) * double(extent(2)) * kMostParts < target.sms;
  auto rank_choices = [&](int64_t blocks) -> std::vector<int64_t> {
    if (roles.split == Split::none) return {1};
    const bool cluster = roles.split == Split::cluster;
    std::vector<int64_t> choices = part_choices(blocks, target.sms,
                                                cluster    ? target.max_cluster
                                                : is_small ? kMostPartsOfSmall
                                                           : kMostParts,
                                                cluster);
    // Blocks that store in the loop are all that there are: a wave, or a few.
    if (roles.stores_in_loop)
      for (int64_t per_sm : {1, 2, 4}) {
        choices.push_back(per_sm * int64_t(std::bit_floor(static_cast<uint64_t>(target.sms))));
        choices.push_back(per_sm * target.sms);
      }
    return choices;
  };
  const int64_t least_tile = roles.stores_in_loop ? 1 : 16;
  const bool is_one_product = model.is_one_product();
  Sizes sizes;
  auto consider = [&] {
    if (allowed && !allowed(sizes)) return;
    Sizes tried = sizes;
    const std::optional<Cost> cost = model.evaluate(tried);
    if (!cost || (best.size() == count && cost->us >= best.back().cost.us)) return;
    // Then one number of iterations is enough.
    const auto same = std::find_if(best.begin(), best.end(), [&](const SizedKernel& known) {
      return is_one_product && known.sizes.grid == tried.grid && known.sizes.ranks == tried.ranks;
    });
    if (same != best.end()) {
      if (cost->us >= same->cost.us) return;
      best.erase(same);
    }
    if (best.size() == count) best.pop_back();
    const auto at = std::upper_bound(best.begin(), best.end(), cost->us,
                                     [](double us, const SizedKernel& known) { return us < known.cost.us; });
    best.insert(at, {tried, *cost});
  };
  auto over_loop = [&] {
    if (roles.loop < 0) return consider();
    for (int64_t ranks : rank_choices(sizes.grid[0] * sizes.grid[1] * sizes.grid[2])) {
      const int64_t whole = terms.labels[roles.loop].extent, share = divide_up(whole, ranks);
      if (ranks > whole) continue;
      sizes.ranks = ranks;
      for (int64_t tile : tile_choices(share, least_tile, 1024)) {
        sizes.trip_count = divide_up(share, tile);
        if (sizes.trip_count > 1 || ranks > 1) consider();
      }
    }
  };
  for (int64_t x : grid_tiles[0])
    for (int64_t y : grid_tiles[1])
      for (int64_t z : grid_tiles[2]) {
        sizes = Sizes();
        sizes.grid = {divide_up(extent(0), x), divide_up(extent(1), y), divide_up(extent(2), z)};
        if (!fits_launch(sizes.grid[0], sizes.grid[1], sizes.grid[2])) continue;
        if (sizes.grid[0] * sizes.grid[1] * sizes.grid[2] > kMostBlocks) continue;
        over_loop();
      }
  return best;
}

}  // namespace quern
