// Emits one block graph as a kernel.
//
// Operators that cannot be recomputed for free (matrix products, reductions, accumulators) are emitted one
// after the other and leave their result in registers, in the spread that suits them; loads and elementwise
// chains are emitted where they are asked for, in the spread that is asked for. What is there in another
// spread than is wanted goes through shared memory. Partial results of lanes and warps are put together
// late: where the first operator needs a whole one.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "core/base/dtype_info.h"
#include "core/base/plan.h"
#include "core/base/target.h"
#include "core/codegen/arithmetic.h"
#include "core/codegen/block_program.h"
#include "core/codegen/spread.h"
#include "core/codegen/trace.h"
#include "core/codegen/wgmma_text.h"
#include "core/kernel/builder.h"
#include "core/kernel/launch_facts.h"
#include "core/kernel/passes/draft.h"
#include "core/kernel/value.h"
#include "core/mugraph/tile_masks.h"
#include "core/schedule/conversion.h"
#include "core/schedule/schedule.h"
#include "core/schedule/tile_work.h"

namespace quern {

// What the choices of a block come to.
struct BlockCosts : ir::DraftCosts {
  // Estimated issue cycles of a warp, over all iterations: of all that layouts decide, of the conversions among
  // it, and of the conversions that were emitted.
  int64_t layout_cycles = 0, planned_conversion_cycles = 0, conversion_cycles = 0;
};

using ir::Body;
using ir::Builder;
using ir::Expr;
using ir::Instr;
using ir::Scalar;
using ir::SharedBuffer;
using ir::StepList;
using ir::Symbol;
using ir::Value;

// Which axis of a launch counts along which axis of the grid, and along which one backwards.
struct BlockOrder {
  std::array<int, 3> axes = {0, 1, 2};
  int backwards = -1;
};

struct BlockKernel {
  ir::Draft draft;   // of a kernel without a name
  BlockCosts costs;  // but for those that passes decide
  Dim3 grid, cluster;
  std::vector<LaunchArg> args;  // tensor maps are numbered from 0
  std::vector<TensorMap> tensor_maps;
  // Arguments whose memory a kernel in front fills: with finite_graph() (finite_parts.h) of the tensor.
  struct Watched {
    size_t arg;
    int32_t tensor;
  };
  std::vector<Watched> watched;
  ir::LaunchFacts facts;
  std::set<WgmmaShape> shapes;  // that it uses
  bool tf32 = false;            // a product of f32 operands is computed in it
};

// The dimension of operand `side` of a product that is summed over.
inline int summed_dim(int side, int rank) { return rank == 1 ? 0 : rank - (side == 0 ? 1 : 2); }

class BlockEmitter {
 public:
  // `first` of its program, and overlapping what the caller enqueued before: that may write inputs.
  BlockEmitter(const MuKernel& kernel, BlockProgram program, const std::vector<TensorPlace>& places,
               const KernelSchedule& schedule, bool first, const Target& target, bool approximate,
               Chooser& chooser, const BlockOrder& order = {});

  // UNSUPPORTED says which operator or size stands in the way; INVALID_ARGUMENT that the schedule's choices
  // are not for this block.
  Result<BlockKernel> run();

