#include "core/mugraph/mugraph.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "core/base/grid.h"
#include "core/base/integers.h"
#include "core/mugraph/narrow.h"
#include "core/mugraph/tensor_view.h"

namespace quern {

namespace {

std::string place(size_t kernel, size_t op) {
  return "kernel " + std::to_string(kernel) + ", operator " + std::to_string(op);
}

Status invalid(std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); }

// Checks one muGraph, and fills in types as it goes.
class Validator {
 public:
  explicit Validator(MuGraph& mugraph) : mugraph_(mugraph), written_(mugraph.tensors.size(), false) {}

  Status run() {
    for (int32_t input : mugraph_.inputs) {
      if (!exists(input)) return invalid("an input is no tensor of the muGraph");
      written_[input] = true;
    }
    for (size_t t = 0; t < mugraph_.tensors.size(); ++t) {
      MuTensor& tensor = mugraph_.tensors[t];
      if (tensor.type.literal) written_[t] = true;
      if (mugraph_.alone && written_[t]) continue;
      tensor.numbered = -1;  // of another muGraph that it comes from, perhaps
      tensor.view = {};
      tensor.pieced = {};
    }
    for (size_t k = 0; k < mugraph_.kernels.size(); ++k) {
      MuKernel& kernel = mugraph_.kernels[k];
      Status status = kernel.custom ? block_graph(kernel, k) : library_operator(kernel);
      if (!status.ok()) return kernel.custom ? status : status.with_context("kernel " + std::to_string(k));
    }
    for (int32_t output : mugraph_.outputs)
      if (!exists(output) || !written_[output]) return invalid("an output is never written");
    return {};
  }

 private:
  bool exists(int32_t tensor) const {
    return tensor >= 0 && static_cast<size_t>(tensor) < mugraph_.tensors.size();
  }

  Status read(int32_t tensor) const {
    if (!exists(tensor)) return invalid("tensor " + std::to_string(tensor) + " does not exist");
    if (!written_[tensor])
      return invalid("\"" + mugraph_.tensors[tensor].name + "\" is read before it is written");
    return {};
  }

  Status write(int32_t tensor) {
    if (!exists(tensor)) return invalid("tensor " + std::to_string(tensor) + " does not exist");
    if (written_[tensor]) return invalid("\"" + mugraph_.tensors[tensor].name + "\" is written twice");
    written_[tensor] = true;
    return {};
  }

  Status library_operator(MuKernel& kernel) {
    std::vector<TensorType> types;
    for (int32_t operand : kernel.operands) {
      if (Status status = read(operand); !status.ok()) return status;
      types.push_back(mugraph_.tensors[operand].type);
    }
    auto type = infer_type(kernel.code, types, kernel.attrs);
    if (!type) return type.status();
    if (Status status = write(kernel.result); !status.ok()) return status;
    MuTensor& result = mugraph_.tensors[kernel.result];
    if (type->shape != result.type.shape) return invalid("the result has another shape");
    result.numbered = numbered_dim(kernel);
    result.view = view_of(mugraph_, kernel);
    result.pieced = pieced_view_of(mugraph_, kernel);
    return {};
  }

  int numbered_dim(const MuKernel& kernel) const {
    if (kernel.code == OpCode::iota) return kernel.attrs.axis ? static_cast<int>((*kernel.attrs.axis)[0]) : 0;
    if (kernel.code != OpCode::transpose) return -1;
    const MuTensor& operand = mugraph_.tensors[kernel.operands[0]];
    if (operand.numbered < 0 || operand.type.dtype != mugraph_.tensors[kernel.result].type.dtype) return -1;
    const Ints& perm = *kernel.attrs.perm;
    return static_cast<int>(std::find(perm.begin(), perm.end(), operand.numbered) - perm.begin());
  }

