// Emits one block graph as a kernel.
//
// Operators that cannot be recomputed for free (matrix products, reductions, accumulators) are emitted one
// after the other and leave their result in registers, in the spread that suits them; loads and elementwise
// chains are emitted where they are asked for, in the spread that is asked for. What is there in another
// spread than is wanted goes through shared memory. Partial results of lanes and warps are put together
// late: where the first operator needs a whole one.
#pragma once

#include <map>
#include <optional>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "core/codegen/arithmetic.h"
#include "core/codegen/block_program.h"
#include "core/codegen/block_steps.h"
#include "core/codegen/spread.h"
#include "core/codegen/wgmma_text.h"
#include "core/lang/value_cuda.h"
#include "core/schedule/conversion.h"
#include "core/schedule/schedule.h"

namespace quern {

// What the choices of a block come to.
struct BlockCosts {
  int barriers_once = 0, barriers_a_turn = 0;
  int listed_once = 0, listed_a_turn = 0;  // barriers if steps stayed in the order of the muGraph
  int64_t shared_bytes = 0;
  // Estimated issue cycles of a warp, over all turns: of all that layouts decide, of the conversions among
  // it, and of the conversions that were emitted.
  int64_t layout_cycles = 0, planned_conversion_cycles = 0, conversion_cycles = 0;
};

struct BlockText {
  // The body is `setup`, which touches no memory but the block's own, and `body`.
  std::string signature, setup, body;
  BlockCosts costs;
  Dim3 grid, cluster;
  int threads = 0;
  uint32_t shared_bytes = 0;
  std::vector<LaunchArg> args;  // tensor maps are numbered from 0
  std::vector<TensorMap> tensor_maps;
  std::set<WgmmaShape> shapes;  // that it uses
  bool tf32 = false;            // a product of f32 operands is computed in it
};

class BlockEmitter {
 public:
  BlockEmitter(const MuKernel& kernel, BlockProgram program, const std::vector<TensorPlace>& places,
               const KernelSchedule& schedule, const Target& target, bool approximate, Chooser& chooser);

  // UNSUPPORTED says which operator or size stands in the way; INVALID_ARGUMENT that the schedule's choices
  // are not for this block.
  Result<BlockText> run();

 private:
  // A tile in registers. Number i of it is `name[i]`, or half of `name[i / 2]` if two 16-bit elements share
  // a word. Partial: the tile is what `reduction` makes of what these bits of lane and warp numbers tell
  // apart.
  struct Array {
    std::string name;
    Spread spread;
    DType dtype = DType::f32;
    bool words = false;
    Stage scope = Stage::before;  // where the text of its definition stands
    unsigned partial_lanes = 0, partial_warps = 0;
    OpCode reduction = OpCode::reduce_sum;
    bool whole() const { return partial_lanes == 0 && partial_warps == 0; }
  };
  // A tile of a load in shared memory, one of several stages.
  struct StagedTile {
    BlockValue value;
    std::string name;
    Ints padded,
        pitch;  // the pitch, elements from one coordinate to the next, of tiles that are not in panels
    int inner = 0;
    int64_t bytes = 0;
    // In panels: the bits of coordinates as they follow each other in an element's place in the tile; for
    // each bit of each coordinate which one that is; and which of them the swizzle changes. Panels have rows
    // of 2^row_bits elements of the inner dimension, and 2^panel_bits elements.
    std::vector<CoordBit> bits;
    std::vector<std::vector<int>> bit_places;
    int swizzle = 0, row_bits = 0, panel_bits = 0;
  };
  // A tile that all warps make together for an operand of tensor cores, in a shared buffer: `copies` of it,
  // which turns take one after the other.
  struct MadeTile {
    StagedTile tile;
    int buffer = -1, copies = 1;
    bool is_made = false;
  };
  // An operand of tensor cores in words of two 16-bit elements or one of tf32: all of it, or, if there is a
  // `load`, what this brings for step k of matrix z, out of these shared buffers.
  struct Fragments {
    std::string name, load;
    std::vector<int> reads;
  };
  // Shared memory that some step writes for others; `name` points to it.
  struct SharedBuffer {
    std::string name, type;
    int64_t bytes = 0, alignment = 16;
  };
  // The product that is made a turn late, if there is one, and the product of its turn that is waited for
  // first; `group` are its instructions, `rest` is what a turn does when it has landed.
  struct LateProduct {
    BlockValue value = -1, behind = -1;
    std::string sums, words, group, rest;
  };
  // Shared memory and barriers, decided when all steps are known.
  struct BlockPlan {
    std::array<OrderPlan, 3> orders;
    int64_t ring = 0;              // offset of the staged tiles
    std::vector<int64_t> offsets;  // of `shared_`
    BlockCosts costs;
  };
  // A tile in shared memory that other blocks read.
  struct SharedTile {
    int buffer = -1;
    std::string name;
    DType dtype = DType::f32;
    Ints pitch;
    int64_t size = 1;
  };
  // How tensor cores take a product: whole fragments, in the order in which mma counts registers.
  struct MatmulPlan {
    bool tensor_cores = false;
    DType dtype = DType::f16;  // f32: tf32
    // Register bits within a word.
    int pair_bits() const { return dtype_size(dtype) == 2 ? 1 : 0; }
    Spread a, b, d;
    bool low_rows = false;  // at most 8 rows: registers of the upper rows are not there in `a`
    int down = 1, across = 1, steps = 1, batch = 1;
    int batch_a = 1, batch_b = 1;  // 1 if the operand is the same for all
    unsigned partial_warps = 0;
    // By warpgroups: which operands tensor cores read from shared memory, which one gives the 64 rows of an
    // instruction, and how many columns it has.
    bool wgmma = false;
    std::array<bool, 2> shared = {false, false};
    int tall = 0, columns = 0;
    std::array<bool, 2> made_by_all = {false, false};  // the operands
  };

