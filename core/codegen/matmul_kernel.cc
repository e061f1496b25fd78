// Kernels of matrix products: a tile of device/matmul.cuh a block, then what is fused behind it, element by
// element.
#include <algorithm>
#include <cmath>

#include "core/base/integers.h"
#include "core/codegen/baseline_kernel.h"
#include "core/codegen/tiles.h"
#include "core/schedule/block_costs.h"

namespace quern {

using ir::Expr;
using ir::Scalar;

namespace {

// Warps of an SM that leave each thread registers for so many sums, and as many again as ptxas needs to keep
// operands and sums in different banks.
int fma_warps(int sums) { return sums >= 128 ? 8 : sums >= 64 ? 12 : 16; }

// For the model. Cycles at a barrier; instructions for a chunk of a tile that is copied; copies under way
// that go through registers; columns of sums that a thread of a SimtTile has; registers of a thread besides
// its sums.
constexpr double kTileBarrierCycles = 60, kChunkIssue = 10, kUnrolled = 4, kSimtAcross = 4,
                 kMatmulRegisters = 48;

// How an operand is read: from `view`, `vector` elements at once along its columns or its rows.
struct Operand {
  MatrixView view;
  Index base;  // of the view, in the kernel's space
  int64_t rows = 0, columns = 0;
  bool columns_inner = true;
  int vector = 1;
  Slot slot;
};

class MatmulEmitter {
 public:
  MatmulEmitter(const BaselineProgram& program, const Kernel& kernel, const KernelTrace& trace, bool wide)
      : program_(program),
        graph_(program.graph),
        kernel_(kernel),
        trace_(trace),
        storage_(program.storage),
        writer_(graph_, space_, storage_, wide) {
    const Node& product = graph_.node(kernel.product);
    rows_ = kernel.domain[kernel.domain.size() - 2];
    columns_ = kernel.domain.back();
    batch_ = kernel.points() / (rows_ * columns_);
    unit_ = product_unit(graph_.node(product.operands[0]).type.dtype,
                         graph_.node(product.operands[1]).type.dtype);
    tile_ = choose_tile(rows_, columns_, unit_);
    vector_ = choose_vector();
    matrix_ = space_.variable("z", batch_);
    a_ = operand(product.operands[0]);
    b_ = operand(product.operands[1]);
    place_epilogue();
  }

  bool needs_wide() const { return writer_.needs_wide(); }

  BaselineKernel run() {
    BaselineKernel out;
    out.kind = "matmul";
    out.kernel.threads = tile_.threads();
    if (unit_ == ProductUnit::fma) out.kernel.min_blocks = fma_warps(tile_.down * tile_.across) / (tile_.threads() / 32);
    writer_.begin_pass();
    writer_.measure(epilogue_.position);
    const Expr a = operand_expr(a_), b = operand_expr(b_);
    ir::Builder to(out.kernel.body);
    prologue(to, out);
    to.add(std::move(writer_.body(Scope::kernel)));
    const ir::Symbol shared = ir::make_shared("shared", Scalar::byte, 0);
    to.add(ir::Declare{shared, false, ir::call(ir::Function::tile_bytes, Scalar::i32, {}, {tile_type()})});
    to.let(sums_, ir::call(ir::Function::multiply_tile, sums_->type,
                           {ir::address(shared, 0), a, b, row_name_, column_name_}, {tile_type()}));
    epilogue(to);
    out.kernel.parameters = writer_.parameters(program_.overlapped);
    out.args = writer_.arguments();
    out.work = work();
    return out;
  }

 private:
  bool uses_mma() const { return unit_ == ProductUnit::mma; }

  void place_epilogue() {
    row_ = space_.variable("m", rows_);
    column_index_ = space_.variable("n", columns_ / vector_);
    element_ = space_.variable("v", vector_);
    const Index column =
        vector_ == 1 ? column_index_ : space_.add(space_.scale(column_index_, vector_), element_);
    const Index position =
        space_.add(space_.add(space_.scale(matrix_, rows_ * columns_), space_.scale(row_, columns_)), column);
    epilogue_ = trace_.place(space_, position, Index(0));
    writer_.set_scopes(space_.add(row_, column_index_), element_, vector_);
    writer_.set_items(epilogue_.items);
    const Scalar type = ir::scalar_of(register_type(graph_.node(kernel_.product).type.dtype));
    sums_ = ir::make_memory("sums", ir::Space::shared, type);
    product_ = ir::make_pointer("product", sums_, type);
    writer_.hold(kernel_.product,
                 ir::element(product_, vector_ == 1 ? Expr(0) : Expr(writer_.variable("v"))));
  }

