#include "core/schedule/schedule.h"

#include <algorithm>
#include <bit>

#include "core/base/integers.h"
#include "core/mugraph/dependence.h"

namespace quern {

namespace {

Status misfit(std::string message) { return Status(ErrorCode::INVALID_ARGUMENT, std::move(message)); }

bool lies_between(int64_t number, int64_t least, int64_t most) { return number >= least && number <= most; }
template <class Number, size_t count>
bool lies_between(const std::array<Number, count>& numbers, int64_t least, int64_t most) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [&](Number number) { return lies_between(number, least, most); });
}

// What decides whether the loop may be cut differently: values that differ from iteration to iteration
// because a dimension of theirs is cut by the loop, and values that are one iteration's part of a reduction
// over it.
struct LoopUse {
  std::vector<bool> dims;
  bool partial = false;
};

// The dimensions of a compute operator's value that the loop cuts, and whether it is partial.
LoopUse through(const BlockOp& op, const std::vector<LoopUse>& uses) {
  LoopUse out;
  const size_t rank = op.type.shape.size();
  out.dims.assign(rank, false);
  const bool reduction = op.is_compute(OpKind::reduction);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const LoopUse& use = uses[static_cast<size_t>(op.operands[i])];
    const size_t own = use.dims.size();
    for (size_t d = 0; d < own; ++d) {
      if (!use.dims[d]) continue;
      if (reduction) {
        const Ints& axes = *op.attrs().axis;
        const auto at = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d));
        if (at != axes.end()) {
          out.partial = true;
          continue;
        }
        size_t dropped = 0;
        if (!*op.attrs().keepdims)
          for (int64_t axis : axes) dropped += axis < static_cast<int64_t>(d);
        out.dims[d - dropped] = true;
      } else if (op.code() == OpCode::matmul && d + (i == 0 ? 1 : 2) == own) {
        out.partial = true;
      } else {
        out.dims[d + rank - own] = true;
      }
    }
  }
  return out;
}

// A norm of rows that the loop does not cut through: every row is as it would be in any other iteration.
bool keeps_rows_whole(const BlockOp& op, const std::vector<LoopUse>& uses) {
  if (op.code() != OpCode::rms_norm && op.code() != OpCode::layer_norm && op.code() != OpCode::softmax)
    return false;
  const LoopUse& rows = uses[static_cast<size_t>(op.operands[0])];
  for (size_t i = 1; i < op.operands.size(); ++i) {  // weights
    const std::vector<bool>& dims = uses[static_cast<size_t>(op.operands[i])].dims;
    if (std::find(dims.begin(), dims.end(), true) != dims.end()) return false;
  }
  return std::none_of(op.attrs().axis->begin(), op.attrs().axis->end(),
                      [&](int64_t axis) { return rows.dims[static_cast<size_t>(axis)]; });
}

Status check_loop(const MuKernel& kernel) {
  std::vector<LoopUse> uses;
  for (const BlockOp& op : kernel.ops) {
    LoopUse use;
    use.dims.assign(op.type.shape.size(), false);
    bool touched = false, partial = false;
    for (BlockValue operand : op.operands) {
      const LoopUse& from = uses[static_cast<size_t>(operand)];
      touched |= std::find(from.dims.begin(), from.dims.end(), true) != from.dims.end();
      partial |= from.partial;
    }
    if (op.is_load()) {
      if (op.loop_dim() >= 0) use.dims[static_cast<size_t>(op.loop_dim())] = true;
    } else if (op.is_accumulate()) {
      if (op.combine() == Combine::concat || uses[static_cast<size_t>(op.operands[0])].dims != use.dims ||
          !uses[static_cast<size_t>(op.operands[0])].partial)
        return misfit("an accumulator keeps what differs from iteration to iteration");
      const BlockOp& source = kernel.ops[static_cast<size_t>(op.operands[0])];
      if ((is_reduction(source.code()) ? source.code() : OpCode::reduce_sum) != reduction_of(op.combine()))
        return misfit("an accumulator combines otherwise than the iteration does");
    } else if (op.is_store() && op.loop_dim() >= 0) {
      const LoopUse& stored = uses[static_cast<size_t>(op.operands[0])];
      use.dims[static_cast<size_t>(op.loop_dim())] = true;
      if (stored.partial || stored.dims != use.dims)
        return misfit("a store in the loop is not of what the loop cuts");
    } else if (op.is_compute() && (touched || partial)) {
      const OpKind kind = op_info(op.code()).kind;
      if (partial) return misfit("one iteration's part of a reduction is used before it is accumulated");
      if (keeps_rows_whole(op, uses)) {
        use = uses[static_cast<size_t>(op.operands[0])];
      } else {
        if (kind != OpKind::elementwise && kind != OpKind::reduction && kind != OpKind::contraction)
          return misfit("an operator over what the loop cuts may depend on the size of an iteration");
        use = through(op, uses);
      }
    }
    uses.push_back(std::move(use));
  }
  return {};
}

