#include "core/codegen/block_emitter.h"

#include <algorithm>
#include <numeric>

#include "core/base/grid.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern {

namespace {

constexpr int kMostRegisters = 4096;  // of one tile, a thread: beyond, compiling takes minutes

std::string unique_word(const std::string& name) {
  std::string out;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') out += c;
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "v" + out;
  return out + "_";
}

}  // namespace

BlockEmitter::BlockEmitter(const MuKernel& kernel, BlockProgram program,
                           const std::vector<TensorPlace>& places, const KernelSchedule& schedule, bool first,
                           const Target& target, bool approximate, Chooser& chooser, const BlockOrder& order)
    : kernel_(kernel),
      program_(std::move(program)),
      places_(places),
      schedule_(schedule),
      first_(first),
      target_(target),
      chooser_(chooser),
      order_(order),
      approximate_(approximate),
      warp_bits_(bits_for(schedule.workers() / 32)) {
  if (!has_product(program_.ops)) row_warp_bits_ = bits_for(schedule.warps[0]);
  for (BlockOp& op : program_.ops) {
    if (op.kind != BlockOp::Kind::load || places_[static_cast<size_t>(op.tensor)].numbered < 0) continue;
    op.kind = BlockOp::Kind::compute;  // from where its tile begins
    op.code = OpCode::iota;
    op.attrs.axis = Ints{places_[static_cast<size_t>(op.tensor)].numbered};
  }
  // The factor of a running maximum is a value like others, so that it finds its way where it is needed.
  for (BlockValue value = 0, count = static_cast<BlockValue>(program_.ops.size()); value < count; ++value) {
    const BlockOp op = program_.op(value);
    if (op.kind != BlockOp::Kind::accumulate || op.combine != Combine::rescaled_sum) continue;
    const BlockValue shift = op.operands[1];
    if (factors_.contains(shift)) continue;
    factors_[shift] = static_cast<BlockValue>(program_.ops.size());
    BlockOp factor;
    factor.kind = BlockOp::Kind::accumulate;
    factor.type = program_.op(shift).type;
    factor.name = program_.op(shift).name;
    program_.ops.push_back(factor);
    program_.stages.push_back(Stage::loop);
    program_.users.push_back({value, value});
  }
  arrays_.resize(program_.ops.size());
  shared_memory_ = ir::make_memory("shared", ir::Space::shared, Scalar::byte);
  ring_ = ir::make_memory("stage", ir::Space::shared, Scalar::byte);
  full_ = ir::make_memory("full", ir::Space::shared, Scalar::mbarrier);
  empty_ = ir::make_memory("empty", ir::Space::shared, Scalar::mbarrier);
  arrived_ = ir::make_pointer("arrived", full_, Scalar::mbarrier);
  iteration_number_ = ir::make_variable("iteration", Scalar::i32);
  block_x_ = ir::make_variable("block_x", Scalar::i32);
  for (const char* name : {"tile_x", "tile_y", "tile_z"})
    tile_axes_.push_back(ir::make_variable(name, Scalar::i32));
}

void BlockEmitter::fail(BlockValue value, const std::string& what) {
  const BlockOp& op = program_.op(value);
  if (status_.ok())
    status_ = Status(ErrorCode::UNSUPPORTED, "operator " + std::to_string(value) +
                                                 (op.name.empty() ? "" : " (" + op.name + ")") + " " + what);
}

std::string BlockEmitter::base_name(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  if (!op.name.empty()) return unique_word(op.name);
  if (op.kind == BlockOp::Kind::load) return unique_word(places_[static_cast<size_t>(op.tensor)].name);
  return "v_";
}

Expr BlockEmitter::block_coordinate(int axis) const {
  if (schedule_.persistent > 0) return Expr(tile_axes_[static_cast<size_t>(axis)]);
  if (axis == 0 && cluster_blocks() > 1) return Expr(block_x_);
  const auto at = std::find(order_.axes.begin(), order_.axes.end(), axis);
  const Expr index = ir::block_index(static_cast<int>(at - order_.axes.begin()));
  return axis == order_.backwards ? Expr(kernel_.grid[static_cast<size_t>(axis)] - 1) - index : index;
}

