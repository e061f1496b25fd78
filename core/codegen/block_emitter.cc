#include "core/codegen/block_emitter.h"

#include <algorithm>
#include <numeric>

#include "core/codegen/kernel_writer.h"

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

// Where the block's (and turn's) part of a dimension begins; how far it reaches goes into `dims_`.
std::string BlockEmitter::interval(const BlockOp& op, int dim, bool& ragged) {
  const char* const kAxes[] = {cluster_blocks() > 1 ? "block_x" : "blockIdx.x", "blockIdx.y", "blockIdx.z",
                               "rank"};
  const int64_t extent = places_[static_cast<size_t>(op.tensor)].shape[static_cast<size_t>(dim)];
  int64_t tile = extent;
  std::string first = "0", last = std::to_string(extent), key = std::to_string(extent);
  bool loop = false;
  ragged = false;
  auto cut_by = [&](int64_t parts, const std::string& at) {
    const int64_t next = (tile + parts - 1) / parts;
    ragged |= next * parts != tile;
    key += " " + at + "/" + std::to_string(parts);
    first = add_text(first, parts == 1 ? "0" : "int(" + at + ") * " + std::to_string(next));
    last = "min(" + last + ", " + first + " + " + std::to_string(next) + ")";
    tile = next;
  };
  for (int axis = 0; axis < kGridAxes; ++axis)
    if (op.map[static_cast<size_t>(axis)] == dim)
      cut_by(kernel_.grid[static_cast<size_t>(axis)], kAxes[axis]);
  if (op.loop_dim == dim) {
    loop = true;
    cut_by(kernel_.turns, "turn");
  }
  if (first == "0") return first;
  const auto [at, fresh_one] = defined_.try_emplace(key);
  if (fresh_one) {
    at->second = fresh_constant("first");
    std::string& lines = loop ? turn_text_ : prologue_;
    lines += "const int " + at->second + " = " + first + ";\n";
    if (ragged) lines += "const int " + at->second + "_left = " + last + " - " + at->second + ";\n";
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
    for (int64_t extent : shape) dims.push_back({extent, ""});
    if (op.kind == BlockOp::Kind::load || op.kind == BlockOp::Kind::store) {
      for (int d = 0; d < op.type.rank(); ++d) {
        bool ragged = false;
        const std::string first = interval(op, d, ragged);
        firsts_[i].push_back(first);
        if (ragged) dims[static_cast<size_t>(d)].left = first + "_left";
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
        if (to[d] >= 0 && own[d] == shape[static_cast<size_t>(to[d])] && !dims_[operand][d].left.empty())
          dims[static_cast<size_t>(to[d])].left = dims_[operand][d].left;
    }
  }
}

// Whether only a sum over the turns uses it.
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
  array.name = fresh(base_name(value));
  array.spread = plan.d;
  array.partial_warps = plan.partial_warps;
  array.scope = now_;
  const std::string count = std::to_string(array.spread.count());
  text(now_) += "float " + array.name + "[" + count + "] = {};\n";
  matmul(value, array.name, now_);
  const bool late = late_.behind == value;
  if (plan.wgmma) text(now_) += (late ? late_group() : "") + wgmma_landing({array.name}, late ? 1 : 0);
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

int BlockEmitter::shared_buffer(const std::string& type, int64_t bytes, int64_t alignment) {
  shared_.push_back({fresh("s"), type, bytes, alignment});
  return static_cast<int>(shared_.size()) - 1;
}

int64_t BlockEmitter::stage_bytes() const {
  int64_t bytes = 0;
  for (const auto& [value, tile] : staged_) bytes += tile.bytes;
  return bytes;
}

// Of the threads that compute.
std::string BlockEmitter::barrier() const {
  return schedule_.producer ? "barrier_of<" + std::to_string(schedule_.workers()) + ">();\n"
                            : "__syncthreads();\n";
}

// A stage that writes to shared memory waits until what was there before is no longer needed: in the loop at
// the head of each turn, which staged tiles do anyway (with a producer they have mbarriers) and what stays
// within warps need not.
bool BlockEmitter::begins_with_barrier(Stage stage) const {
  auto writes = [&](Stage each) { return steps_[static_cast<size_t>(each)].writes_shared(); };
  if (stage == Stage::loop)
    return (!staged_.empty() && !schedule_.producer) || steps_[static_cast<size_t>(stage)].has_exchanges();
  if (stage == Stage::after && !joined_.empty()) return true;
  return stage == Stage::after && writes(Stage::after) &&
         (!staged_.empty() || writes(Stage::before) || writes(Stage::loop));
}

// Time passes with barriers: each level of a stage is a moment, and goes on in the next stage unless that
// begins with a barrier. The moments of the loop come again and again. Staged tiles are needed all through
// it; a producer begins with them at once.
Result<BlockEmitter::BlockPlan> BlockEmitter::plan_block() {
  std::vector<int64_t> bytes;
  for (const SharedBuffer& buffer : shared_) bytes.push_back(buffer.bytes);
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
    const OrderProblem problem = steps.order_problem(variables_, bytes);
    auto order = chooser_.order(problem);
    if (!order) return order.status();
    for (const StepList::Span& span : steps.spans(*order))
      buffers[static_cast<size_t>(span.buffer)] = needed(span.buffer, now + span.first, now + span.last);
    const int barriers = order->cost.barriers;
    const int listed = order_as_listed(problem).cost.barriers;
    const bool loop = stage == Stage::loop;
    (loop ? plan.costs.barriers_a_turn : plan.costs.barriers_once) += first + barriers;
    (loop ? plan.costs.listed_a_turn : plan.costs.listed_once) += first + listed;
    if (loop)
      buffers.back() = {stage_bytes() * schedule_.stages, schedule_.producer ? 0 : now, now + barriers,
                        stage_alignment()};
    now += barriers;
    plan.orders[static_cast<size_t>(stage)] = std::move(*order);
  }
  for (int buffer : joined_) buffers[static_cast<size_t>(buffer)] = needed(buffer, 0, now);
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

// Where the tiles of a turn lie.
std::string BlockEmitter::stage_tiles(const BlockPlan& plan) const {
  std::string out = "unsigned char* const stage = shared + " + std::to_string(plan.ring) + " + turn % " +
                    std::to_string(schedule_.stages) + " * " + std::to_string(stage_bytes()) + ";\n";
  int64_t offset = 0;
  for (const auto& [value, tile] : staged_) {
    const std::string type = cuda_type(places_[static_cast<size_t>(program_.op(value).tensor)].dtype);
    out += type + "* const " + tile.name + " = reinterpret_cast<" + type + "*>(stage + " +
           std::to_string(offset) + ");\n";
    offset += tile.bytes;
  }
  return out;
}

std::string BlockEmitter::loop_text(const BlockPlan& plan) {
  const std::string turns = std::to_string(kernel_.turns);
  const int stages = schedule_.stages;
  const bool staged = !staged_.empty(), ahead = loads_ahead() && !straight_fetch_.empty();
  std::string out = declared_;
  std::string body = text(Stage::loop).text(plan.orders[static_cast<size_t>(Stage::loop)], barrier());
  if (schedule_.producer) return out + fed_loop(plan, body);
  body += wgmma_landing(in_flight_);
  // The copy engine may get memory that was written before the loop.
  if (!tensor_maps_.empty() && !shared_.empty()) out += "fence_proxy_async();\n";
  if (late_.value >= 0) return out + late_loop(plan, body);
  if (!staged && begins_with_barrier(Stage::loop)) body = barrier() + body;
  // Each fetch stands once in the text, in a loop that begins before the first turn or goes on after the
  // last: compilers do not inline what stands twice, and what is not inlined lives in memory.
  if (staged) {
    const std::string before = std::to_string(stages - 1);
    const bool copies = !staged_fetch_.empty();
    auto if_copies = [&](const std::string& line) { return copies ? line + "\n" : std::string(); };
    const std::string turn =
        if_copies("cp_async_wait<" + std::to_string(stages - 2) + ">();") +
        (copies_panels_ ? "fence_proxy_async();\n" : "") + "__syncthreads();\nif (step + " + before + " < " +
        turns + ") {\n  const int turn = step + " + before + ";\n" +
        indent(stage_tiles(plan) + turn_text_ + staged_fetch_ + engine_refill(), 2) + "}\n" +
        if_copies("cp_async_commit();") + "if (step < 0) continue;\nconst int turn = step;\n" +
        stage_tiles(plan) + turn_text_ + straight_fetch_ + engine_wait() + body;
    return out + "#pragma unroll 1\nfor (int step = -" + before + "; step < " + turns + "; ++step) {\n" +
           indent(turn, 2) + "}\n" + if_copies("cp_async_wait<0>();");
  }
  if (!ahead)
    return out + "#pragma unroll 1\nfor (int turn = 0; turn < " + turns + "; ++turn) {\n" +
           indent(turn_text_ + straight_fetch_ + body, 2) + "}\n";
  return out + "#pragma unroll 1\nfor (int step = 0; step <= " + turns + "; ++step) {\n  if (step < " +
         turns + ") {\n    const int turn = step;\n" + indent(turn_text_ + straight_fetch_, 4) +
         "  }\n  if (step > 0) {\n    const int turn = step - 1;\n" + indent(turn_text_ + body, 4) + "  }\n" +
         indent(take_, 2) + "}\n";
}

Result<BlockText> BlockEmitter::run() {
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
  find_late_product();
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
  if (last_gather_ > 0) text(Stage::after).insert(last_gather_, {"cluster_arrive();\n", {}, {}, {}, true});
  BlockText out;
  const auto plan = plan_block();
  if (!plan) return plan.status();
  out.costs = plan->costs;
  if (Status status = check_producer(); !status.ok()) return status;
  int64_t bytes = plan->costs.shared_bytes;
  std::string engine;
  if (!tensor_maps_.empty()) {
    const int64_t barriers = (bytes + 7) / 8 * 8;
    engine = engine_prologue(barriers);
    bytes = barriers + schedule_.stages * (schedule_.producer ? 16 : 8);
  }
  if (bytes > target_.shared_bytes_per_block)
    return Status(ErrorCode::UNSUPPORTED, "a block needs " + std::to_string(bytes) +
                                              " bytes of shared memory, " + target_.name + " has " +
                                              std::to_string(target_.shared_bytes_per_block));
  out.shared_bytes = static_cast<uint32_t>(bytes);
  out.threads = schedule_.threads();
  // Blocks of a cluster are neighbours along x.
  out.cluster.x = static_cast<uint32_t>(cluster_blocks());
  out.grid = {static_cast<uint32_t>(kernel_.grid[0] * cluster_blocks()),
              static_cast<uint32_t>(kernel_.grid[1]), static_cast<uint32_t>(kernel_.grid[2])};
  out.setup = "const int lane = lane_index(), warp = int(threadIdx.x) / 32;\n";
  if (bytes > 0) out.setup += "unsigned char* const shared = dynamic_shared<unsigned char>();\n";
  for (size_t i = 0; i < shared_.size(); ++i)
    out.setup += shared_[i].type + "* const " + shared_[i].name + " = reinterpret_cast<" + shared_[i].type +
                 "*>(shared + " + std::to_string(plan->offsets[i]) + ");\n";
  if (cluster_blocks() > 1)
    out.setup += "const int rank = cluster_rank(), block_x = int(blockIdx.x) / " +
                 std::to_string(cluster_blocks()) + ";\n";
  out.setup += engine;
  out.body = prologue_ + producer_text(*plan) + text(Stage::before).text(plan->orders[0], barrier());
  if (loops) out.body += loop_text(*plan);
  if (begins_with_barrier(Stage::after)) out.body += barrier();
  out.body += text(Stage::after).text(plan->orders[2], barrier());
  if (last_gather_ > 0) out.body += "cluster_wait();\n";
  out.signature = "(";
  for (const auto& [tensor, written] : parameters_) {
    const TensorPlace& place = places_[static_cast<size_t>(tensor)];
    // What an overlapping kernel reads may change until its wait: no load may be moved to before it.
    const bool distinct = written || !schedule_.overlaps;
    out.signature += std::string(out.args.empty() ? "" : ", ") + (written ? "" : "const ") +
                     cuda_type(place.dtype) + (distinct ? "* __restrict__ " : "* ") + place.name;
    out.args.push_back(place.arg);
  }
  for (size_t i = 0; i < tensor_maps_.size(); ++i) {
    out.signature += std::string(out.args.empty() ? "" : ", ") + "const __grid_constant__ TensorMap map" +
                     std::to_string(i);
    out.args.push_back({LaunchArg::Kind::tensor_map, static_cast<int64_t>(i)});
  }
  out.tensor_maps = std::move(tensor_maps_);
  out.shapes = std::move(shapes_);
  out.tf32 = std::any_of(plans_.begin(), plans_.end(), [](const auto& plan) {
    return plan.second.tensor_cores && plan.second.dtype == DType::f32;
  });
  out.signature += ")";
  return out;
}

}  // namespace quern