  Status block_graph(MuKernel& kernel, size_t index) {
    if (Status status = check_launch(kernel); !status.ok())
      return status.with_context("kernel " + std::to_string(index));
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      Status status = check_operands(kernel, i);
      if (status.ok()) status = infer(kernel, kernel.ops[i]);
      if (!status.ok()) return status.with_context(place(index, i));
    }
    const std::vector<Stage> stages = block_stages(kernel);
    for (size_t i = 0; i < kernel.ops.size(); ++i)
      if (Status status = check_stage(kernel, i, stages); !status.ok())
        return status.with_context(place(index, i));
    return {};
  }

  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  static Status check_launch(const MuKernel& kernel) {
    for (int64_t extent : kernel.grid)
      if (extent < 1 || extent > INT32_MAX) return invalid("a grid extent is below 1 or above 2^31 - 1");
    if (!fits_launch(kernel.grid[0] * kernel.grid[3], kernel.grid[1], kernel.grid[2]))
      return invalid("the grid is larger than 2^31 - 1 by 65535 by 65535 blocks");
    if (kernel.grid[3] > kMaxClusterBlocks)
      return invalid("a cluster of more than " + std::to_string(kMaxClusterBlocks) + " blocks");
    if (kernel.trip_count < 1) return invalid("the loop has fewer iterations than 1");
    if (kernel.threads < 1 || kernel.threads > 1024) return invalid("a block has 1 to 1024 threads");
    return {};
  }

  static Status check_operands(const MuKernel& kernel, size_t i) {
    const BlockOp& op = kernel.ops[i];
    for (BlockValue operand : op.operands) {
      if (operand < 0 || static_cast<size_t>(operand) >= i)
        return invalid("an operand comes after its user or does not exist");
      if (kernel.ops[operand].is_store()) return invalid("a store has no value");
    }
    size_t expected = op.operands.size();
    if (op.is_load()) expected = 0;
    if (op.is_store()) expected = 1;
    if (op.has_combine()) expected = op.combine() == Combine::rescaled_sum ? 2 : 1;
    if (op.operands.size() != expected) return invalid("expected " + std::to_string(expected) + " operands");
    return {};
  }

  // Axes along which a load or store cuts each dimension must exist in the tensor.
  Status check_map(const BlockOp& op) const {
    const int rank = mugraph_.tensors[op.tensor()].type.rank();
    for (int dim : op.map())
      if (dim < -1 || dim >= rank)
        return invalid("a map names dimension " + std::to_string(dim) + " of a tensor of rank " +
                       std::to_string(rank));
    if (op.loop_dim() < -1 || op.loop_dim() >= rank)
      return invalid("the loop cuts a dimension that does not exist");
    return {};
  }

  Status infer(MuKernel& kernel, BlockOp& op) {
    auto operand = [&](size_t i) -> const TensorType& { return kernel.ops[op.operands[i]].type; };
    switch (op.kind()) {
      case BlockOp::Kind::rescale_factor:
        return invalid("a muGraph has no rescale factors: code generation makes them");
      case BlockOp::Kind::load: {
        if (Status status = read(op.tensor()); !status.ok()) return status;
        if (Status status = check_map(op); !status.ok()) return status;
        op.type = mugraph_.tensors[op.tensor()].type;
        for (int d = 0; d < op.type.rank(); ++d) op.type.shape[d] = nominal_tile(kernel, op, d);
        // A tile with elements that are repeated comes from memory of the tensor's own, where they are written so often.
        if (repeats(mugraph_.tensors[op.tensor()].view, op.type.shape))
          mugraph_.tensors[op.tensor()].view = {};
        return {};
      }
      case BlockOp::Kind::compute:
        return infer_compute(kernel, op);
      case BlockOp::Kind::accumulate:
        op.type = operand(0);
        if (op.combine() == Combine::concat) {
          if (op.concat_dim() < 0 || op.concat_dim() >= op.type.rank())
            return invalid("concat along a dimension that does not exist");
          op.type.shape[op.concat_dim()] *= kernel.trip_count;
          if (Status status = check_shape(op.type.shape); !status.ok()) return status;
        }
        return check_shift(kernel, op);
      case BlockOp::Kind::reduce_cluster:
        if (op.combine() == Combine::concat) return invalid("the blocks of a cluster do not concatenate");
        op.type = operand(0);
        return check_shift(kernel, op);
      case BlockOp::Kind::store:
        return infer_store(kernel, op, operand(0));
    }
    return {};
  }