  // block_emitter.cc
  void find_extents();
  std::string interval(const BlockOp& op, int dim, bool& ragged);
  void emit(BlockValue value);
  std::string assemble();
  int shared_buffer(const std::string& type, int64_t bytes, int64_t alignment = 16);
  int64_t stage_bytes() const;
  Result<BlockPlan> plan_block();
  bool begins_with_barrier(Stage stage) const;
  std::string barrier() const;
  std::string stage_tiles(const BlockPlan& plan) const;
  bool is_summed(BlockValue value) const;
  std::string loop_text(const BlockPlan& plan);
  void fail(BlockValue value, const std::string& what);
  StepList& text(Stage stage) { return steps_[static_cast<size_t>(stage)]; }
  std::string fresh_constant(const std::string& prefix) { return prefix + std::to_string(names_++); }
  // A name for what steps write, or that only one of them reads: who names it keeps the order of the list.
  std::string fresh(const std::string& prefix) { return *variables_.insert(fresh_constant(prefix)).first; }
  std::string base_name(BlockValue value) const;
  std::string define(const std::string& type, const std::string& prefix, const std::string& expression);
  // Where text for a value that is asked for now must stand.
  Stage place_of(BlockValue value) const {
    return program_.stage(value) == Stage::before ? Stage::before : now_;
  }

  // block_value.cc
  const Array* find(BlockValue value, const Spread& want) const;
  CudaText element(BlockValue value, const Spread& spread, const std::string& index);
  CudaText read(const Array& array, const Spread& want, const std::string& index) const;
  CudaText compute(BlockValue value, const Spread& spread, const std::string& index);
  CudaText shifted_exp(BlockValue value, const ExpArithmetic& exp, const Spread& spread,
                       const std::string& index);
  void materialize(BlockValue value, const Spread& spread);
  // The spread in which operators ask for all of a value.
  const Spread& natural(BlockValue value) const { return layouts_.at(value); }
  // Of a value that is computed where it is asked for: for each of its dimensions that of operand number
  // `operand`, or -1.
  std::vector<int> asked_dims(BlockValue value, size_t operand) const;
  Spread blocked(BlockValue value, DType dtype, int inner) const;
  Spread shared_out(BlockValue value, DType dtype, int inner) const;
  BlockValue root_load(BlockValue value) const;
  // "x < 5 && y < y_left", over coordinates of register `index`; empty if every register is inside. Only
  // dimensions in `dims` (all if empty) are looked at, and edges of the block only if `edges`.
  std::string inside(BlockValue value, const Spread& spread, const std::string& index, bool edges = true,
                     const std::vector<int>& dims = {});
  std::string coordinate(const Spread& spread, int dim, const std::string& index);
  std::string offset(const Spread& spread, const Ints& strides, const std::string& index);

  // layout_question.cc
  class LayoutQuestion;
  Status choose_layouts();

  // block_exchange.cc
  std::string leaders(const Spread& spread) const;
  void finish_lanes(BlockValue value);
  SharedTile shared_tile(BlockValue value, DType dtype);
  int shared_vector(BlockValue value, const SharedTile& tile, Spread& spread) const;
  // Appends nothing: gives the text that writes.
  std::string put_shared(BlockValue value, const Array& have, SharedTile& tile);