 private:
  // One dimension of a tile: `tile` away from ragged edges; `left` is what there is of it in this block (and
  // iteration), null if that is always all.
  struct TileDim {
    int64_t tile = 1;
    Symbol left;
  };
  // A tile in registers: element i of them, or half of element i / 2 if two 16-bit elements share a word.
  // Partial: the tile is what `reduction` makes of what these bits of lane and warp numbers tell apart.
  struct Array {
    Symbol registers;
    Spread spread;
    DType dtype = DType::f32;
    bool words = false;
    Stage scope = Stage::before;  // where it is defined
    unsigned partial_lanes = 0, partial_warps = 0;
    OpCode reduction = OpCode::reduce_sum;
    bool whole() const { return partial_lanes == 0 && partial_warps == 0; }
  };
  // A tile of a load in shared memory, one of several stages.
  struct StagedTile {
    BlockValue value;
    Symbol memory;  // where it lies in this iteration
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
  // which iterations take one after the other.
  struct CooperativeTile {
    StagedTile tile;
    Symbol buffer, previous_memory;
    int copies = 1;
    bool is_made = false;
  };
  // What a step k of matrix z of a product loads first.
  using LoadStep = std::function<void(Builder&, const Expr& z, const Expr& k)>;
  // An operand of tensor cores in words of two 16-bit elements or one of tf32: all of it, or, if there is a
  // `load`, what this brings for step k of matrix z, out of these shared buffers.
  struct Fragments {
    Symbol registers;
    LoadStep load;
  };
  // The product that is software-pipelined, if there is one, and the product of its iteration that is
  // waited for first; `group` are its instructions, `rest` is what an iteration does when it has landed.
  struct PipelinedProduct {
    BlockValue value = -1, behind = -1;
    Symbol sums, words;
    Body group, rest;
  };
  // A tile in shared memory that other blocks read.
  struct SharedTile {
    Symbol memory;
    DType dtype = DType::f32;
    Ints pitch;
    int64_t size = 1;
  };
  // How a product is taken. On tensor cores: whole fragments, in the order in which mma counts registers.
  struct MatmulPlan {
    bool tensor_cores = false;
    std::optional<FmaTile> fma;  // without them
    DType dtype = DType::f16;  // f32: tf32
    // Register bits within a word.
    int pair_bits() const { return is_packed_in_pairs(dtype) ? 1 : 0; }
    Spread a, b, d;
    bool low_rows = false;  // at most 8 rows: registers of the upper rows are not there in `a`
    int down = 1, across = 1, steps = 1, batch = 1;
    int batch_a = 1, batch_b = 1;  // 1 if the operand is the same for all
    unsigned partial_warps = 0;
    // By warpgroups: which operands tensor cores read from shared memory, which one gives the 64 rows of an
    // instruction, and how many columns it has.
    bool wgmma = false;
    std::array<bool, 2> shared = {false, false};
    int m_side = 0, columns = 0;
    std::array<bool, 2> cooperative = {false, false};  // the operands
  };

  // block_emitter.cc
  void find_extents();
  struct Interval {
    Expr first;
    Symbol left;  // null: the tile never reaches beyond the tensor
  };
  Interval interval(const BlockOp& op, int dim);
  Expr block_coordinate(int axis) const;
  void emit(BlockValue value);
  Symbol shared_buffer(Scalar type, int64_t bytes, SharedBuffer::Use use = SharedBuffer::Use::exchange,
                       int64_t alignment = 16);
  bool is_summed(BlockValue value) const;
  Status check_producer() const;
  int64_t tiles() const;
  ir::TileTurns draft_turns() const;
  Status check_persistent() const;
  bool keeps_groups_outstanding() const;
  // What passes get (core/kernel/passes); to be called last.
  ir::TileRing draft_ring();
  ir::TileLoop draft_loop();
  ir::Draft draft(bool loops);
  void add_parameters(BlockKernel& out);
  void fail(BlockValue value, const std::string& what);
  StepList& text(Stage stage) { return steps_[static_cast<size_t>(stage)]; }
  std::string fresh(const std::string& prefix) { return prefix + std::to_string(names_++); }
  Symbol fresh_registers(const std::string& prefix, Scalar type, int64_t count) {
    return ir::make_registers(fresh(prefix), type, count);
  }
  std::string base_name(BlockValue value) const;
  // A variable with the value of an expression that is the same all through the kernel.
  Expr define(const std::string& prefix, const Expr& expression);
  // Where statements for a value that is asked for now must stand.
  Stage place_of(BlockValue value) const {
    return program_.stage(value) == Stage::before ? Stage::before : now_;
  }