  Operand operand(ValueId value) {
    const auto view = view_matrix(graph_, program_.partition.is_root, value, kernel_.domain);
    check(view.has_value(), "an operand of a matrix product is no matrix");
    Operand out;
    out.view = *view;
    std::map<AtomId, Index> values;
    if (!view->batch.is_constant()) values[view->batch.terms[0].atom] = matrix_;
    out.base = space_.import(view->space, view->base, values);
    const Ints& shape = graph_.node(value).type.shape;
    out.rows = shape[shape.size() - 2];
    out.columns = shape.back();
    out.slot = storage_.source(view->source, uses_mma() ? Width::narrow : Width::wide);
    if (unit_ == ProductUnit::simt) return out;
    const int by_column =
        vector_along(out, out.view.column_stride, out.columns, out.view.row_stride, out.rows);
    const int by_row = vector_along(out, out.view.row_stride, out.rows, out.view.column_stride, out.columns);
    out.columns_inner = by_column > by_row || (by_column == by_row && out.view.row_stride != 1);
    out.vector = std::max(by_column, by_row);
    return out;
  }

  // The most elements, up to 16 bytes, that can be copied at once along a dimension: neighbours in memory,
  // and every chunk aligned and either inside the matrix or outside.
  int vector_along(const Operand& operand, int64_t stride, int64_t extent, int64_t other_stride,
                   int64_t other_extent) {
    if (stride != 1) return 1;
    int vector = static_cast<int>(16 / dtype_size(operand.slot.dtype));
    while (vector > 1 && (extent % vector != 0 || (other_extent > 1 && other_stride % vector != 0) ||
                          !space_.is_multiple(operand.base, vector)))
      vector /= 2;
    return vector;
  }

  Expr operand_expr(const Operand& operand) {
    const ir::Symbol& memory = writer_.pointer(operand.slot, false);
    return ir::call(ir::Function::strided_matrix, memory->type,
                    {ir::address(memory, writer_.index(operand.base)), operand.rows, operand.columns,
                     operand.view.row_stride, operand.view.column_stride},
                    {memory->type});
  }

  ir::TemplateArg tile_type() const {
    if (unit_ == ProductUnit::fma)
      return {"FmaTile",
              {ir::Scalar::f32, tile_.rows, tile_.columns, tile_.depth, tile_.threads(), tile_.down,
               tile_.across, tile_.stages, a_.vector, a_.columns_inner, b_.vector, b_.columns_inner}};
    if (unit_ == ProductUnit::simt)
      return {"SimtTile", {sums_->type, tile_.rows, tile_.columns, tile_.depth, tile_.threads()}};
    return {"MmaTile",
            {ir::scalar_of(a_.slot.dtype), tile_.rows, tile_.columns, tile_.depth, tile_.warp_rows,
             tile_.warp_columns, tile_.stages, a_.vector, a_.columns_inner, b_.vector, b_.columns_inner}};
  }

  // The block's matrix and the first row and column of its tile.
  void prologue(ir::Builder& to, BaselineKernel& out) {
    const int64_t down = divide_up(rows_, tile_.rows), across = divide_up(columns_, tile_.columns);
    const BlockGrid blocks = block_grid(batch_ * down * across);
    out.grid = blocks.grid;
    const Scalar type = writer_.index_type();
    row_name_ = ir::make_variable("row", type);
    column_name_ = ir::make_variable("column", type);
    const Expr block = to.let(ir::make_variable("block", type), ir::cast(blocks.number, type));
    auto first = [](const Expr& number, int64_t extent, int size) {
      return extent == 1 ? Expr(0) : number % extent * size;
    };
    to.let(column_name_, first(block, across, tile_.columns));
    to.let(row_name_, first(block / across, down, tile_.rows));
    if (batch_ > 1) to.let(writer_.variable("z"), block / (across * down));
    if (!blocks.exact)
      to.when(less_equal(batch_ * down * across, block),
              [](ir::Builder& beyond) { beyond.add(ir::Return{}); });
  }

