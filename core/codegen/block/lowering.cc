#include "core/codegen/block/lowering.h"

#include <algorithm>

#include "core/base/grid.h"
#include "core/codegen/block/cluster_reductions.h"
#include "core/codegen/block/conversions.h"
#include "core/codegen/block/layout_question.h"
#include "core/codegen/block/position_masks.h"
#include "core/codegen/block/reductions.h"
#include "core/kernel/passes/tile_loop.h"
#include "core/schedule/tile_pairs.h"

namespace quern {

namespace {

constexpr int kMostRegisters = 4096;      // of one tile, a thread: beyond, compiling takes minutes
constexpr int64_t kMostExtent = 1 << 30;  // of a dimension: indices have 32 bits

class BlockLowering : BlockPart {
 public:
  BlockLowering(const BlockFacts& facts, BlockBody& body)
      : BlockPart(facts, body),
        plans_(facts),
        bounds_(facts, body),
        shared_tiles_(facts, body, bounds_),
        memory_(facts, body, bounds_, shared_tiles_, values_),
        staged_(facts, body, plans_, bounds_, memory_, shared_tiles_, values_),
        conversions_(facts, body, bounds_, values_),
        cluster_(facts, body, bounds_, values_),
        values_(facts, body, bounds_, memory_, staged_, conversions_, cluster_),
        operands_(facts, body, plans_, bounds_, shared_tiles_, staged_, values_),
        products_(facts, body, plans_, bounds_, shared_tiles_, staged_, values_, operands_),
        pipelined_(facts, body, plans_, products_, operands_),
        moves_(facts, body, bounds_, values_),
        reductions_(facts, body, plans_, bounds_, values_, products_, pipelined_, moves_),
        masks_(facts, body, bounds_, memory_, staged_, values_) {}

  Result<BlockKernel> run(Chooser& chooser);

 private:
  void write_sections();
  void write(BlockValue value);
  void write_reduction(BlockValue value);
  void write_product(BlockValue value);
  Status check_tiles() const;
  Status check_warps() const;
  Status check_producer() const;
  Status check_shared_a() const;
  Status check_persistent() const;
  Status check_multicast(const ir::Draft& draft) const;
  bool keeps_groups_outstanding() const;
  // Persistent blocks with intervals have a pair of tiles each: how many other tiles such blocks have at a time.
  struct Pairs : TilePairs {
    int64_t at_once = 0;
  };
  std::optional<Pairs> pairs() const;
  // What passes get (core/kernel/passes); to be called last.
  ir::TileTurns draft_turns() const;
  ir::TileTurns draft_turns_of_pairs(const Pairs& pairs) const;
  ir::TileLoop draft_loop();
  Status add_verdict(BlockKernel& out);
  ir::Body guard(ir::TileTurns& turns);
  ir::Draft draft();
  void add_launch(BlockKernel& out) const;
  void add_parameters(BlockKernel& out) const;