  // block_value.cc
  const Array* find(BlockValue value, const Spread& want) const;
  Value element(BlockValue value, const Spread& spread, const Expr& index);
  Value read(const Array& array, const Spread& want, const Expr& index) const;
  Value compute(BlockValue value, const Spread& spread, const Expr& index);
  Value shifted_exp(BlockValue value, const ExpArithmetic& exp, const Spread& spread, const Expr& index);
  void materialize(BlockValue value, const Spread& spread);
  // The spread in which operators ask for all of a value.
  const Spread& natural(BlockValue value) const { return layouts_.at(value); }
  // Of a value that is computed where it is asked for: for each of its dimensions that of operand number
  // `operand`, or -1.
  std::vector<int> asked_dims(BlockValue value, size_t operand) const;
  Spread blocked(BlockValue value, DType dtype, int inner) const;
  Spread shared_out(BlockValue value, DType dtype, int inner) const;
  BlockValue root_load(BlockValue value) const;
  // Whether register `index` is inside the tile; known to be true if every register is. Only dimensions in
  // `dims` (all if empty) are looked at, and edges of the block only if `edges`.
  Expr inside(BlockValue value, const Spread& spread, const Expr& index, bool edges = true,
              const std::vector<int>& dims = {});
  Expr coordinate(const Spread& spread, int dim, const Expr& index);
  Expr offset(const Spread& spread, const Ints& strides, const Expr& index);
  Expr register_offset(const Spread& spread, const Ints& strides, const Expr& index) const;

  // layout_question.cc
  class LayoutQuestion;
  Status choose_layouts();

  // block_exchange.cc
  Expr leaders(const Spread& spread) const;
  void finish_lanes(BlockValue value);
  SharedTile shared_tile(BlockValue value, DType dtype);
  int shared_vector(BlockValue value, const SharedTile& tile, Spread& spread) const;
  // Appends nothing: gives what writes the tile.
  Body put_shared(BlockValue value, const Array& have, SharedTile& tile);

  // block_masks.cc
  struct MaskedScores {
    BlockValue value = -1;
    double masked = 0;              // the number in place of a score
    TileTruth<Expr> tile = {0, 0};  // whether scores of the tile are none that are masked
    std::set<BlockValue> selects = {};
  };
  struct PassedOver {
    MaskedScores scores;
    BlockValue maximum = -1;
    std::set<BlockValue> tiles;  // whose numbers must be finite
  };
  // Of a condition over positions; nothing if that is not known.
  std::optional<TileTruth<Expr>> tile_truth(BlockValue condition) const;
  std::optional<MaskedScores> masked_scores(BlockValue value) const;
  bool vanishes(BlockValue value, BlockValue scores, BlockValue maximum, std::set<BlockValue>& tiles) const;
  std::optional<PassedOver> passed_over() const;
  Expr finite_part(Builder& to, BlockValue value) const;
  Expr known_finite(Builder& to, int32_t tensor);
  std::optional<ir::MaskedIterations> draft_masked();

  // block_convert.cc
  Result<Conversion> plan_move(const Array& from, const Spread& to, const Ints& shape) const;
  // What convert() will emit, in issue cycles of a warp; nothing if it cannot be done.
  std::optional<int64_t> move_cycles(BlockValue value, Array from, const Spread& want) const;
  Expr warp_and_rank() const;  // as to_layout numbers them
  void convert(BlockValue value, const Spread& want);
  void shuffle(const ShufflePlan& plan, const Array& from, const Array& to);
  void exchange(const SharedExchange& plan, const Array& from, const Array& to);
  // The number that terms over (the register `index`, lane, warp, block) give; what threads decide stands in
  // front.
  Expr address(const Layout& layout, std::string_view output, const Expr& index);