// Where the block's (and iteration's) part of a dimension begins, and what is left of it if it is ragged.
BlockEmitter::Interval BlockEmitter::interval(const BlockOp& op, int dim) {
  const Expr axes[] = {block_coordinate(0), block_coordinate(1), block_coordinate(2), Expr(rank()),
                       Expr(iteration_number_)};
  const int64_t extent = places_[static_cast<size_t>(op.tensor)].shape[static_cast<size_t>(dim)];
  int64_t tile = extent;
  Expr first = 0, last = extent, whole = ir::truth(true);
  std::string key = std::to_string(extent);
  bool ragged = false;
  for (int axis = 0; axis <= kGridAxes; ++axis) {
    if (!cuts(op, axis, dim)) continue;
    const int64_t parts = kernel_.parts(axis), next = kernel_.part(axis, tile);
    ragged |= next * parts != tile;
    key += " " + print(axes[axis]) + "/" + std::to_string(parts);
    if (parts > 1) first = first + axes[axis] * next;
    if (axis == kGridAxes) whole = less_equal(first + next, last);
    last = ir::min_of(last, first + next);
    tile = next;
  }
  const bool loop = op.loop_dim == dim;
  if (first.is_number(0)) return {first, nullptr};
  const auto [at, fresh_one] = intervals_.try_emplace(key, Interval{first, nullptr});
  if (fresh_one) {
    Builder to(loop ? iteration_ : prologue_);
    const std::string name = fresh("first");
    at->second.first = to.let(ir::make_variable(name, Scalar::i32), first);
    if (ragged) {
      at->second.left = ir::make_variable(name + "_left", Scalar::i32);
      to.let(at->second.left, last - at->second.first);
      if (loop) {
        loop_lefts_.insert(at->second.left);
        whole_iterations_ = both(whole_iterations_, whole);
      }
    }
  }
  return at->second;
}

void BlockEmitter::find_extents() {
  const size_t count = program_.ops.size();
  dims_.resize(count);
  firsts_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const BlockOp& op = program_.ops[i];
    const Ints& shape = op.type.shape;
    auto& dims = dims_[i];
    for (int64_t extent : shape) dims.push_back({extent, nullptr});
    if (op.tensor >= 0) {
      for (int d = 0; d < op.type.rank(); ++d) {
        const Interval at = interval(op, d);
        firsts_[i].push_back(at.first);
        dims[static_cast<size_t>(d)].left = at.left;
      }
      continue;
    }
    // A dimension reaches as far as in an operand that has it.
    for (size_t o = 0; o < op.operands.size(); ++o) {
      const size_t operand = static_cast<size_t>(op.operands[o]);
      const Ints& own = program_.ops[operand].type.shape;
      std::vector<int> to(own.size(), -1);
      if (op.kind == BlockOp::Kind::compute && op_info(op.code).kind == OpKind::reduction) {
        int next = 0;
        for (size_t d = 0; d < own.size(); ++d) {
          const Ints& axes = *op.attrs.axis;
          const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
          if (!reduced) to[d] = next;
          next += !reduced || *op.attrs.keepdims;
        }
      } else if (op.kind == BlockOp::Kind::compute && op_info(op.code).kind == OpKind::movement) {
        const std::vector<int> view = view_dims(program_, static_cast<BlockValue>(i));
        if (view.size() == own.size()) to = view;
        if (op.code == OpCode::concat || op.code == OpCode::slice)  // their axes have another extent
          std::iota(to.begin(), to.end(), 0);
      } else {
        const bool product = op.kind == BlockOp::Kind::compute && op.code == OpCode::matmul;
        for (size_t d = 0; d < own.size(); ++d)
          if (!(product && d + (o == 0 ? 1 : 2) == own.size()) && own.size() <= shape.size())
            to[d] = static_cast<int>(d + shape.size() - own.size());
      }
      for (size_t d = 0; d < own.size(); ++d)
        if (to[d] >= 0 && own[d] == shape[static_cast<size_t>(to[d])] && dims_[operand][d].left)
          dims[static_cast<size_t>(to[d])].left = dims_[operand][d].left;
    }
  }
}

// Whether only a sum over the iterations uses it.
bool BlockEmitter::is_summed(BlockValue value) const {
  const auto& users = program_.users[static_cast<size_t>(value)];
  if (users.size() != 1 || program_.stage(value) != Stage::loop) return false;
  const BlockOp& user = program_.op(users[0]);
  return user.kind == BlockOp::Kind::accumulate && user.combine != Combine::concat &&
         reduction_of(user.combine) == OpCode::reduce_sum;
}