  // block_convert.cc
  Result<Conversion> plan_move(const Array& from, const Spread& to, const Ints& shape) const;
  // What convert() will emit, in issue cycles of a warp; nothing if it cannot be done.
  std::optional<int64_t> move_cycles(BlockValue value, Array from, const Spread& want) const;
  std::string warp_and_rank() const;  // as to_layout numbers them
  void convert(BlockValue value, const Spread& want);
  void shuffle(const ShufflePlan& plan, const Array& from, const Array& to);
  void exchange(const SharedExchange& plan, const Array& from, const Array& to);
  // The number that terms over (the register `index`, lane, warp, block) give; what threads decide stands in
  // front.
  std::string address(const Layout& layout, std::string_view output, const std::string& index);

  // block_cluster.cc
  void publish(BlockValue value);
  void gather(BlockValue value, const Spread& want);
  const std::string& cluster_factors(BlockValue value, const Spread& spread);
  std::string storing_block(const BlockOp& op, const Spread& spread) const;
  int64_t cluster_blocks() const { return kernel_.grid[static_cast<size_t>(Axis::cluster)]; }
  // Of the number of a block in its cluster; 0 if it is no power of two.
  int rank_bits() const {
    const int bits = bits_for(cluster_blocks());
    return cluster_blocks() == int64_t{1} << bits ? bits : 0;
  }

  // block_load.cc
  void load(BlockValue value, const Spread& spread);
  void load_straight(BlockValue value, const Spread& spread);
  const StagedTile& stage_tile(BlockValue value);
  void load_staged(BlockValue value, const Spread& spread);
  std::string stage_copy(const StagedTile& tile);
  static std::vector<int> beyond_tile(const StagedTile& tile, const Spread& spread);
  int vector_bits(BlockValue value, const Spread& spread, int inner) const;
  int inner_dim(int32_t tensor, const Ints& tile) const;
  void store(BlockValue value);
  std::string pointer(int32_t tensor, bool written);
  std::string tile_pointer(BlockValue value, const std::string& pointer) const;
  bool is_staged(BlockValue value) const;
  bool loads_ahead() const { return schedule_.ahead && schedule_.stages == 0; }
  // Computed where it is asked for, element by element.
  bool is_free(BlockValue value) const;

  // block_tma.cc
  // Of tiles in the ring, bytes: a swizzle repeats every 1024.
  int64_t stage_alignment() const { return schedule_.tma || schedule_.wgmma ? 1024 : 128; }
  std::vector<int> dims_by_stride(const StagedTile& tile) const;
  static std::vector<CoordBit> bits_of(const StagedTile& tile, const std::vector<int>& dims);
  std::vector<CoordBit> bits_as_read(const StagedTile& tile, const Spread& spread) const;
  void put_in_panels(StagedTile& tile, const std::vector<CoordBit>& others) const;
  bool ends_with_tensor(const BlockOp& op, int dim, int64_t padded) const;
  std::optional<TensorMap> tensor_map(const StagedTile& tile, const std::vector<int>& dims) const;
  bool bring_by_engine(StagedTile& tile);
  bool is_shared_by_blocks(const BlockOp& op) const;
  std::string place_in(const StagedTile& tile, const Spread& spread, const std::string& index,
                       bool swizzled = true);
  std::string engine_request() const;
  std::string engine_refill() const;
  std::string engine_wait() const;
  std::string engine_prologue(int64_t at) const;

  // block_producer.cc
  Status check_producer() const;
  std::string producer_text(const BlockPlan& plan) const;
  bool products_go_on() const;
  std::string fed_loop(const BlockPlan& plan, const std::string& body) const;

  // block_matmul.cc
  void plan_matmuls();
  MatmulPlan plan_matmul(BlockValue value) const;
  bool plan_batch(BlockValue value, MatmulPlan& plan) const;
  static std::string matmul_loops(const MatmulPlan& plan);
  void matmul(BlockValue value, const std::string& sums, Stage stage);
  void matmul_without_tensor_cores(BlockValue value);
  int shared_copy(BlockValue value);
  std::string write_elements(BlockValue value, const std::string& to, const Ints& strides);
  void read_elements(BlockValue value, int buffer, const std::string& from, const Ints& strides, Stage place);

  // block_wgmma.cc
  bool is_panel_operand(BlockValue value, DType dtype) const;
  bool is_made_panel(BlockValue value, DType dtype) const;
  bool plan_wgmma(BlockValue value, MatmulPlan& plan) const;
  void note_panels(BlockValue value, const MatmulPlan& plan);
  std::string panel_operand(BlockValue value, const MatmulPlan& plan, int side, const std::string& index,
                            const std::string& tiles);
  void wgmma(BlockValue value, const std::string& sums, Stage stage);
  std::string wgmma_group(BlockValue value, const std::string& sums, const std::string& words,
                          const std::string& tiles);
  static std::string wgmma_landing(const std::vector<std::string>& sums, int pending = 0);