  // block_cluster.cc
  void publish(BlockValue value);
  void gather(BlockValue value, const Spread& want);
  Symbol cluster_factors(BlockValue value, const Spread& spread);
  Expr storing_block(const BlockOp& op, const Spread& spread) const;
  int64_t cluster_blocks() const { return kernel_.grid[static_cast<size_t>(Axis::cluster)]; }
  // Of the number of a block in its cluster; 0 if it is no power of two.
  int rank_bits() const {
    const int bits = bits_for(cluster_blocks());
    return cluster_blocks() == int64_t{1} << bits ? bits : 0;
  }

  // block_load.cc
  void load(BlockValue value, const Spread& spread);
  void load_direct(BlockValue value, const Spread& spread);
  const StagedTile& stage_tile(BlockValue value);
  void load_staged(BlockValue value, const Spread& spread);
  std::vector<CoordBit> copy_order(const StagedTile& tile, int inner) const;
  Body stage_copy(const StagedTile& tile);
  static std::vector<int> beyond_tile(const StagedTile& tile, const Spread& spread);
  int vector_bits(BlockValue value, const Spread& spread, int inner) const;
  int inner_dim(int32_t tensor, const Ints& tile) const;
  // The order in which registers are handed over, and what is stored once lanes have exchanged 2^`exchanged` words each;
  // 2^`vector` elements in an access.
  struct StoreForm {
    Spread registers, stored;
    int vector = 0, exchanged = 0;
  };
  static constexpr int kMostExchangedBits = 2;  // four words are one access
  StoreForm store_form(BlockValue value, Spread spread) const;
  void store(BlockValue value);
  Symbol pointer(int32_t tensor, const TensorPlace& place);
  // A pointer to the tensor's first element of the tile, defined in `to`.
  Symbol tile_pointer(Builder& to, const std::string& prefix, BlockValue value, const TensorPlace& place,
                      int64_t begin = 0);
  // What a tile is loaded from: its tensor, or pieces of it, which lie in [begin, end) of the dimension axis_of().
  struct TilePiece {
    const TensorPlace* place;
    Symbol from;  // where the tile would begin, were it all in this piece
    int64_t begin, end;
  };
  std::vector<TilePiece> tile_pieces(Builder& to, BlockValue value);
  int axis_of(BlockValue value) const;
  bool pieces_hold_tiles(BlockValue value, const std::vector<TilePiece>& pieces) const;
  // Calls `read` for the piece that the chunk is in: once, or under a condition for each piece.
  void read_pieces(Builder& to, BlockValue value, const Spread& chunks, const Expr& chunk,
                   const std::vector<TilePiece>& pieces,
                   const std::function<void(Builder&, const TilePiece&)>& read);
  bool is_staged(BlockValue value) const;
  bool prefetches() const { return schedule_.prefetch && schedule_.stages == 0; }
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
  Ints starts_in_memory(const StagedTile& tile, const std::vector<int>& dims) const;
  std::optional<TensorMap> tensor_map(const StagedTile& tile, const std::vector<int>& dims) const;
  bool bring_by_tma(StagedTile& tile);
  // Whether nobody writes it while the kernel runs.
  bool is_settled(const TensorPlace& place) const;
  Body& copies_of(const TensorPlace& place, ir::Copies& copies) const;
  bool is_shared_by_blocks(const BlockOp& op) const;
  Expr place_in(const StagedTile& tile, const Spread& spread, const Expr& index, bool swizzled = true);
  Expr thread_place(const StagedTile& tile, const Spread& spread, bool swizzled = true);
  Expr place_from(const Expr& base, const StagedTile& tile, const Spread& spread, const Expr& index,
                  bool swizzled = true) const;

