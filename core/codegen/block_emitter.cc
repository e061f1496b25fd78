#include "core/codegen/block_emitter.h"

#include <algorithm>
#include <numeric>

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
                           const std::vector<TensorPlace>& places, const KernelSchedule& schedule,
                           const Target& target, bool approximate, Chooser& chooser)
    : kernel_(kernel),
      program_(std::move(program)),
      places_(places),
      schedule_(schedule),
      target_(target),
      chooser_(chooser),
      approximate_(approximate),
      warp_bits_(bits_for(schedule.workers() / 32)) {
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

// Where the block's (and iteration's) part of a dimension begins, and what is left of it if it is ragged.
BlockEmitter::Interval BlockEmitter::interval(const BlockOp& op, int dim) {
  const Expr axes[] = {cluster_blocks() > 1 ? Expr(block_x_) : ir::block_index(0), ir::block_index(1),
                       ir::block_index(2), Expr(rank())};
  const int64_t extent = places_[static_cast<size_t>(op.tensor)].shape[static_cast<size_t>(dim)];
  int64_t tile = extent;
  Expr first = 0, last = extent;
  std::string key = std::to_string(extent);
  bool ragged = false;
  auto cut_by = [&](int64_t parts, const Expr& at) {
    const int64_t next = (tile + parts - 1) / parts;
    ragged |= next * parts != tile;
    key += " " + print(at) + "/" + std::to_string(parts);
    if (parts > 1) first = first + at * next;
    last = ir::call(ir::Function::min_index, Scalar::i32, {last, first + next});
    tile = next;
  };
  for (int axis = 0; axis < kGridAxes; ++axis)
    if (op.map[static_cast<size_t>(axis)] == dim) cut_by(kernel_.grid[static_cast<size_t>(axis)], axes[axis]);
  const bool loop = op.loop_dim == dim;
  if (loop) cut_by(kernel_.trip_count, Expr(iteration_number_));
  if (first.is_number(0)) return {first, nullptr};
  const auto [at, fresh_one] = intervals_.try_emplace(key, Interval{first, nullptr});
  if (fresh_one) {
    Builder to(loop ? iteration_ : prologue_);
    const std::string name = fresh("first");
    at->second.first = to.let(ir::make_variable(name, Scalar::i32), first);
    if (ragged) {
      at->second.left = ir::make_variable(name + "_left", Scalar::i32);
      to.let(at->second.left, last - at->second.first);
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
    if (op.kind == BlockOp::Kind::load || op.kind == BlockOp::Kind::store) {
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
  if (!plan.tensor_cores) return matmul_without_tensor_cores(value);
  if (is_summed(value)) return;
  Array array;
  array.registers = fresh_registers(base_name(value), Scalar::f32, plan.d.count());
  array.spread = plan.d;
  array.partial_warps = plan.partial_warps;
  array.scope = now_;
  text(now_) += {ir::Declare{array.registers, true}};
  matmul(value, array.registers, now_);
  const bool pipelined = pipelined_.behind == value;
  if (plan.wgmma) {
    Body body;
    Builder to(body);
    if (pipelined) to.add(pipelined_group());
    to.add(wgmma_wait({array.registers}, pipelined ? 1 : 0));
    text(now_) += std::move(body);
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

Symbol BlockEmitter::shared_buffer(Scalar type, int64_t bytes, SharedBuffer::Use use, int64_t alignment) {
  shared_.push_back({ir::make_memory(fresh("s"), ir::Space::shared, type), bytes, alignment, use});
  return shared_.back().symbol;
}

int64_t BlockEmitter::stage_bytes() const {
  int64_t bytes = 0;
  for (const auto& [value, tile] : staged_) bytes += tile.bytes;
  return bytes;
}

// Of the threads that compute.
ir::Stmt BlockEmitter::barrier() const {
  if (!schedule_.producer) return ir::Instruction{Instr::block_barrier, {}, {}};
  return ir::Instruction{Instr::named_barrier, {}, {schedule_.workers()}};
}

// A stage that writes to shared memory waits until what was there before is no longer needed: in the loop at
// the head of each iteration, which staged tiles do anyway (with a producer they have mbarriers) and what stays
// within warps need not.
bool BlockEmitter::begins_with_barrier(Stage stage) const {
  auto writes = [&](Stage each) { return steps_[static_cast<size_t>(each)].writes_shared(shared_); };
  if (stage == Stage::loop)
    return (!staged_.empty() && !schedule_.producer) ||
           steps_[static_cast<size_t>(stage)].has_exchanges(shared_);
  if (stage == Stage::after && std::any_of(shared_.begin(), shared_.end(), [](const SharedBuffer& buffer) {
        return buffer.use == SharedBuffer::Use::loop_carried;
      }))
    return true;
  return stage == Stage::after && writes(Stage::after) &&
         (!staged_.empty() || writes(Stage::before) || writes(Stage::loop));
}

// Time passes with barriers: each level of a stage is a moment, and goes on in the next stage unless that
// begins with a barrier. The moments of the loop come again and again. Staged tiles are needed all through
// it; a producer begins with them at once.
Result<BlockEmitter::BlockPlan> BlockEmitter::plan_block() {
  auto needed = [&](int buffer, int first, int last) {
    const SharedBuffer& own = shared_[static_cast<size_t>(buffer)];
    return MemoryBuffer{own.bytes, first, last, own.alignment};
  };
  BlockPlan plan;
  std::vector<MemoryBuffer> buffers(shared_.size() + 1);
  int now = 0;
  for (Stage stage : {Stage::before, Stage::loop, Stage::after}) {
    const StepList& steps = text(stage);
    const int first = begins_with_barrier(stage) ? 1 : 0;
    now += first;
    const OrderProblem problem = steps.order_problem(shared_);
    auto order = chooser_.order(problem);
    if (!order) return order.status();
    for (const StepList::Span& span : steps.spans(shared_, *order))
      buffers[static_cast<size_t>(span.buffer)] = needed(span.buffer, now + span.first, now + span.last);
    const int barriers = order->cost.barriers;
    const int listed = order_as_listed(problem).cost.barriers;
    const bool loop = stage == Stage::loop;
    (loop ? plan.costs.barriers_per_iteration : plan.costs.barriers_once) += first + barriers;
    (loop ? plan.costs.listed_per_iteration : plan.costs.listed_once) += first + listed;
    if (loop)
      buffers.back() = {stage_bytes() * schedule_.stages, schedule_.producer ? 0 : now, now + barriers,
                        stage_alignment()};
    now += barriers;
    plan.orders[static_cast<size_t>(stage)] = std::move(*order);
  }
  for (size_t i = 0; i < shared_.size(); ++i)
    if (shared_[i].use == SharedBuffer::Use::loop_carried) buffers[i] = needed(static_cast<int>(i), 0, now);
  auto memory = chooser_.memory(buffers);
  if (!memory) return memory.status();
  plan.ring = memory->offsets.back();
  memory->offsets.pop_back();
  plan.offsets = std::move(memory->offsets);
  plan.costs.shared_bytes = memory->peak;
  plan.costs.conversion_cycles = conversion_cycles_;
  plan.costs.layout_cycles = layout_cycles_;
  plan.costs.planned_conversion_cycles = planned_conversion_cycles_;
  return plan;
}

// Where the tiles of an iteration lie.
Body BlockEmitter::stage_tiles(const BlockPlan& plan) const {
  Body body;
  Builder to(body);
  to.let(ring_,
         ir::address(shared_memory_, stage_number(Expr(iteration_number_)) * stage_bytes() + plan.ring));
  int64_t offset = 0;
  for (const auto& [value, tile] : staged_) {
    to.let(tile.memory, ir::address(ring_, offset));
    offset += tile.bytes;
  }
  return body;
}

// What brings the tiles of an iteration into its stage.
Body BlockEmitter::fetch_tiles(const BlockPlan& plan) const {
  Body body;
  Builder to(body);
  for (const Body& part : {stage_tiles(plan), iteration_, staged_fetch_, tma_refill()}) to.add(part);
  return body;
}

// All but the last `pending` iterations that were asked for are there for all threads.
void BlockEmitter::wait_for_copies(Builder& to, int pending) const {
  if (!staged_fetch_.empty()) to.emit(Instr::cp_async_wait, {}, {pending});
  if (copies_panels_) to.emit(Instr::fence_async);
  to.emit(Instr::block_barrier);
}

void BlockEmitter::commit_copies(Builder& to) const {
  if (!staged_fetch_.empty()) to.emit(Instr::cp_async_commit);
}

// The loop of threads that all do the same. Each fetch stands once in it, which begins before the first
// iteration or goes on after the last: compilers do not inline what stands twice, and what is not inlined lives
// in memory.
Body BlockEmitter::loop_body(const BlockPlan& plan) {
  Body out = declared_;
  Builder to(out);
  Body work = text(Stage::loop).body(plan.orders[static_cast<size_t>(Stage::loop)], barrier());
  if (schedule_.producer) {
    to.add(consumer_loop(plan, std::move(work)));
    return out;
  }
  Builder(work).add(wgmma_wait(outstanding_));
  // TMA may get memory that was written before the loop.
  if (!tensor_maps_.empty() && !shared_.empty()) to.emit(Instr::fence_async);
  if (pipelined_.value >= 0) {
    to.add(pipelined_loop(plan, std::move(work)));
    return out;
  }
  if (!staged_.empty()) {
    to.add(staged_loop(plan, std::move(work)));
    return out;
  }
  if (begins_with_barrier(Stage::loop)) work.insert(work.begin(), barrier());
  if (!prefetches() || direct_fetch_.empty()) {
    to.rolled(iteration_number_, 0, kernel_.trip_count, [&](Builder& each) {
      for (const Body& part : {iteration_, direct_fetch_, work}) each.add(part);
    });
    return out;
  }
  const Symbol step = ir::make_variable("step", Scalar::i32);
  to.rolled(step, 0, kernel_.trip_count + 1, [&](Builder& each) {
    each.when(less(step, kernel_.trip_count), [&](Builder& fetch) {
      fetch.let(iteration_number_, step);
      fetch.add(iteration_);
      fetch.add(direct_fetch_);
    });
    each.when(less(0, step), [&](Builder& now) {
      now.let(iteration_number_, Expr(step) - 1);
      now.add(iteration_);
      now.add(std::move(work));
    });
    each.add(take_);
  });
  return out;
}

// Tiles come into a ring of stages, as many iterations ahead as there are stages but one.
Body BlockEmitter::staged_loop(const BlockPlan& plan, Body work) const {
  const int ahead = schedule_.stages - 1;
  const Symbol step = ir::make_variable("step", Scalar::i32);
  Body out;
  Builder(out).rolled(step, -ahead, kernel_.trip_count, [&](Builder& to) {
    wait_for_copies(to, ahead - 1);
    to.when(less(Expr(step) + ahead, kernel_.trip_count), [&](Builder& fetch) {
      fetch.let(iteration_number_, Expr(step) + ahead);
      fetch.add(fetch_tiles(plan));
    });
    commit_copies(to);
    to.when(less(step, 0), [](Builder& early) { early.add(ir::Continue{}); });
    to.let(iteration_number_, step);
    for (const Body& part : {stage_tiles(plan), iteration_, direct_fetch_, tma_wait(), work}) to.add(part);
  });
  if (!staged_fetch_.empty()) Builder(out).emit(Instr::cp_async_wait, {}, {0});
  return out;
}

// What touches no memory but the block's own: names of threads and of shared memory, and mbarriers.
Body BlockEmitter::setup(const BlockPlan& plan, int64_t barriers_at) {
  Body body;
  Builder to(body);
  to.let(lane(), ir::call(ir::Function::lane_index, Scalar::i32, {}));
  to.let(warp(), ir::thread_index() / 32);
  if (barriers_at > 0 || !tensor_maps_.empty())
    to.let(shared_memory_, ir::call(ir::Function::dynamic_shared, Scalar::byte, {}, {Scalar::byte}));
  for (size_t i = 0; i < shared_.size(); ++i)
    to.let(shared_[i].symbol, ir::address(shared_memory_, plan.offsets[i]));
  if (cluster_blocks() > 1) {
    to.let(rank(), ir::call(ir::Function::cluster_rank, Scalar::i32, {}));
    to.let(block_x_, ir::block_index(0) / cluster_blocks());
  }
  if (!tensor_maps_.empty()) to.add(barrier_setup(barriers_at));
  return body;
}

void BlockEmitter::add_parameters(BlockKernel& out) {
  auto elements = [&](int32_t tensor) {
    const TensorPlace& place = places_[static_cast<size_t>(tensor)];
    return TensorDesc{"", place.dtype, place.shape, place.strides}.span();
  };
  out.facts.grid = out.grid;
  out.facts.cluster = out.cluster;
  for (const TensorParameter& parameter : parameters_) {
    // What an overlapping kernel reads may change until its wait: no load may be moved to before it.
    out.kernel.parameters.push_back({parameter.symbol, parameter.symbol->written || !schedule_.pdl});
    out.args.push_back(places_[static_cast<size_t>(parameter.tensor)].arg);
    out.facts.parameters.push_back({elements(parameter.tensor), kTensorMapAlignment, std::nullopt});
  }
  for (size_t i = 0; i < map_symbols_.size(); ++i) {
    out.kernel.parameters.push_back({map_symbols_[i], true});
    out.args.push_back({LaunchArg::Kind::tensor_map, static_cast<int64_t>(i)});
    out.facts.parameters.push_back({elements(map_tensors_[i]), kTensorMapAlignment, tensor_maps_[i]});
  }
}

Result<BlockKernel> BlockEmitter::run() {
  if (cluster_blocks() > target_.max_cluster)
    return Status(ErrorCode::UNSUPPORTED, "clusters of " + std::to_string(cluster_blocks()) + " blocks, " +
                                              target_.name + " has at most " +
                                              std::to_string(target_.max_cluster));
  if (kernel_.grid[0] * cluster_blocks() > 0x7fffffff || kernel_.grid[1] > 65535 || kernel_.grid[2] > 65535)
    return Status(ErrorCode::UNSUPPORTED, "the grid is larger than a GPU's");
  for (const TensorPlace& place : places_)
    for (int64_t extent : place.shape)
      if (extent > 0x3fffffff) return Status(ErrorCode::UNSUPPORTED, "an extent does not fit 30 bits");
  find_extents();
  plan_matmuls();
  find_pipelined_product();
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
  // No block ends while others read what it has.
  if (last_gather_ > 0)
    text(Stage::after).insert(last_gather_, {{ir::Instruction{Instr::cluster_arrive, {}, {}}}, true});
  BlockKernel out;
  const auto plan = plan_block();
  if (!plan) return plan.status();
  out.costs = plan->costs;
  if (Status status = check_producer(); !status.ok()) return status;
  int64_t bytes = plan->costs.shared_bytes;
  const int64_t barriers_at = (bytes + 7) / 8 * 8;
  if (!tensor_maps_.empty()) bytes = barriers_at + schedule_.stages * (schedule_.producer ? 16 : 8);
  if (bytes > target_.shared_bytes_per_block)
    return Status(ErrorCode::UNSUPPORTED, "a block needs " + std::to_string(bytes) +
                                              " bytes of shared memory, " + target_.name + " has " +
                                              std::to_string(target_.shared_bytes_per_block));
  out.kernel.shared_bytes = bytes;
  out.kernel.threads = schedule_.threads();
  out.kernel.min_blocks = schedule_.min_blocks;
  // Blocks of a cluster are neighbours along x.
  out.cluster.x = static_cast<uint32_t>(cluster_blocks());
  out.grid = {static_cast<uint32_t>(kernel_.grid[0] * cluster_blocks()),
              static_cast<uint32_t>(kernel_.grid[1]), static_cast<uint32_t>(kernel_.grid[2])};
  out.kernel.setup = setup(*plan, barriers_at);
  Builder to(out.kernel.body);
  to.add(prologue_);
  to.add(producer_body(*plan));
  to.add(text(Stage::before).body(plan->orders[0], barrier()));
  if (loops) to.add(loop_body(*plan));
  if (begins_with_barrier(Stage::after)) to.add(barrier());
  to.add(text(Stage::after).body(plan->orders[2], barrier()));
  if (last_gather_ > 0) to.emit(Instr::cluster_wait);
  add_parameters(out);
  out.tensor_maps = std::move(tensor_maps_);
  out.shapes = std::move(shapes_);
  out.tf32 = std::any_of(plans_.begin(), plans_.end(), [](const auto& plan) {
    return plan.second.tensor_cores && plan.second.dtype == DType::f32;
  });
  return out;
}

}  // namespace quern