  // block_late.cc
  void find_late_product();
  std::string late_group();
  void finish_late_turn(BlockValue accumulator, const Array& sums);
  BlockValue late_flat() const;
  std::string late_tiles(const BlockPlan& plan) const;
  std::string late_loop(const BlockPlan& plan, const std::string& body) const;

  // block_fragments.cc
  std::string read_matrices(const StagedTile& tile, DType dtype, const Spread& spread, const std::string& to,
                            int words, const std::string& skipped);
  bool is_made_by_all(BlockValue value, DType dtype, const Spread& fragments) const;
  Spread shared_making(BlockValue value, DType dtype) const;
  Spread operand_spread(BlockValue product, size_t side) const;
  MadeTile& made_tile(BlockValue value, const MatmulPlan& plan);
  const MadeTile& make_by_all(BlockValue value, const MatmulPlan& plan, int summed_dim);
  std::string word_of(BlockValue value, const Spread& spread, DType dtype, int summed_dim,
                      const std::string& index);
  std::string packed(BlockValue value, const Spread& spread, DType dtype, int summed_dim);
  Fragments fragments(BlockValue value, int side);
  const StagedTile* matrices_of(BlockValue value, DType dtype);

  // block_move.cc
  void move(BlockValue value);
  void join_turns(BlockValue value);

  // block_reduce.cc
  void reduce(BlockValue value);
  // Adds the operand of reduction `value` into `name`, which is there already; gives the array.
  Array reduce_into(BlockValue value, const std::string& name, Stage stage);
  Array reduced_array(BlockValue value, const Spread& from) const;
  void accumulate(BlockValue value);
  bool is_shift(BlockValue value) const;
  // Whether the accumulator takes over what its operand has in parts.
  bool keeps_parts(BlockValue value) const;
  std::string rescale(BlockValue value, const Array& sums);
  void shift(BlockValue value);

  const MuKernel& kernel_;
  BlockProgram program_;
  const std::vector<TensorPlace>& places_;
  const KernelSchedule& schedule_;
  const Target& target_;
  Chooser& chooser_;
  bool approximate_;  // functions exact to some 2^-21: what 16-bit outputs do not show
  int warp_bits_ = 0;

  Status status_;
  Stage now_ = Stage::before;
  int names_ = 0;
  std::array<StepList, 3> steps_;  // before, in and after the loop
  std::set<std::string> variables_;
  std::vector<SharedBuffer> shared_;
  std::set<int> joined_;  // of these: those that the loop fills turn by turn
  int64_t conversion_cycles_ = 0;
  std::string prologue_, turn_text_, declared_, straight_fetch_, staged_fetch_, take_;
  std::map<std::string, std::string> defined_;
  std::vector<std::vector<TileDim>> dims_;
  std::vector<std::vector<std::string>> firsts_;  // of loads and stores: where the tile begins
  std::vector<std::vector<Array>> arrays_;
  std::map<BlockValue, Spread> demands_;  // of matrix products
  std::map<BlockValue, Spread> layouts_;  // as chosen
  std::set<BlockValue> in_parts_;         // some of the tiles that these are made of, element by element
  int64_t layout_cycles_ = 0, planned_conversion_cycles_ = 0;
  std::map<BlockValue, MatmulPlan> plans_;
  std::map<BlockValue, BlockValue> factors_;  // max accumulator -> the value exp(old - new)
  std::map<BlockValue, StagedTile> staged_;
  std::map<BlockValue, MadeTile> made_;
  std::map<std::string, std::string> packed_;
  std::map<BlockValue, SharedTile> published_;  // what the other blocks of the cluster read
  std::map<std::string, std::string> cluster_factors_;
  size_t last_gather_ = 0;  // number of steps behind which nothing is read from them any more
  std::vector<std::pair<int32_t, bool>> parameters_;  // tensor, written
  std::vector<TensorMap> tensor_maps_;
  std::map<BlockValue, Ints> panels_;  // operands in shared memory, with the least extents of their tiles
  bool copies_panels_ = false;         // some of these come by cp.async
  std::set<WgmmaShape> shapes_;
  LateProduct late_;
  std::vector<std::string> in_flight_;  // sums for which a turn waits at its end
  std::string engine_fetch_;
  int64_t engine_bytes_ = 0;  // of a turn
};

}  // namespace quern