  // block_matmul.cc
  void plan_matmuls();
  MatmulPlan plan_matmul(BlockValue value) const;
  bool plan_batch(BlockValue value, MatmulPlan& plan) const;
  // `load(builder, z, k)` for every step of every matrix, `write(builder, z, k, m, n)` for every fragment.
  using WriteFragment =
      std::function<void(Builder&, const Expr& z, const Expr& k, const Expr& m, const Expr& n)>;
  static void matmul_loops(Builder& to, const MatmulPlan& plan, const LoadStep& load,
                           const WriteFragment& write);
  void matmul(BlockValue value, const Symbol& sums, Stage stage);
  Symbol shared_copy(BlockValue value);
  Body write_elements(BlockValue value, const Symbol& to, const Expr& start, const Ints& strides);
  void read_elements(BlockValue value, const Symbol& from, const Expr& start, const Ints& strides,
                     Stage place);

  // block_fma.cc
  int shared_inner(BlockValue operand, int side, bool staged) const;
  bool is_turned(BlockValue operand, int side) const;
  MatmulPlan plan_fma(BlockValue value) const;
  void note_fma_operands(BlockValue value, const MatmulPlan& plan);
  const StagedTile& fma_operand(BlockValue operand, bool staged, DType dtype);
  void fma(BlockValue value, const Symbol& sums, Stage stage);
  void free_of_vectors(const Symbol& sums);

  // block_wgmma.cc
  bool is_panel_operand(BlockValue value, DType dtype) const;
  bool is_cooperative_panel(BlockValue value, DType dtype) const;
  bool plan_wgmma(BlockValue value, MatmulPlan& plan) const;
  void note_panels(BlockValue value, const MatmulPlan& plan);
  // `previous`: of the iteration before.
  Expr panel_operand(BlockValue value, const MatmulPlan& plan, int side, const Expr& index, bool previous);
  void wgmma(BlockValue value, const Symbol& sums, Stage stage);
  Body wgmma_group(BlockValue value, const Symbol& sums, const Symbol& words, bool previous);

  // block_pipelined.cc
  void find_pipelined_product();
  Body pipelined_group();
  void finish_pipelined_iteration(BlockValue accumulator, const Array& sums);
  BlockValue pipelined_n_operand() const;
  ir::PipelinedProduct draft_pipelined();

  // block_fragments.cc
  // False, and nothing is written, if rows of the tile are not rows of matrices.
  bool read_matrices(Builder& out, const StagedTile& tile, DType dtype, const Spread& spread,
                     const Symbol& to, int words, const Expr& skipped);
  bool is_cooperative(BlockValue value, DType dtype, const Spread& fragments) const;
  Spread cooperative_spread(BlockValue value, DType dtype) const;
  Spread operand_spread(BlockValue product, size_t side) const;
  CooperativeTile& cooperative_tile(BlockValue product, int side);
  const CooperativeTile& make_cooperatively(BlockValue product, int side);
  Expr word_of(BlockValue value, const Spread& spread, DType dtype, int summed_dim, const Expr& index);
  Symbol packed(BlockValue value, const Spread& spread, DType dtype, int summed_dim);
  Expr rearranged_word(const Array& array, const Spread& spread, const Expr& w) const;
  Fragments fragments(BlockValue value, int side);
  const StagedTile* matrices_of(BlockValue value, DType dtype);

  // block_move.cc
  void move(BlockValue value);
  void concatenate_iterations(BlockValue value);

  // block_reduce.cc
  void reduce(BlockValue value);
  // Reduces the operand of reduction `value` into `registers`, which are there already; gives the array.
  Array reduce_into(BlockValue value, const Symbol& registers, Stage stage);
  Array reduced_array(BlockValue value, const Spread& from) const;
  void accumulate(BlockValue value);
  bool is_shift(BlockValue value) const;
  // Whether the accumulator takes over what its operand has in parts.
  bool keeps_parts(BlockValue value) const;
  Body rescale(BlockValue value, const Array& sums);
  // Declares the registers and starts them with the identity of the reduction.
  static Body started(const Array& array);
  void shift(BlockValue value);