// The extent of a dimension of a load's or store's tile away from ragged edges; `looped`: of an iteration,
// else of the block.
int64_t nominal_tile(const MuGraph& mugraph, const MuKernel& kernel, const BlockOp& op, int dim,
                     bool looped = true) {
  const Ints& shape = mugraph.tensors[static_cast<size_t>(op.tensor())].type.shape;
  return tile_interval(kernel, op, dim, shape[static_cast<size_t>(dim)], {}, looped).tile;
}

// Notes a tile of an axis (or the loop) where it is not what even parts would have.
void note_tile(MuKernel& kernel, int axis, int64_t extent, int64_t tile) {
  kernel.tiles[static_cast<size_t>(axis)] = divide_up(extent, kernel.parts(axis)) == tile ? 0 : tile;
}

// Cuts what an axis (or the loop) cuts into tiles of that extent.
Status cut_into_tiles(const MuGraph& mugraph, MuKernel& kernel, int axis, int64_t tile) {
  auto extent = cut_extent(mugraph, kernel, axis);
  if (!extent) return extent.status();
  if (tile > *extent)
    return misfit("a tile has " + std::to_string(tile) + " elements along what has " +
                  std::to_string(*extent));
  (axis < kGridAxes ? kernel.grid[static_cast<size_t>(axis)] : kernel.trip_count) = divide_up(*extent, tile);
  note_tile(kernel, axis, *extent, tile);
  return {};
}

// Parts that the loop cuts further have whole iterations where that makes them no fewer: then none of these
// ends within a tensor.
void fit_parts_to_iterations(const MuGraph& mugraph, MuKernel& kernel, int64_t tile_k) {
  for (int axis = 0; axis < kGridAxes; ++axis) {
    int64_t looped = 0;
    bool other = false;
    for (const BlockOp& op : kernel.ops) {
      const int dim = op.has_access() ? op.map()[static_cast<size_t>(axis)] : -1;
      if (dim < 0) continue;
      const int64_t extent =
          mugraph.tensors[static_cast<size_t>(op.tensor())].type.shape[static_cast<size_t>(dim)];
      if (op.loop_dim() == dim) {
        other |= looped != 0 && looped != extent;
        looped = extent;
      } else {
        other |= extent != kernel.parts(axis);  // but what a part leaves
      }
    }
    const int64_t whole = looped == 0 ? 0 : round_up(kernel.part(axis, looped), tile_k);
    if (looped != 0 && !other && divide_up(looped, whole) == kernel.parts(axis))
      note_tile(kernel, axis, looped, whole);
  }
}

Status retile(const MuGraph& mugraph, MuKernel& kernel, const KernelSchedule& wanted) {
  if (Status status = check_fields(wanted); !status.ok()) return status;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t tile = wanted.tile[static_cast<size_t>(axis)];
    if (tile == 0) continue;
    if (Status status = cut_into_tiles(mugraph, kernel, axis, tile); !status.ok()) return status;
  }
  if (wanted.cluster != 0 && wanted.cluster != kernel.grid[3]) {
    auto extent = cut_extent(mugraph, kernel, 3);
    if (!extent) return extent.status();
    if (wanted.cluster > *extent) return misfit("a cluster has more blocks than there are elements for it");
    kernel.grid[3] = wanted.cluster;
  }
  if (wanted.tile_k != 0) {
    const int64_t before = kernel.trip_count;
    if (Status status = cut_into_tiles(mugraph, kernel, kGridAxes, wanted.tile_k); !status.ok())
      return status;
    if (kernel.trip_count != before || kernel.tiles[kGridAxes] != 0)
      if (Status status = check_loop(kernel); !status.ok()) return status;
    fit_parts_to_iterations(mugraph, kernel, wanted.tile_k);
  }
  kernel.threads = wanted.threads();
  return {};
}

