#include "core/schedule/enumerate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace quern {

namespace {

// What the model knows of a GPU. Of sm_90a measured on an H200 (DESIGN.md section 9), of others from data
// sheets.
struct GpuNumbers {
  int major, minor;
  int multiprocessors;
  double dram, l2;  // bytes a microsecond
  double latency;   // microseconds from asking for bytes to having them
  int64_t shared;   // bytes of a multiprocessor
};
constexpr GpuNumbers kGpus[] = {
    {8, 0, 108, 1.9e6, 4.0e6, 0.7, 164 * 1024},  {8, 6, 84, 0.9e6, 3.0e6, 0.7, 100 * 1024},
    {8, 9, 128, 1.0e6, 4.0e6, 0.7, 100 * 1024},  {9, 0, 132, 4.3e6, 6.5e6, 0.8, 228 * 1024},
    {10, 0, 148, 7.0e6, 9.0e6, 0.8, 228 * 1024},
};
constexpr double kLaunch = 2.0;    // of a kernel, its start and end included
constexpr double kBarrier = 0.05;  // a turn's waiting for each other

const GpuNumbers& numbers_of(const Target& target) {
  const GpuNumbers* best = &kGpus[0];
  for (const GpuNumbers& gpu : kGpus)
    if (gpu.major < target.major || (gpu.major == target.major && gpu.minor <= target.minor)) best = &gpu;
  return *best;
}

double bytes_of(const TensorType& type) {
  return static_cast<double>(type.element_count()) * static_cast<double>(dtype_size(type.dtype));
}

// What one kernel asks of a block.
struct Needs {
  double loop_bytes = 0, once_bytes = 0;  // loaded a turn, and once
  double staged_bytes = 0;                // of a turn, with extents rounded up as stages have them
  double unique = 0;                      // of all blocks, from DRAM
  double sums = 0, middle = 0;            // elements in registers over the loop, and in a turn
};

Needs needs_of(const MuGraph& mugraph, const MuKernel& kernel) {
  Needs out;
  const std::vector<Stage> stages = block_stages(kernel);
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    const double elements = static_cast<double>(op.type.element_count());
    if (op.kind == BlockOp::Kind::load) {
      const double bytes =
          elements *
          static_cast<double>(dtype_size(mugraph.tensors[static_cast<size_t>(op.tensor)].type.dtype));
      (stages[i] == Stage::loop ? out.loop_bytes : out.once_bytes) += bytes;
      if (stages[i] == Stage::loop) {
        double room = bytes / elements;
        for (int64_t extent : op.type.shape)
          room *= static_cast<double>(std::bit_ceil(static_cast<uint64_t>(extent)));
        out.staged_bytes += room;
      }
      // Rows shorter than 64 bytes waste part of every access.
      const double row =
          op.type.shape.empty() ? 64 : bytes / elements * static_cast<double>(op.type.shape.back());
      const TensorType& whole = mugraph.tensors[static_cast<size_t>(op.tensor)].type;
      const bool narrow = !whole.shape.empty() && op.type.shape.back() < whole.shape.back() && row < 64;
      out.unique += bytes_of(whole) * (narrow ? 64 / row : 1);
    } else if (op.kind == BlockOp::Kind::store) {
      out.unique += bytes_of(mugraph.tensors[static_cast<size_t>(op.tensor)].type);
    } else if (op.kind == BlockOp::Kind::accumulate) {
      out.sums += elements;
    } else if (stages[i] == Stage::loop) {
      out.middle = std::max(out.middle, elements);
    }
  }
  return out;
}

struct Shape {
  bool product = false, chained = false;
  int64_t rows = 1, columns = 1, inner = 1;  // of the largest product of the loop
};