  static Status check_shift(const MuKernel& kernel, const BlockOp& op) {
    if (op.combine() == Combine::rescaled_sum && !kernel.ops[op.operands[1]].is_accumulate(Combine::max))
      return invalid("a rescaled sum needs a max accumulator");
    return {};
  }

  Status infer_compute(const MuKernel& kernel, BlockOp& op) {
    if (op.code() == OpCode::input) return invalid("a block graph has loads, not inputs");
    if (op.code() == OpCode::constant) {
      for (const TensorDim& dim : op.extents())
        if (!exists(dim.tensor) || dim.dim < 0 || dim.dim >= mugraph_.tensors[dim.tensor].type.rank())
          return invalid("a constant names an extent that does not exist");
      // As in graphs, a whole number is an integer where it meets integers.
      const bool whole = op.extents().empty() && round_to(DType::i32, op.number()) == op.number();
      op.type = {whole ? DType::i32 : DType::f32, {}, true};
      return {};
    }
    std::vector<TensorType> types;
    for (BlockValue value : op.operands) types.push_back(kernel.ops[value].type);
    auto type = infer_type(op.code(), types, op.compute().attrs);
    if (!type) return type.status();
    op.type = std::move(*type);
    return {};
  }

  Status infer_store(const MuKernel& kernel, BlockOp& op, const TensorType& tile) {
    if (Status status = write(op.tensor()); !status.ok()) return status;
    if (Status status = check_map(op); !status.ok()) return status;
    for (int axis = 0; axis < kGridAxes; ++axis)
      if (kernel.grid[axis] > 1 && op.map()[axis] < 0 && axis != static_cast<int>(Axis::cluster))
        return invalid("several blocks store to the same place: a grid axis cuts no dimension");
    const TensorType& whole = mugraph_.tensors[op.tensor()].type;
    if (tile.rank() != whole.rank()) return invalid("the tile and the tensor differ in rank");
    for (int d = 0; d < whole.rank(); ++d)
      if (nominal_tile(kernel, op, d) != tile.shape[d])
        return invalid("dimension " + std::to_string(d) + " of the tile has extent " +
                       std::to_string(tile.shape[d]) + ", the place it is stored to " +
                       std::to_string(nominal_tile(kernel, op, d)));
    op.type = tile;
    return {};
  }

  // The extent of dimension `d` of a tile away from ragged edges.
  int64_t nominal_tile(const MuKernel& kernel, const BlockOp& op, int d) const {
    return tile_interval(kernel, op, d, mugraph_.tensors[op.tensor()].type.shape[d]).tile;
  }

  static Status check_stage(const MuKernel& kernel, size_t i, const std::vector<Stage>& stages) {
    const BlockOp& op = kernel.ops[i];
    if (op.is_store()) return check_store(kernel, op, stages);
    if (op.is_reduce_cluster())
      for (BlockValue operand : op.operands)
        if (stages[operand] == Stage::loop) return invalid("a reduction over the cluster in the loop");
    if (op.is_accumulate() && stages[op.operands[0]] == Stage::after)
      return invalid("an accumulator over the iterations of a value that is complete only after them");
    for (BlockValue operand : op.operands) {
      const BlockOp& source = kernel.ops[operand];
      const bool running = source.is_accumulate(Combine::max);
      if (stages[i] == Stage::loop && stages[operand] == Stage::after && !running)
        return invalid("an operator in the loop needs a value that is complete only after it");
      if (stages[i] != Stage::loop && stages[operand] == Stage::loop && !op.is_accumulate())
        return invalid("a value of the loop is used after it without an accumulator");
    }
    return {};
  }