  // As many columns as an access of 16 bytes takes of the widest value read or made.
  int choose_vector() const {
    size_t widest = 2;
    for (const auto& [value, role] : kernel_.makes)
      for (const Slot& slot : storage_.targets(value)) widest = std::max(widest, dtype_size(slot.dtype));
    for (ValueId value : kernel_.reads)
      widest = std::max(widest, dtype_size(storage_.source(value, Width::wide).dtype));
    int vector = static_cast<int>(16 / widest);
    while (columns_ % vector != 0) vector /= 2;
    return vector;
  }

  // Only where tiles stick out of the matrix.
  Expr outside() {
    Expr out = ir::truth(false);
    if (rows_ % tile_.rows != 0) out = less_equal(rows_, writer_.variable("m"));
    if (columns_ % tile_.columns != 0)
      out = either(out, less_equal(columns_ / vector_, writer_.variable("n")));
    return out;
  }

  // Every thread takes `vector` neighbouring sums of the tile at a time.
  void epilogue(ir::Builder& to) {
    writer_.begin_pass();
    for (const auto& [value, role] : kernel_.makes)
      for (const Slot& slot : storage_.targets(value))
        writer_.store(trace_.stored(value), slot, epilogue_.position);
    const int across = tile_.columns / vector_;
    ir::For loop{ir::make_variable("e", Scalar::i32),
                 ir::thread_index(),
                 tile_.rows * across,
                 ir::Unroll::none,
                 {},
                 tile_.threads()};
    ir::Builder each(loop.body);
    const Expr e(loop.counter);
    each.let(writer_.variable("m"), Expr(row_name_) + e / across);
    each.let(writer_.variable("n"), Expr(column_name_) / vector_ + e % across);
    if (const Expr beyond = outside(); !beyond.is_number(0))
      each.when(beyond, [](ir::Builder& skip) { skip.add(ir::Continue{}); });
    const Expr pitch = ir::call(ir::Function::tile_pitch, Scalar::i32, {}, {tile_type()});
    each.let(product_, ir::address(sums_, e / across * pitch + e % across * vector_));
    each.add(std::move(writer_.body(Scope::kernel)));  // of a 1 x 1 product nothing depends on m or n
    each.add(std::move(writer_.body(Scope::loop)));
    if (!writer_.body(Scope::element).empty())
      each.add(ir::For{writer_.variable("v"), 0, vector_, ir::Unroll::full,
                       std::move(writer_.body(Scope::element))});
    each.add(writer_.after());
    to.add(std::move(loop));
  }

  LaunchWork work() {
    KernelSchedule schedule;
    schedule.warps = {1, 1, tile_.threads() / 32};
    schedule.stages = unit_ == ProductUnit::simt ? 0 : tile_.stages;
    schedule.prefetch = false;
    schedule.pdl = program_.overlapped;
    WorkCounter counter(space_, column_index_, element_, vector_);
    const double steps = static_cast<double>(tile_.rows * tile_.columns / vector_ / tile_.threads());
    for (Scope scope : {Scope::kernel, Scope::loop, Scope::element})
      counter.add(writer_.work(scope), steps, scope == Scope::element, tile_.threads() / 32);
    for (const Operand* operand : {&a_, &b_}) {
      const double matrices = space_.uses(operand->base) == 0 ? 1 : static_cast<double>(batch_);
      counter.touch(operand->slot, false, space_.smallest(operand->base), last_of(*operand),
                    matrices * static_cast<double>(operand->rows * operand->columns));
    }
    BlockWork& block = counter.block();
    block.blocks =
        static_cast<double>(batch_ * divide_up(rows_, tile_.rows) * divide_up(columns_, tile_.columns));
    block.trip_count = divide_up(a_.columns, tile_.depth);
    count_tile(block);
    return counter.take(schedule);
  }

  int64_t last_of(const Operand& operand) const {
    return space_.largest(operand.base) + (operand.rows - 1) * operand.view.row_stride +
           (operand.columns - 1) * operand.view.column_stride;
  }