  const MuKernel& kernel_;
  BlockProgram program_;
  const std::vector<TensorPlace>& places_;
  const KernelSchedule& schedule_;
  const bool first_;
  const Target& target_;
  Chooser& chooser_;
  const BlockOrder order_;
  bool approximate_;  // functions exact to some 2^-21: what 16-bit outputs do not show
  int warp_bits_ = 0,
      row_warp_bits_ = 0;  // of warps that have rows of their own, where there are no products

  Status status_;
  Stage now_ = Stage::before;
  int names_ = 0;
  std::array<StepList, 3> steps_;  // before, in and after the loop
  std::vector<SharedBuffer> shared_;
  int64_t conversion_cycles_ = 0;
  // Once; in every iteration, wherever its tiles are named; before the loop; loads of an iteration into registers
  // and into shared memory, and by TMA; what was loaded for the next iteration becomes that of this one.
  Body prologue_, iteration_, declared_, direct_fetch_, take_;
  ir::Copies staged_fetch_, tma_fetch_;
  std::map<std::string, Symbol> defined_;  // by the text of the expression
  std::map<std::string, Interval> intervals_;
  Symbol shared_memory_, ring_, full_, empty_, arrived_, iteration_number_, block_x_;
  std::vector<Symbol> tile_axes_;  // places of the tile where blocks stay
  std::vector<std::vector<TileDim>> dims_;
  std::vector<std::vector<Expr>> firsts_;  // of loads and stores: where the tile begins
  std::vector<std::vector<Array>> arrays_;
  std::map<BlockValue, Spread> demands_;  // of matrix products
  std::map<BlockValue, Spread> layouts_;  // as chosen
  std::set<BlockValue> in_parts_;         // some of the tiles that these are made of, element by element
  int64_t layout_cycles_ = 0, planned_conversion_cycles_ = 0;
  std::map<BlockValue, MatmulPlan> plans_;
  std::map<BlockValue, BlockValue> factors_;  // max accumulator -> the value exp(old - new)
  std::map<BlockValue, StagedTile> staged_;
  // Operands by how products take them: their dtype, whether by wgmma, and the dimension that is summed over.
  std::map<std::tuple<BlockValue, DType, bool, int>, CooperativeTile> cooperative_tiles_;
  std::map<std::pair<BlockValue, Stage>, StagedTile> fma_tiles_;
  std::map<BlockValue, int> turned_;  // loads whose tiles have neighbours along another dimension than memory
  std::map<std::string, Symbol> packed_;
  std::map<BlockValue, SharedTile> published_;  // what the other blocks of the cluster read
  std::map<std::string, Symbol> cluster_factors_;
  size_t last_gather_ = 0;  // number of steps behind which nothing is read from them any more
  struct TensorParameter {
    const TensorPlace* place;  // of places_, or one of its pieces
    Symbol symbol;
  };
  std::vector<TensorParameter> parameters_;
  std::vector<TensorMap> tensor_maps_;
  std::vector<Symbol> map_symbols_;
  std::vector<int32_t> map_tensors_;
  std::map<BlockValue, Ints> panels_;  // operands in shared memory, with the least extents of their tiles
  bool copies_panels_ = false;         // some of these come by cp.async
  std::set<WgmmaShape> shapes_;
  PipelinedProduct pipelined_;
  std::optional<PassedOver> masks_;  // with intervals: what they mask
  Symbol unmasked_;                  // and what is true where they mask nothing
  std::set<Symbol> loop_lefts_;              // what is left of dimensions that the loop cuts
  Expr whole_iterations_ = ir::truth(true);  // where an iteration's tiles are all there
  // By tensor: where a kernel in front says which parts of it are finite.
  std::map<int32_t, TensorPlace> watched_;
  std::vector<Symbol> outstanding_;  // sums for which an iteration waits at its end
  int64_t tma_bytes_ = 0;          // of an iteration
};

}  // namespace quern