Shape shape_of(const MuKernel& kernel) {
  Shape out;
  const std::vector<Stage> stages = block_stages(kernel);
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    out.chained |= op.kind == BlockOp::Kind::accumulate && op.combine == Combine::rescaled_sum;
    if (op.kind != BlockOp::Kind::compute || op.code != OpCode::matmul || op.type.rank() < 2) continue;
    if (stages[i] != Stage::loop && kernel.turns > 1) continue;
    const Ints& left = kernel.ops[static_cast<size_t>(op.operands[0])].type.shape;
    const Ints& own = op.type.shape;
    out.product = true;
    out.rows = std::max(out.rows, own[own.size() - 2]);
    out.columns = std::max(out.columns, own.back());
    out.inner = std::max(out.inner, left.back());
  }
  return out;
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Extents of what an axis (or, from kGridAxes, the loop) cuts; 0 if it cuts nothing.
int64_t cut_extent(const MuGraph& mugraph, const MuKernel& kernel, int axis) {
  for (const BlockOp& op : kernel.ops) {
    if (op.kind != BlockOp::Kind::load && op.kind != BlockOp::Kind::store) continue;
    const int dim = axis < kGridAxes ? op.map[static_cast<size_t>(axis)] : op.loop_dim;
    if (dim >= 0) return mugraph.tensors[static_cast<size_t>(op.tensor)].type.shape[static_cast<size_t>(dim)];
  }
  return 0;
}

std::vector<std::array<int, 3>> warp_choices(const Shape& shape) {
  std::vector<std::array<int, 3>> out;
  if (!shape.product) return {{1, 1, 2}, {1, 1, 4}, {1, 1, 8}, {1, 1, 16}};
  for (int m : {1, 2, 4, 8})
    for (int n : {1, 2, 4})
      for (int k : {1, 2, 4, 8, 16}) {
        if (m * n * k > 16 || m * n * k < 2) continue;
        if (m > 1 && shape.rows < 16 * m) continue;
        if (n > 1 && shape.columns < 32 * n) continue;
        if (shape.chained && (n > 1 || k > 1)) continue;
        out.push_back({m, n, k});
      }
  if (out.empty()) out.push_back({1, 1, 2});
  return out;
}

std::vector<KernelSchedule> kernel_schedules(const MuGraph& mugraph, size_t k, const Schedule& own,
                                             const Target& target) {
  struct Ranked {
    double time;
    KernelSchedule schedule;
  };
  std::vector<Ranked> ranked;
  const MuKernel& kernel = mugraph.kernels[k];
  auto consider = [&](const KernelSchedule& schedule) {
    Schedule all = own;
    all.kernels[k] = schedule;
    auto applied = apply_schedule(mugraph, all);
    if (!applied) return;
    const double time = modelled_time(*applied, applied->kernels[k], schedule, target);
    if (std::isfinite(time)) ranked.push_back({time, schedule});
  };
  // Grids: one axis at a time is cut finer or coarser.
  std::vector<std::array<int64_t, kGridAxes>> grids = {kernel.grid};
  for (int axis = 0; axis < 3; ++axis)
    for (int64_t parts :
         {kernel.grid[static_cast<size_t>(axis)] / 4, kernel.grid[static_cast<size_t>(axis)] / 2,
          kernel.grid[static_cast<size_t>(axis)] * 2, kernel.grid[static_cast<size_t>(axis)] * 4,
          kernel.grid[static_cast<size_t>(axis)] * 8}) {
      if (parts < 1 || parts > cut_extent(mugraph, kernel, axis)) continue;
      std::array<int64_t, kGridAxes> grid = kernel.grid;
      grid[static_cast<size_t>(axis)] = parts;
      grids.push_back(grid);
    }
  const int64_t cut_by_loop = cut_extent(mugraph, kernel, kGridAxes);
  for (const auto& grid : grids) {
    KernelSchedule base = own.kernels[k];
    base.grid = grid;
    Schedule all = own;
    all.kernels[k] = base;
    auto applied = apply_schedule(mugraph, all);
    if (!applied) continue;
    const Shape shape = shape_of(applied->kernels[k]);
    const int64_t depth = shape.inner * kernel.turns;  // of what the loop cuts, in one block
    for (const auto& warps : warp_choices(shape)) {
      base.warps = warps;
      std::vector<int64_t> turns = {kernel.turns};
      if (cut_by_loop > 0 && shape.product)
        for (int64_t tile : {32, 64, 128}) {
          const int64_t in_block =
              shape.chained ? divide_up(cut_by_loop, std::max<int64_t>(1, grid[1])) : depth;
          turns.push_back(std::max<int64_t>(1, divide_up(in_block, tile * (shape.chained ? 1 : warps[2]))));
        }
      std::sort(turns.begin(), turns.end());
      turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
      for (int64_t count : turns) {
        base.turns = count;
        for (int stages : {0, 2, 3, 4}) {
          base.stages = stages;
          base.ahead = true;
          if (stages > 0 && (cut_by_loop == 0 || stages > std::max<int64_t>(2, count))) continue;
          consider(base);
          if (stages == 0 && cut_by_loop > 0) {
            base.ahead = false;
            consider(base);
          }
        }
      }
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.time < b.time; });
  std::vector<KernelSchedule> out;
  for (const Ranked& each : ranked)
    if (std::find(out.begin(), out.end(), each.schedule) == out.end()) out.push_back(each.schedule);
  return out;
}

}  // namespace