// A reshape names extents of a tile. Where it only adds or drops extents of 1 it says the same of a tile cut
// differently, with other numbers.
Status fit_reshapes(const MuGraph& mugraph, const MuKernel& before, MuKernel& kernel) {
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    BlockOp& op = kernel.ops[i];
    if (op.is_load()) {
      op.type = mugraph.tensors[static_cast<size_t>(op.tensor())].type;
      for (int d = 0; d < op.type.rank(); ++d)
        op.type.shape[static_cast<size_t>(d)] = nominal_tile(mugraph, kernel, op, d);
    } else if (op.has_combine()) {
      op.type = kernel.ops[static_cast<size_t>(op.operands[0])].type;
      if (op.combine() == Combine::concat)
        op.type.shape[static_cast<size_t>(op.concat_dim())] *= kernel.trip_count;
    } else if (op.is_compute() && op.code() != OpCode::constant) {
      std::vector<TensorType> types;
      for (BlockValue operand : op.operands) types.push_back(kernel.ops[static_cast<size_t>(operand)].type);
      if (op.code() == OpCode::reshape) {
        const Ints& old = before.ops[static_cast<size_t>(op.operands[0])].type.shape;
        Ints& shape = *op.compute().attrs.shape;
        size_t from = 0;
        for (int64_t& extent : shape) {
          if (extent == 1) continue;
          while (from < old.size() && old[from] == 1) ++from;
          if (from == old.size() || old[from] != extent) break;
          extent = types[0].shape[from++];
        }
      }
      auto type = infer_type(op.code(), types, op.compute().attrs);
      if (!type) return type.status();
      op.type = std::move(*type);
    }
  }
  return {};
}

// Kernels that are joined with others: of one number of threads, and none needs what another one makes.
Status check_launches(const MuGraph& mugraph, const Schedule& schedule) {
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const KernelSchedule& own = schedule.kernels[k];
    if (!own.joined) continue;
    const size_t first = launch_of(schedule, k).first;
    const KernelAccesses accesses = accesses_of(mugraph, mugraph.kernels[k]);
    for (size_t other = first; other < k; ++other) {
      if (!mugraph.kernels[other].custom || !mugraph.kernels[k].custom)
        return misfit("joined is for block graphs behind others");
      if (schedule.kernels[other].threads() != own.threads() || schedule.kernels[other].pdl != own.pdl)
        return misfit("joined requires threads and pdl as the kernel in front of it has them");
      if (!independent(accesses, accesses_of(mugraph, mugraph.kernels[other])))
        return misfit("kernel " + std::to_string(k) + " is joined with one that it depends on");
    }
  }
  return {};
}

}  // namespace

// Warps get registers from that of an SM's four sub-partitions where they run.
int64_t KernelSchedule::launch_registers() const {
  constexpr int64_t kMost = 255;
  return std::min(kMost,
                  kSubPartitionRegisters / divide_up(threads() / 32 * std::max(1, min_blocks), 4) / 8 * 8);
}

namespace {

constexpr int64_t kMostMoved = 240;  // registers that setmaxnreg gives a thread

}  // namespace

int64_t KernelSchedule::transform_registers() const {
  constexpr int64_t kMost = 128;
  const int64_t launch = launch_registers() / 8 * 8, producers = threads() - computing() - transforming(),
                left = launch * threads() - kProducerRegisters * producers - kMostMoved * computing();
  return std::min({launch, kMost, std::max(kTransformRegisters, left / transforming() / 8 * 8)});
}