  // What differs from iteration to iteration is stored where the loop cuts, or accumulated first.
  static Status check_store(const MuKernel& kernel, const BlockOp& op, const std::vector<Stage>& stages) {
    const bool looped = stages[static_cast<size_t>(op.operands[0])] == Stage::loop;
    if (looped && op.loop_dim() < 0)
      return invalid("a store in the loop needs a dimension that the loop cuts, or accumulate first");
    if (!looped && op.loop_dim() >= 0)
      return invalid("the loop cuts a store of a value that is not in the loop");
    if (looped && kernel.grid[static_cast<size_t>(Axis::cluster)] > 1 &&
        op.map()[static_cast<size_t>(Axis::cluster)] < 0)
      return invalid("several blocks of a cluster store to the same place in the loop");
    return {};
  }

  MuGraph& mugraph_;
  std::vector<bool> written_;
};

}  // namespace

int64_t MuKernel::part(int axis, int64_t extent) const {
  const int64_t tile = tiles[static_cast<size_t>(axis)];
  return tile > 0 && divide_up(extent, tile) == parts(axis) ? tile : divide_up(extent, parts(axis));
}

Coordinates coordinates_of(const std::array<int64_t, kGridAxes>& block, int64_t iteration) {
  Coordinates at{};
  std::copy(block.begin(), block.end(), at.begin());
  at[kGridAxes] = iteration;
  return at;
}

Interval tile_interval(const MuKernel& kernel, const BlockOp& op, int dim, int64_t extent,
                       const Coordinates& at, bool looped) {
  Interval interval{0, extent, extent};
  for (int axis = 0; axis < kGridAxes + (looped ? 1 : 0); ++axis) {
    if (!cuts(op, axis, dim)) continue;
    interval.tile = kernel.part(axis, interval.tile);
    interval.first += at[static_cast<size_t>(axis)] * interval.tile;
    interval.last = std::min(interval.last, interval.first + interval.tile);
  }
  return interval;
}

std::vector<Stage> block_stages(const MuKernel& kernel) {
  std::vector<Stage> stages;
  // A value that reads a running maximum is in the loop if anything else it reads is; so operators that feed
  // accumulators decide first.
  for (const BlockOp& op : kernel.ops) {
    if (op.has_combine()) {
      stages.push_back(Stage::after);
      continue;
    }
    Stage stage = op.is_load() && op.loop_dim() >= 0 ? Stage::loop : Stage::before;
    for (BlockValue operand : op.operands) {
      if (stages[operand] == Stage::loop)
        stage = Stage::loop;
      else if (stages[operand] == Stage::after && stage == Stage::before)
        stage = Stage::after;
    }
    stages.push_back(stage);
  }
  return stages;
}

Status validate(MuGraph& mugraph) {
  Status status = Validator(mugraph).run();
  if (status.ok()) note_narrow_loads(mugraph);
  return status;
}

BlockValue root_load(const std::vector<BlockOp>& ops, BlockValue value) {
  std::set<BlockValue> seen;
  for (std::vector<BlockValue> left = {value}; !left.empty();) {
    const BlockValue next = left.back();
    left.pop_back();
    const BlockOp& op = ops[static_cast<size_t>(next)];
    if (op.is_load()) return next;
    const bool by_elements =
        op.is_compute(OpKind::elementwise) || op.is_compute(OpKind::composite) || op.is_compute(OpCode::cast);
    if (!by_elements || !seen.insert(next).second) continue;
    for (auto operand = op.operands.rbegin(); operand != op.operands.rend(); ++operand)
      if (ops[static_cast<size_t>(*operand)].type.shape == op.type.shape) left.push_back(*operand);
  }
  return -1;
}

bool has_product(const std::vector<BlockOp>& ops) {
  return std::any_of(ops.begin(), ops.end(),
                     [](const BlockOp& op) { return op.is_compute(OpKind::contraction); });
}

bool stores_in_loop(const std::vector<BlockOp>& ops) {
  return std::any_of(ops.begin(), ops.end(),
                     [](const BlockOp& op) { return op.is_store() && op.loop_dim() >= 0; });
}

}  // namespace quern