void BlockEmitter::emit(BlockValue value) {
  const BlockOp& op = program_.op(value);
  switch (op.kind) {
    case BlockOp::Kind::load:
      return;
    case BlockOp::Kind::store:
      return store(value);
    case BlockOp::Kind::accumulate:
      return accumulate(value);
    case BlockOp::Kind::reduce_cluster:
      return publish(value);
    case BlockOp::Kind::compute:
      break;
  }
  if (program_.is_compute(value, OpKind::reduction)) {
    // What only an accumulator uses is made there.
    const auto& users = program_.users[static_cast<size_t>(value)];
    if (users.size() == 1 && program_.op(users[0]).kind == BlockOp::Kind::accumulate && keeps_parts(users[0]))
      return;
    return reduce(value);
  }
  if (program_.is_compute(value, OpKind::movement) && !is_free(value)) return move(value);
  if (!program_.is_compute(value, OpKind::contraction)) return;
  const MatmulPlan& plan = plans_.at(value);
  if (is_summed(value)) return;
  Array array;
  array.dtype = register_type(op.type.dtype);
  array.registers = fresh_registers(base_name(value), ir::scalar_of(array.dtype), plan.d.count());
  array.spread = plan.d;
  array.partial_warps = plan.partial_warps;
  array.scope = now_;
  text(now_) += {ir::Declare{array.registers, !plan.wgmma}};
  matmul(value, array.registers, now_);
  const bool pipelined = pipelined_.behind == value;
  if (plan.wgmma) {
    Body body;
    Builder to(body);
    if (pipelined) to.add(pipelined_group());
    to.add(ir::wait_for_products({array.registers}, pipelined ? 1 : 0));
    text(now_) += std::move(body);
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

Symbol BlockEmitter::shared_buffer(Scalar type, int64_t bytes, SharedBuffer::Use use, int64_t alignment) {
  shared_.push_back({ir::make_memory(fresh("s"), ir::Space::shared, type), bytes, alignment, use});
  return shared_.back().symbol;
}

// Nobody but TMA fills the stages of a producer: what threads copy, all of them would have to wait for.
Status BlockEmitter::check_producer() const {
  if (!schedule_.producer) return {};
  const auto loads = std::count_if(program_.ops.begin(), program_.ops.end(), [&](const BlockOp& op) {
    return op.kind == BlockOp::Kind::load && program_.stage(&op - &program_.ops[0]) == Stage::loop;
  });
  if (tensor_maps_.empty() || !staged_fetch_.empty() || !direct_fetch_.empty())
    return Status(ErrorCode::UNSUPPORTED,
                  std::string("a producer warp brings all tiles of a loop by TMA, which on ") + target_.name +
                      " can bring " + std::to_string(tensor_maps_.size()) + " of these " +
                      std::to_string(loads) +
                      " (tma=1; rows dense and of whole 16 bytes, edges only where the tensor ends)");
  return {};
}

// Whether wgmma groups of an iteration may be outstanding when the next one begins: they read nothing but the
// ring, and nobody looks at what they sum before the end.
bool BlockEmitter::keeps_groups_outstanding() const {
  return schedule_.producer && !outstanding_.empty() &&
         std::all_of(plans_.begin(), plans_.end(), [&](const auto& each) {
           const auto& [value, plan] = each;
           if (!plan.wgmma || program_.stage(value) != Stage::loop) return true;
           const BlockOp& user = program_.op(program_.users[static_cast<size_t>(value)][0]);
           return plan.shared[0] && plan.shared[1] && !plan.cooperative[0] && !plan.cooperative[1] &&
                  user.kind == BlockOp::Kind::accumulate && user.combine == Combine::sum;
         });
}

ir::TileRing BlockEmitter::draft_ring() {
  ir::TileRing ring;
  ring.stage = ring_;
  ring.stages = schedule_.stages;
  for (const auto& [value, tile] : staged_) ring.tiles.push_back({tile.memory, tile.bytes});
  ring.cp_async = std::move(staged_fetch_);
  ring.cp_async_for_wgmma = copies_panels_;
  ring.tma = std::move(tma_fetch_);
  ring.tma_bytes = tma_bytes_;
  ring.maps = map_symbols_;
  ring.full = full_;
  ring.empty = empty_;
  ring.arriving = arrived_;
  ring.alignment = stage_alignment();
  return ring;
}

ir::TileLoop BlockEmitter::draft_loop() {
  ir::TileLoop loop;
  loop.iteration = iteration_number_;
  loop.trip_count = kernel_.trip_count;
  loop.declared = std::move(declared_);
  loop.names = std::move(iteration_);
  loop.loads = std::move(direct_fetch_);
  loop.take = std::move(take_);
  loop.prefetch = prefetches();
  loop.outstanding = outstanding_;
  loop.groups_stay_outstanding = keeps_groups_outstanding();
  if (pipelined_.value >= 0)
    loop.pipelined = draft_pipelined();
  else
    loop.masked = draft_masked();
  return loop;
}

int64_t BlockEmitter::tiles() const { return kernel_.grid[0] * kernel_.grid[1] * kernel_.grid[2]; }

// Tiles in the order in which blocks would be launched.
ir::TileTurns BlockEmitter::draft_turns() const {
  const int64_t blocks = std::min(schedule_.persistent, tiles());
  const Expr block = ir::block_index(0);
  ir::TileTurns turns;
  turns.turn = ir::make_variable("turn", Scalar::i32);
  turns.count = tiles() % blocks == 0 ? Expr(tiles() / blocks) : (tiles() + blocks - 1 - block) / blocks;
  Builder to(turns.names);
  Expr rest = to.let(ir::make_variable("tile", Scalar::i32), block + Expr(turns.turn) * blocks);
  for (const int axis : order_.axes) {
    const size_t at = static_cast<size_t>(axis);
    const Expr index = axis == order_.axes.back() ? rest : rest % kernel_.grid[at];
    to.let(tile_axes_[at], axis == order_.backwards ? Expr(kernel_.grid[at] - 1) - index : index);
    rest = rest / kernel_.grid[at];
  }
  return turns;
}

// Nothing but the ring is shared by tiles, one of which is loaded while another is stored.
Status BlockEmitter::check_persistent() const {
  if (schedule_.persistent == 0) return {};
  const char* why = cluster_blocks() > 1 ? "blocks of a cluster"
                    : !shared_.empty()   ? "shared memory beside the ring"
                                         : nullptr;
  if (!why) return {};
  return Status(ErrorCode::UNSUPPORTED, std::string("persistent blocks cannot have ") + why);
}

ir::Draft BlockEmitter::draft(bool loops) {
  ir::Draft draft;
  draft.schedule = schedule_;
  draft.kernel.threads = schedule_.threads();
  draft.kernel.min_blocks = std::max(schedule_.min_blocks, schedule_.setmaxnreg ? 1 : 0);
  draft.lane = lane();
  draft.memory = shared_memory_;
  draft.workers = schedule_.workers();
  draft.producer = schedule_.producer;
  Builder thread(draft.thread_names), block(draft.block_names);
  thread.let(lane(), ir::call(ir::Function::lane_index, Scalar::i32, {}));
  thread.let(warp(), ir::thread_index() / 32);
  if (cluster_blocks() > 1) {
    block.let(rank(), ir::call(ir::Function::cluster_rank, Scalar::i32, {}));
    block.let(block_x_, ir::block_index(0) / cluster_blocks());
  }
  // No block ends while others read what it has.
  if (last_gather_ > 0) {
    text(Stage::after).insert(last_gather_, {{ir::Instruction{Instr::cluster_arrive, {}, {}}}, true});
    Builder(draft.end).emit(Instr::cluster_wait);
  }
  if (schedule_.persistent > 0) draft.turns = draft_turns();
  draft.prologue = std::move(prologue_);
  draft.buffers = std::move(shared_);
  if (loops) draft.loop = draft_loop();
  draft.ring = draft_ring();
  for (size_t i = 0; i < steps_.size(); ++i) draft.sections[i].steps = std::move(steps_[i]);
  return draft;
}

void BlockEmitter::add_parameters(BlockKernel& out) {
  auto elements = [&](const TensorPlace& place) {
    return place.offset + TensorDesc{"", place.dtype, place.shape, place.strides}.span();
  };
  out.facts.grid = out.grid;
  out.facts.cluster = out.cluster;
  for (const TensorParameter& parameter : parameters_) {
    for (const auto& [tensor, place] : watched_)
      if (parameter.place == &place) out.watched.push_back({out.args.size(), tensor});
    // What an overlapping kernel reads may change until its wait: no load may be moved to before it.
    out.draft.kernel.parameters.push_back({parameter.symbol, parameter.symbol->written || !schedule_.pdl});
    out.args.push_back(parameter.place->arg);
    out.facts.parameters.push_back({elements(*parameter.place), kTensorMapAlignment, std::nullopt});
  }
  for (size_t i = 0; i < map_symbols_.size(); ++i) {
    out.draft.kernel.parameters.push_back({map_symbols_[i], true});
    out.args.push_back({LaunchArg::Kind::tensor_map, static_cast<int64_t>(i)});
    out.facts.parameters.push_back(
        {elements(places_[static_cast<size_t>(map_tensors_[i])]), kTensorMapAlignment, tensor_maps_[i]});
  }
}

Result<BlockKernel> BlockEmitter::run() {
  if (cluster_blocks() > target_.max_cluster)
    return Status(ErrorCode::UNSUPPORTED, "clusters of " + std::to_string(cluster_blocks()) + " blocks, " +
                                              target_.name + " has at most " +
                                              std::to_string(target_.max_cluster));
  if (!fits_launch(kernel_.grid[0] * cluster_blocks(), kernel_.grid[1], kernel_.grid[2]))
    return Status(ErrorCode::UNSUPPORTED, "the grid is larger than a GPU's");
  for (const TensorPlace& place : places_)
    for (int64_t extent : place.shape)
      if (extent > 0x3fffffff) return Status(ErrorCode::UNSUPPORTED, "an extent does not fit 30 bits");
  find_extents();
  plan_matmuls();
  find_pipelined_product();
  if (schedule_.intervals) {
    masks_ = passed_over();
    unmasked_ = ir::make_variable("unmasked", Scalar::boolean);
  }
  if (Status status = choose_layouts(); !status.ok()) return status;
  bool loops = false;
  for (Stage stage : {Stage::before, Stage::loop, Stage::after}) {
    now_ = stage;
    for (BlockValue value = 0; value < static_cast<BlockValue>(program_.ops.size()) && status_.ok();
         ++value) {
      const BlockOp& op = program_.op(value);
      const bool factor = op.kind == BlockOp::Kind::accumulate && op.operands.empty();
      const bool accumulator = op.kind == BlockOp::Kind::accumulate && !factor;
      if (factor || (accumulator ? stage != Stage::loop : program_.stage(value) != stage)) continue;
      loops |= stage == Stage::loop;
      emit(value);
    }
  }
  if (!status_.ok()) return status_;
  for (const auto& arrays : arrays_)
    for (const Array& array : arrays)
      if (array.spread.count() > kMostRegisters)
        return Status(ErrorCode::UNSUPPORTED, "a tile has " + std::to_string(array.spread.count()) +
                                                  " elements a thread: cut it smaller");
  if (Status status = check_producer(); !status.ok()) return status;
  if (Status status = check_persistent(); !status.ok()) return status;
  BlockKernel out;
  // Blocks of a cluster are neighbours along x.
  out.cluster.x = static_cast<uint32_t>(cluster_blocks());
  auto blocks = [&](size_t axis) {
    return static_cast<uint32_t>(kernel_.grid[static_cast<size_t>(order_.axes[axis])]);
  };
  out.grid = {blocks(0) * static_cast<uint32_t>(cluster_blocks()), blocks(1), blocks(2)};
  if (schedule_.persistent > 0)
    out.grid = {static_cast<uint32_t>(std::min(schedule_.persistent, tiles())), 1, 1};
  out.draft = draft(loops);
  out.costs.conversion_cycles = conversion_cycles_;
  out.costs.layout_cycles = layout_cycles_;
  out.costs.planned_conversion_cycles = planned_conversion_cycles_;
  add_parameters(out);
  out.tensor_maps = std::move(tensor_maps_);
  out.shapes = std::move(shapes_);
  out.tf32 = std::any_of(plans_.begin(), plans_.end(), [](const auto& plan) {
    return plan.second.tensor_cores && plan.second.dtype == DType::f32;
  });
  return out;
}

}  // namespace quern