int64_t KernelSchedule::most_registers() const {
  if (!setmaxnreg) return launch_registers();
  const int64_t launch = launch_registers() / 8 * 8, producers = threads() - computing() - transforming();
  int64_t moved = (launch - kProducerRegisters) * producers;
  if (transform) moved += (launch - transform_registers()) * transforming();
  return std::min(kMostMoved, (launch_registers() + moved / computing()) / 8 * 8);
}

LaunchedKernels launch_of(const Schedule& schedule, size_t k) {
  LaunchedKernels out{k, k + 1};
  while (out.first > 0 && schedule.kernels[out.first].joined) --out.first;
  while (out.end < schedule.kernels.size() && schedule.kernels[out.end].joined) ++out.end;
  return out;
}

bool is_joined(const Schedule& schedule, size_t k) {
  const LaunchedKernels launch = launch_of(schedule, k);
  return launch.end - launch.first > 1;
}

Result<int64_t> cut_extent(const MuGraph& mugraph, const MuKernel& kernel, int axis) {
  int64_t extent = 0, part = 0;
  for (const BlockOp& op : kernel.ops) {
    if (!op.has_access()) continue;
    const int dim = axis < kGridAxes ? op.map()[static_cast<size_t>(axis)] : op.loop_dim();
    if (dim < 0) continue;
    const int64_t own =
        mugraph.tensors[static_cast<size_t>(op.tensor())].type.shape[static_cast<size_t>(dim)];
    if (extent != 0 && own != extent) return misfit("an axis cuts dimensions of different extents");
    extent = own;
    part = std::max(part, axis < kGridAxes ? own : nominal_tile(mugraph, kernel, op, dim, false));
  }
  return part;
}

Status check_fields(const KernelSchedule& schedule) {
#define QUERN_SCHEDULE_FIELD(type, name, ...) const type& name = schedule.name;
#include "core/schedule/schedule.def"
#define QUERN_SCHEDULE_FIELD(type, name, value, least, most, needs, ...)                                 \
  if (!lies_between(name, least, most))                                                                  \
    return misfit(#name " takes numbers from " + std::to_string(least) + " to " + std::to_string(most)); \
  if (name != value && !(needs)) return misfit(#name " requires " #needs);
#include "core/schedule/schedule.def"
  return {};
}

KernelSchedule without_tiling(KernelSchedule schedule) {
  const KernelSchedule own;
  schedule.tile = own.tile;
  schedule.tile_k = own.tile_k;
  schedule.cluster = own.cluster;
  return schedule;
}

Schedule default_schedule(const MuGraph& mugraph) {
  Schedule schedule;
  for (const MuKernel& kernel : mugraph.kernels) {
    KernelSchedule own;
    const unsigned warps = std::bit_floor(static_cast<unsigned>(std::max(kernel.threads / 32, 1)));
    own.warps = {1, 1, static_cast<int>(std::min(warps, 16u))};
    schedule.kernels.push_back(own);
  }
  return schedule;
}

Result<MuGraph> apply_schedule(const MuGraph& mugraph, const Schedule& schedule) {
  if (schedule.kernels.size() != mugraph.kernels.size())
    return misfit("the schedule is for " + std::to_string(schedule.kernels.size()) +
                  " kernels, the muGraph has " + std::to_string(mugraph.kernels.size()));
  MuGraph out = mugraph;
  for (size_t k = 0; k < out.kernels.size(); ++k) {
    if (k == 0 && schedule.kernels[k].pdl) return misfit("the first kernel depends on none: it takes no pdl");
    if (k == 0 && schedule.kernels[k].joined)
      return misfit("there is none that the first kernel could be joined with");
    if (!out.kernels[k].custom) continue;
    if (Status status = retile(mugraph, out.kernels[k], schedule.kernels[k]); !status.ok())
      return status.with_context("schedule of kernel " + std::to_string(k));
    if (Status status = fit_reshapes(mugraph, mugraph.kernels[k], out.kernels[k]); !status.ok())
      return status.with_context("kernel " + std::to_string(k));
  }
  if (Status status = validate(out); !status.ok()) return status;
  if (Status status = check_launches(out, schedule); !status.ok()) return status;
  return out;
}

}  // namespace quern