  // What device/matmul.cuh does in an iteration, and with the sums.
  void count_tile(BlockWork& block) const {
    const double warps = tile_.threads() / 32, sums = tile_.rows * tile_.columns,
                 products = sums * tile_.depth;
    count_copy(block, a_, std::min<int64_t>(tile_.rows, rows_), tile_.depth);
    count_copy(block, b_, tile_.depth, std::min<int64_t>(tile_.columns, columns_));
    block.loop.chain += kTileBarrierCycles;
    block.once.shared_bytes += sums * 4 * 2;
    block.once.chain += 2 * kTileBarrierCycles;
    block.registers = kMatmulRegisters + sums / tile_.threads() * (unit_ == ProductUnit::fma ? 1.3 : 1);
    if (uses_mma()) {
      const double height = tile_.rows / tile_.warp_rows, width = tile_.columns / tile_.warp_columns;
      block.loop.mma = products / (16 * 8 * 16);
      block.loop.shared_bytes += warps * (height + width) * tile_.depth * 2;
      block.loop.slots += block.loop.mma + warps * (height + width) * tile_.depth / 256;
      block.loop_room = (tile_.rows * (tile_.depth + 8) + tile_.depth * (tile_.columns + 8)) * 2;
      block.exchange_bytes = tile_.rows * (tile_.columns + 8) * 4;
      return;
    }
    if (unit_ == ProductUnit::fma) {
      // Of one step along the inner dimension, every warp: quads of rows and of columns.
      const double steps = tile_.depth * warps, loads = (tile_.down + tile_.across) / 4.0;
      block.loop.fma += steps * (tile_.down * tile_.across * kFmaCycles + loads);
      block.loop.shared_bytes += steps * loads * kFmaLoadBytes;
      block.loop_room = (tile_.rows + tile_.columns + 8) * tile_.depth * 4;
      block.exchange_bytes = tile_.rows * (tile_.columns + 4) * 4;
      return;
    }
    // Of one step along the inner dimension, every thread: its rows one by one, its columns at once.
    const double down = sums / tile_.threads() / kSimtAcross, steps = tile_.depth * warps;
    block.loop.slots += steps * (down * kSimtAcross + down + 1);
    block.loop.shared_bytes += steps * 32 * (down * 4 + kSimtAcross * 4);
    block.loop.chain += kTileBarrierCycles;
    block.loop.round_trips += 1;
    block.exchange_bytes = sums * 4;
  }

  // A tile of an operand, of which `rows` times `columns` are inside the matrix: chunk by chunk, each at an
  // address of its own.
  void count_copy(BlockWork& block, const Operand& operand, int64_t rows, int64_t columns) const {
    const double size = static_cast<double>(dtype_size(operand.slot.dtype));
    const bool by_columns = unit_ != ProductUnit::simt ? operand.columns_inner : operand.view.row_stride != 1;
    const double outer = static_cast<double>(by_columns ? rows : columns),
                 inner = static_cast<double>(by_columns ? columns : rows);
    const bool neighbours = (by_columns ? operand.view.column_stride : operand.view.row_stride) == 1;
    // Products without tensor cores have tiles along rows and columns.
    const bool turned = unit_ == ProductUnit::fma && by_columns == (&operand == &a_);
    const double chunks = outer * inner / (turned ? 1 : operand.vector);
    const double bytes = outer * (neighbours ? std::ceil(inner * size / 32) : inner) * 32;
    block.loop_bytes += outer * inner * size;
    block.loop_l2 += bytes;
    block.loop.slots += chunks / 32 * kChunkIssue;
    block.loop.shared_bytes += std::max(bytes, chunks * 4) + outer * inner * 4;
    // Single elements go through registers, a few at a time.
    if (operand.vector == 1 && unit_ != ProductUnit::fma)
      block.loop.round_trips += chunks / tile_.threads() / kUnrolled;
  }

  const BaselineProgram& program_;
  const Graph& graph_;
  const Kernel& kernel_;
  const KernelTrace& trace_;
  const Storage& storage_;
  IndexSpace space_;
  KernelWriter writer_;
  int64_t rows_ = 0, columns_ = 0, batch_ = 0;
  ProductUnit unit_ = ProductUnit::mma;
  Tile tile_;
  int vector_ = 1;  // neighbouring columns stored at once
  ir::Symbol sums_, product_, row_name_, column_name_;
  Index matrix_, row_, column_index_, element_;
  Operand a_, b_;
  KernelTrace::Placed epilogue_;
};

}  // namespace

BaselineKernel emit_matmul(const BaselineProgram& program, const Kernel& kernel) {
  const KernelTrace trace(program.graph, kernel, program.partition.is_root);
  for (bool wide : {false, true}) {
    MatmulEmitter emitter(program, kernel, trace, wide);
    BaselineKernel code = emitter.run();
    if (!emitter.needs_wide()) return code;
  }
  fatal(__FILE__, __LINE__, "64-bit indices do not suffice");
}

}  // namespace quern