  ProductPlans plans_;
  TileBounds bounds_;
  SharedTiles shared_tiles_;
  GlobalMemory memory_;
  StagedTiles staged_;
  Conversions conversions_;
  ClusterReductions cluster_;
  Values values_;
  Operands operands_;
  Products products_;
  PipelinedProduct pipelined_;
  Moves moves_;
  Reductions reductions_;
  PositionMasks masks_;
  bool has_loop_ = false;
};

Status check_extents(const BlockFacts& facts) {
  const Target& target = facts.target;
  if (facts.cluster_blocks() > target.max_cluster)
    return Status(ErrorCode::UNSUPPORTED, "clusters of " + std::to_string(facts.cluster_blocks()) +
                                              " blocks, " + target.name + " has at most " +
                                              std::to_string(target.max_cluster));
  const auto& grid = facts.kernel.grid;
  if (!fits_launch(grid[0] * facts.cluster_blocks(), grid[1], grid[2]))
    return Status(ErrorCode::UNSUPPORTED, "the grid is larger than a GPU's");
  for (const TensorPlace& place : facts.places)
    for (int64_t extent : place.shape)
      if (extent >= kMostExtent) return Status(ErrorCode::UNSUPPORTED, "an extent does not fit 30 bits");
  return {};
}

void BlockLowering::write(BlockValue value) {
  switch (program_.op(value).kind()) {
    case BlockOp::Kind::load:  // where it is asked for
    case BlockOp::Kind::rescale_factor:
      return;
    case BlockOp::Kind::store:
      return staged_.store(value);
    case BlockOp::Kind::accumulate:
      return reductions_.accumulate(value);
    case BlockOp::Kind::reduce_cluster:
      return cluster_.publish(value);
    case BlockOp::Kind::compute:
      if (program_.is_compute(value, OpKind::reduction)) return write_reduction(value);
      if (program_.is_compute(value, OpKind::contraction)) return write_product(value);
      if (program_.is_compute(value, OpKind::movement) && !facts_.is_free(value)) moves_.move(value);
  }
}

// What only an accumulator uses is made there.
void BlockLowering::write_reduction(BlockValue value) {
  const auto& users = program_.users[static_cast<size_t>(value)];
  if (users.size() == 1 && program_.op(users[0]).is_accumulate() && facts_.keeps_parts(users[0])) return;
  reductions_.reduce(value);
}

void BlockLowering::write_product(BlockValue value) {
  if (facts_.is_summed(value)) return;
  const MatmulPlan& plan = plans_.of(value);
  RegisterTile tile;
  tile.dtype = register_type(program_.op(value).type.dtype);
  tile.registers = fresh_registers(base_name(value), ir::scalar_of(tile.dtype), plan.d.count());
  tile.layout = plan.d;
  tile.partial_warps = plan.partial_warps;
  tile.scope = now();
  text(now()) += {ir::Declare{tile.registers, !plan.wgmma}};
  products_.add(value, tile.registers, now());
  if (plan.wgmma) {
    const bool pipelined = plans_.pipelined().behind == value;
    Body body;
    Builder to(body);
    if (pipelined) to.add(pipelined_.issue());
    to.add(ir::wait_for_products({tile.registers}, pipelined ? 1 : 0));
    text(now()) += std::move(body);
  }
  values_.hold(value, std::move(tile));
}

// Accumulators are written where they sum.
void BlockLowering::write_sections() {
  for (Stage stage : {Stage::before, Stage::loop, Stage::after}) {
    body_.now = stage;
    for (BlockValue value = 0; value < facts_.count() && body_.status.ok(); ++value) {
      const BlockOp& op = program_.op(value);
      if (op.is_rescale_factor()) continue;  // its maximum's accumulator writes it
      if ((op.is_accumulate() ? Stage::loop : program_.stage(value)) != stage) continue;
      has_loop_ |= stage == Stage::loop;
      for_transform(plans_.transforms(value), [&] { write(value); });
    }
  }
}

Status BlockLowering::check_tiles() const {
  for (BlockValue value = 0; value < facts_.count(); ++value)
    for (const RegisterTile& tile : values_.tiles(value))
      if (tile.layout.count() > kMostRegisters)
        return Status(ErrorCode::UNSUPPORTED, "a tile has " + std::to_string(tile.layout.count()) +
                                                  " elements a thread: cut it smaller");
  return {};
}

// Numbers of warps are bits of layouts, of which only products by warpgroups say that some are not there.
Status BlockLowering::check_warps() const {
  const auto& all = plans_.all();
  const bool by_wgmma =
      std::all_of(all.begin(), all.end(), [](const auto& each) { return each.second.wgmma; });
  if (!facts_.has_three_warpgroups() || (by_wgmma && !all.empty())) return {};
  return Status(
      ErrorCode::UNSUPPORTED,
      "three warpgroups are for products by wgmma whose rows are 3 times a power of two, from 192 on");
}

// Nobody but TMA fills the stages of a producer: what threads copy, all of them would have to wait for. They may load what no
// stage has into registers.
Status BlockLowering::check_producer() const {
  if (!schedule_.producer) return {};
  if (staged_.tma_tiles() > 0 && !staged_.has_copies()) return {};
  const auto loads = std::count_if(program_.ops.begin(), program_.ops.end(), [&](const BlockOp& op) {
    return op.is_load() && program_.stage(&op - &program_.ops[0]) == Stage::loop;
  });
  return Status(ErrorCode::UNSUPPORTED,
                std::string("a producer warp brings all tiles of a loop by TMA, which on ") + target_.name +
                    " can bring " + std::to_string(staged_.tma_tiles()) + " of these " +
                    std::to_string(loads) +
                    " (tma=1; rows dense and of whole 16 bytes, edges only where the tensor ends)");
}

Status BlockLowering::check_shared_a() const {
  const auto& all = plans_.all();
  if (!schedule_.shared_a ||
      std::any_of(all.begin(), all.end(), [](const auto& each) { return each.second.keeps_m; }))
    return {};
  return Status(ErrorCode::UNSUPPORTED,
                "shared_a is for products by wgmma in the loop, of rows that are loaded in front of it; in a "
                "tile of powers of two, unless TMA brings them (producer=1)");
}

// Nothing but what the producer brings is shared by tiles, one of which is loaded while another is stored; and warps have
// memory of their own.
Status BlockLowering::check_persistent() const {
  if (schedule_.persistent == 0) return {};
  std::vector<SharedBuffer> others;
  for (const SharedBuffer& buffer : body_.shared)
    if (!staged_.is_brought_once(buffer.symbol)) others.push_back(buffer);
  const bool stays = std::all_of(body_.steps.begin(), body_.steps.end(),
                                 [&](const StepList& steps) { return steps.keeps_within_warps(others); });
  const char* why = facts_.cluster_blocks() > 1 ? "blocks of a cluster"
                    : !stays                    ? "shared memory that threads write"
                                                : nullptr;
  if (!why) return {};
  return Status(ErrorCode::UNSUPPORTED, std::string("persistent blocks cannot have ") + why);
}

// Blocks of a pair do the same iterations, and one fills the stages of the other when it is told that they
// have been read: by tensor cores, whose reads are complete when they are waited for; what threads read no
// arrival in another block orders.
Status BlockLowering::check_multicast(const ir::Draft& draft) const {
  const int axis = multicast_axis(schedule_);
  if (axis < 0) return {};
  const std::string name(1, "xyz"[axis]);
  const int64_t tiles = kernel_.grid[static_cast<size_t>(axis)];
  auto refused = [](const std::string& why) {
    return Status(ErrorCode::UNSUPPORTED, "blocks cannot share tiles (multicast): " + why);
  };
  if (facts_.cluster_blocks() > 1) return refused("they form clusters that cut the loop");
  if (tiles % 2 != 0)
    return refused("there are " + std::to_string(tiles) + " tiles along " + name + ", which are no pairs");
  if (staged_.multicast_tiles() == 0) return refused("all tiles of the loop are cut along " + name);
  if (draft.loop && draft.loop->masked) return refused("threads look at tiles that positions mask");
  if (const BlockValue read = staged_.read_by_threads(); read >= 0)
    return refused("threads read " + base_name(read) + ", and not wgmma alone");
  return {};
}

// Whether wgmma groups of an iteration may be outstanding when the next one begins: they read nothing but the
// ring, and nobody looks at what they sum before the end.
bool BlockLowering::keeps_groups_outstanding() const {
  const auto& all = plans_.all();
  return schedule_.producer && !reductions_.outstanding().empty() &&
         std::all_of(all.begin(), all.end(), [&](const auto& each) {
           const auto& [value, plan] = each;
           if (!plan.wgmma || program_.stage(value) != Stage::loop) return true;
           const BlockOp& user = program_.op(program_.users[static_cast<size_t>(value)][0]);
           return plan.is_in_stage(0) && plan.is_in_stage(1) && user.is_accumulate(Combine::sum);
         });
}

ir::TileLoop BlockLowering::draft_loop() {
  ir::TileLoop loop;
  loop.iteration = body_.iteration_number;
  loop.trip_count = kernel_.trip_count;
  loop.declared = std::move(body_.declared);
  loop.names = std::move(body_.iteration);
  loop.loads = memory_.take_fetch();
  loop.take = memory_.take_next();
  loop.prefetch = facts_.prefetches();
  loop.outstanding = reductions_.outstanding();
  loop.groups_stay_outstanding = keeps_groups_outstanding();
  if (pipelined_.is_there())
    loop.pipelined = pipelined_.draft();
  else
    loop.masked = masks_.draft();
  return loop;
}

// y of the launch counts pairs; along the other axes a block has one tile in so many, of which x is the first.
std::optional<BlockLowering::Pairs> BlockLowering::pairs() const {
  if (!schedule_.intervals || schedule_.persistent == 0) return std::nullopt;
  const auto all = tile_pairs(kernel_, facts_.order.uneven);
  if (!all || schedule_.persistent < all->count) return std::nullopt;
  return Pairs{*all, std::min(all->others, schedule_.persistent / all->count)};
}

ir::TileTurns BlockLowering::draft_turns_of_pairs(const Pairs& pairs) const {
  ir::TileTurns turns;
  turns.turn = body_.turn;
  turns.paired = bounds_.tile_axis(pairs.axis);
  const Expr pair = ir::block_index(1), last = Expr(2 * pairs.count - 1) - pair;
  turns.pair = facts_.order.backwards == pairs.axis ? std::array{last, pair} : std::array{pair, last};
  const Expr first = ir::block_index(0);
  turns.count =
      (pairs.others % pairs.at_once == 0 ? Expr(pairs.others / pairs.at_once)
                                         : (pairs.others + pairs.at_once - 1 - first) / pairs.at_once) *
      2;
  Builder to(turns.names);
  to.let(turns.paired, select(equal(Expr(turns.turn) & 1, 0), turns.pair[0], turns.pair[1]));
  Expr rest = to.let(ir::make_variable("tile", Scalar::i32), first + Expr(turns.turn) / 2 * pairs.at_once);
  for (const int axis : facts_.order.axes) {
    if (axis == pairs.axis) continue;
    const int64_t extent = kernel_.grid[static_cast<size_t>(axis)];
    to.let(bounds_.tile_axis(axis), rest % extent);
    rest = rest / extent;
  }
  return turns;
}

// Tiles in the order in which blocks would be launched; blocks of a pair have neighbours along its axis.
ir::TileTurns BlockLowering::draft_turns() const {
  if (const auto paired = pairs()) return draft_turns_of_pairs(*paired);
  const int64_t tiles = facts_.tiles(), blocks = std::min(schedule_.persistent, tiles);
  const Expr block = ir::block_index(0);
  ir::TileTurns turns;
  turns.turn = body_.turn;
  turns.groups = schedule_.groups();
  turns.group = ir::make_variable("group", Scalar::i32);
  turns.may_begin = ir::make_memory("may_begin", ir::Space::shared, Scalar::mbarrier);
  turns.count = tiles % blocks == 0 ? Expr(tiles / blocks) : (tiles + blocks - 1 - block) / blocks;
  Builder to(turns.names);
  Expr rest = to.let(ir::make_variable("tile", Scalar::i32), block + Expr(turns.turn) * blocks);
  const int paired = multicast_axis(schedule_) == facts_.order.axes[0] ? -1 : multicast_axis(schedule_);
  if (paired >= 0) rest = rest / 2;
  const int64_t together = facts_.order.together;
  Expr first = 0;
  if (together > 1) first = to.let(ir::make_variable("first", Scalar::i32), rest % together);
  rest = rest / together;
  for (const int axis : facts_.order.axes) {
    const bool in_parts = axis == facts_.order.axes[1];
    const int64_t extent = kernel_.grid[static_cast<size_t>(axis)], steps = axis == paired ? extent / 2
                                                                            : in_parts     ? extent / together
                                                                                           : extent;
    Expr index = axis == facts_.order.axes.back() ? rest : rest % steps;
    if (axis == paired) index = index * 2 + Expr(rank());
    if (in_parts) index = index * together + first;
    to.let(bounds_.tile_axis(axis), axis == facts_.order.backwards ? Expr(extent - 1) - index : index);
    rest = rest / steps;
  }
  return turns;
}

// Whether all sums of the block are finite: 0 if they are.
Status BlockLowering::add_verdict(BlockKernel& out) {
  ir::Draft& draft = out.draft;
  if (!draft.loop || !draft.loop->masked)
    return Status(ErrorCode::UNSUPPORTED, "nothing says whether its sums are finite");
  const Symbol memory = memory_.pointer(-1, *facts_.verdicts, true),
               verdict = ir::make_vector("verdict", Scalar::f32, 1);
  draft.finite = ir::make_registers("finite", Scalar::boolean, 1);
  Builder end(draft.end);
  const Expr finite = end.let(ir::make_variable("all_finite", Scalar::boolean),
                              ir::call(ir::Function::all_agree, Scalar::boolean,
                                       {ir::element(draft.finite, 0)}, {schedule_.workers()}));
  end.when(equal(ir::thread_index(), 0), [&](Builder& one) {
    Expr block = ir::block_index(2);
    block = block * int64_t{out.grid.y} + ir::block_index(1);
    block = block * int64_t{out.grid.x} + ir::block_index(0);
    one.declare(verdict);
    one.assign(ir::element(verdict, 0),
               select(finite, ir::literal(0, Scalar::f32), ir::literal(1, Scalar::f32)));
    one.emit(Instr::store_global, {ir::address(memory, block), verdict}, {Scalar::f32, 1});
  });
  return {};
}

// Nothing is left to do where all blocks in front had finite sums.
ir::Body BlockLowering::guard(ir::TileTurns& turns) {
  const TensorPlace& place = *facts_.verdicts_in_front;
  const int threads = schedule_.threads();
  turns.passed = ir::make_variable("passed", Scalar::boolean);
  ir::Body body;
  Builder to(body);
  const Expr fine = words_are_zero(to, place.name, Instr::load_written, memory_.pointer(-1, place), 0,
                                   place.shape[0], threads);
  to.let(turns.passed, ir::call(ir::Function::all_agree, Scalar::boolean, {fine}, {threads}));
  return body;
}

ir::Draft BlockLowering::draft() {
  ir::Draft draft;
  draft.schedule = schedule_;
  draft.kernel.threads = schedule_.threads();
  draft.kernel.min_blocks = std::max(schedule_.min_blocks, schedule_.setmaxnreg ? 1 : 0);
  draft.lane = lane();
  draft.warp = warp();
  draft.memory = body_.shared_memory;
  draft.workers = schedule_.workers();
  draft.producer = schedule_.producer;
  Builder thread(draft.thread_names), block(draft.block_names);
  thread.let(lane(), ir::call(ir::Function::lane_index, Scalar::i32, {}));
  const Expr number = ir::thread_index() / 32;
  thread.let(warp(), schedule_.wgmma ? ir::call(ir::Function::broadcast, Scalar::i32, {number}) : number);
  if (facts_.cluster_blocks() > 1 || schedule_.multicast_blocks() > 1)
    block.let(rank(), ir::call(ir::Function::cluster_rank, Scalar::i32, {}));
  if (facts_.cluster_blocks() > 1) block.let(bounds_.block_x(), ir::block_index(0) / facts_.cluster_blocks());
  // No block ends while others read what it has.
  if (const size_t last = cluster_.last_gather(); last > 0) {
    text(Stage::after).insert(last, {{ir::Instruction{Instr::cluster_arrive, {}, {}}}, true});
    Builder(draft.end).emit(Instr::cluster_wait);
  }
  // Nor while others may arrive at its mbarriers.
  if (schedule_.multicast_blocks() > 1) Builder(draft.end).emit(Instr::cluster_barrier);
  if (schedule_.persistent > 0) draft.turns = draft_turns();
  if (facts_.verdicts_in_front) draft.guard = guard(*draft.turns);
  draft.prologue = std::move(body_.prologue);
  draft.buffers = std::move(body_.shared);
  if (has_loop_) draft.loop = draft_loop();
  draft.ring = staged_.draft();
  for (size_t i = 0; i < body_.steps.size(); ++i) draft.sections[i].steps = std::move(body_.steps[i]);
  return draft;
}

// Blocks of a cluster are neighbours along x, those that share tiles along an axis of theirs.
void BlockLowering::add_launch(BlockKernel& out) const {
  const auto cluster = static_cast<uint32_t>(facts_.cluster_blocks());
  auto blocks = [&](size_t axis) {
    return static_cast<uint32_t>(kernel_.grid[static_cast<size_t>(facts_.order.axes[axis])]);
  };
  auto shared_by = [&](size_t axis) {
    return static_cast<uint32_t>(schedule_.multicast[static_cast<size_t>(facts_.order.axes[axis])]);
  };
  out.cluster = {cluster * shared_by(0), shared_by(1), shared_by(2)};
  const auto together = static_cast<uint32_t>(facts_.order.together);
  out.grid = {blocks(0) * together * cluster, blocks(1) / together, blocks(2)};
  if (schedule_.persistent > 0) {
    out.grid = {static_cast<uint32_t>(std::min(schedule_.persistent, facts_.tiles())), 1, 1};
    if (const auto paired = pairs())
      out.grid = {static_cast<uint32_t>(paired->at_once), static_cast<uint32_t>(paired->count), 1};
    out.cluster = {out.cluster.x * out.cluster.y * out.cluster.z, 1, 1};
  }
  out.facts.grid = out.grid;
  out.facts.cluster = out.cluster;
}

void BlockLowering::add_parameters(BlockKernel& out) const {
  auto elements = [&](const TensorPlace& place) {
    return place.offset + TensorDesc{"", place.dtype, place.extents_in_memory(), place.strides}.span();
  };
  for (const GlobalMemory::Parameter& parameter : memory_.parameters()) {
    for (const auto& [tensor, place] : masks_.watched())
      if (parameter.place == &place) out.watched.push_back({out.args.size(), tensor});
    if (parameter.place == facts_.verdicts || parameter.place == facts_.verdicts_in_front)
      out.verdicts = out.args.size();
    // What an overlapping kernel reads may change until its wait: no load may be moved to before it.
    out.draft.kernel.parameters.push_back({parameter.symbol, parameter.symbol->written || !schedule_.pdl});
    out.args.push_back(parameter.place->arg);
    const int64_t count = parameter.place == facts_.verdicts ? static_cast<int64_t>(out.grid.count())
                                                             : elements(*parameter.place);
    out.facts.parameters.push_back({count, kTensorMapAlignment, std::nullopt});
  }
  for (const StagedTiles::Map& map : staged_.maps()) {
    const auto number = static_cast<int64_t>(out.tensor_maps.size());
    out.draft.kernel.parameters.push_back({map.symbol, true});
    out.args.push_back({LaunchArg::Kind::tensor_map, number});
    out.facts.parameters.push_back(
        {elements(facts_.places[static_cast<size_t>(map.tensor)]), kTensorMapAlignment, map.map});
    out.tensor_maps.push_back(map.map);
  }
}

Result<BlockKernel> BlockLowering::run(Chooser& chooser) {
  if (Status status = check_warps(); !status.ok()) return status;
  masks_.find();
  auto layouts = choose_layouts(facts_, plans_, chooser);
  if (!layouts) return layouts.status();
  BlockKernel out;
  out.costs.layout_cycles = layouts->cycles;
  out.costs.planned_conversion_cycles = layouts->conversion_cycles;
  values_.choose(std::move(*layouts));
  write_sections();
  if (!body_.status.ok()) return body_.status;
  if (Status status = check_tiles(); !status.ok()) return status;
  if (Status status = check_producer(); !status.ok()) return status;
  if (Status status = staged_.check_transform(); !status.ok()) return status;
  if (Status status = check_shared_a(); !status.ok()) return status;
  if (Status status = check_persistent(); !status.ok()) return status;
  add_launch(out);
  out.draft = draft();
  if (facts_.verdicts)
    if (Status status = add_verdict(out); !status.ok()) return status;
  if (Status status = check_multicast(out.draft); !status.ok()) return status;
  out.costs.conversion_cycles = conversions_.cycles();
  add_parameters(out);
  out.shapes = products_.shapes();
  out.products = computed_products(facts_.program, plans_);
  for (const auto& [product, plan] : plans_.all()) {
    if (!plan.tensor_cores || plan.dtype != DType::f32) continue;
    (plan.tf32x3 ? out.tf32x3 : out.tf32) = true;
  }
  return out;
}

}  // namespace

Result<BlockKernel> lower_to_draft(const BlockFacts& facts, Chooser& chooser) {
  if (Status status = check_extents(facts); !status.ok()) return status;
  BlockBody body;
  return BlockLowering(facts, body).run(chooser);
}

}  // namespace quern