double modelled_time(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                     const Target& target) {
  const GpuNumbers& gpu = numbers_of(target);
  const Needs needs = needs_of(mugraph, kernel);
  const double threads = schedule.threads();
  const int64_t shared = static_cast<int64_t>(schedule.stages * needs.staged_bytes * 1.15) +
                         static_cast<int64_t>(needs.sums * 4 * schedule.warps[2]);
  const bool straight = schedule.stages == 0;
  // Operands of tensor cores lie in registers once more, as pairs.
  double registers = 40 + (needs.sums * schedule.warps[2] + needs.middle) / threads +
                     needs.loop_bytes / 4 / threads * (straight ? (schedule.ahead ? 2.2 : 1.2) : 0.5) +
                     needs.once_bytes / 2 / threads;
  registers = std::ceil(registers / 8) * 8;
  if (shared > target.shared_bytes_per_block) return std::numeric_limits<double>::infinity();
  // What does not fit the registers is written to memory and read again, time and again.
  const double spills = std::max(1.0, registers / std::min(232.0, 65536 / threads));
  registers /= spills;
  int64_t resident = std::min<int64_t>(static_cast<int64_t>(65536 / (registers * threads)),
                                       static_cast<int64_t>(2048 / threads));
  if (shared > 0) resident = std::min(resident, gpu.shared / (shared + 1024));
  resident = std::clamp<int64_t>(resident, 1, 32);
  int64_t blocks = 1;
  for (int64_t extent : kernel.grid) blocks *= extent;
  const int64_t at_once = std::min(blocks, resident * gpu.multiprocessors);
  const double waves = static_cast<double>(divide_up(blocks, at_once));
  const double block_bytes = needs.loop_bytes * static_cast<double>(kernel.turns) + needs.once_bytes;
  const double in_flight = straight ? needs.loop_bytes * (schedule.ahead ? 1.0 : 0.5) + needs.once_bytes * 0.5
                                    : needs.loop_bytes * (schedule.stages - 1) + needs.once_bytes * 0.5;
  // Little's law, for all blocks that run at once; a multiprocessor that has no block brings nothing.
  const double busy = std::min<double>(1, static_cast<double>(at_once) / gpu.multiprocessors);
  const double arrival = std::min({gpu.l2 * busy, static_cast<double>(at_once) * in_flight / gpu.latency});
  const double from_l2 = waves * static_cast<double>(at_once) * block_bytes / arrival;
  const double from_dram = needs.unique / std::min(gpu.dram, arrival);
  const double barriers = straight ? 0 : waves * static_cast<double>(kernel.turns) * kBarrier;
  const double finish = schedule.warps[2] > 1 ? 0.5 + 0.05 * schedule.warps[2] : 0.2;
  return kLaunch + (std::max(from_l2, from_dram) + barriers + finish) * std::pow(spills, 4);
}

std::vector<Schedule> enumerate_schedules(const MuGraph& mugraph, const Target& target) {
  const Schedule own = default_schedule(mugraph);
  std::vector<std::vector<KernelSchedule>> choices;
  size_t most = 1;
  for (size_t k = 0; k < mugraph.kernels.size(); ++k) {
    if (mugraph.kernels[k].custom)
      choices.push_back(kernel_schedules(mugraph, k, own, target));
    else
      choices.push_back({own.kernels[k]});
    if (choices.back().empty()) return {};
    most = std::max(most, choices.back().size());
  }
  // Kernel by kernel: the others are at their best meanwhile.
  std::vector<Schedule> out;
  for (size_t i = 0; i < most; ++i)
    for (size_t k = 0; k < choices.size(); ++k) {
      if (i >= choices[k].size() || (i == 0 && k > 0)) continue;
      Schedule schedule;
      for (const auto& choice : choices) schedule.kernels.push_back(choice[0]);
      schedule.kernels[k] = choices[k][i];
      out.push_back(std::move(schedule));
    }
  return out;
}

}  // namespace quern
