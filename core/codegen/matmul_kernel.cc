// Kernels of matrix products: a tile of device/matmul.cuh a block, then what is fused behind it, element by
// element.
#include <algorithm>
#include <cmath>

#include "core/base/integers.h"
#include "core/codegen/kernel_text.h"
#include "core/codegen/tiles.h"

namespace quern {

namespace {

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
  MatmulEmitter(const Graph& graph, const Kernel& kernel, const KernelTrace& trace,
                const Partition& partition, const Storage& storage, bool wide)
      : graph_(graph),
        kernel_(kernel),
        trace_(trace),
        storage_(storage),
        writer_(graph, space_, storage, wide) {
    const Node& product = graph.node(kernel.product);
    rows_ = kernel.domain[kernel.domain.size() - 2];
    columns_ = kernel.domain.back();
    batch_ = kernel.points() / (rows_ * columns_);
    tensor_cores_ = uses_tensor_cores(graph.node(product.operands[0]).type.dtype,
                                      graph.node(product.operands[1]).type.dtype);
    tile_ = choose_tile(rows_, columns_, tensor_cores_);
    vector_ = choose_vector();
    matrix_ = space_.variable("z", batch_);
    a_ = operand(partition, product.operands[0]);
    b_ = operand(partition, product.operands[1]);
    place_epilogue();
  }

  bool needs_wide() const { return writer_.needs_wide(); }

  KernelText run() {
    KernelText out;
    out.kind = "matmul";
    out.threads = tile_.threads();
    writer_.begin_pass();
    writer_.measure(epilogue_.position);
    const std::string a = operand_text(a_), b = operand_text(b_);
    const std::string bases = writer_.text(Scope::kernel);
    out.body = prologue(out) + bases + "using Tile = " + tile_text() + ";\n" +
               "__shared__ __align__(16) unsigned char shared[Tile::kSharedBytes];\n" + "const " +
               sum_type() + "* sums = Tile::multiply(shared, " + a + ", " + b + ", row, column);\n" +
               epilogue();
    out.signature = "(" + writer_.parameter_list() + ")";
    out.args = writer_.arguments();
    out.work = work();
    return out;
  }

 private:
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
    writer_.hold(kernel_.product, vector_ == 1 ? "product[0]" : "product[v]");
  }

  Operand operand(const Partition& partition, ValueId value) {
    const auto view = view_matrix(graph_, partition.is_root, value, kernel_.domain);
    check(view.has_value(), "an operand of a matrix product is no matrix");
    Operand out;
    out.view = *view;
    std::map<AtomId, Index> values;
    if (!view->batch.is_constant()) values[view->batch.terms[0].atom] = matrix_;
    out.base = space_.import(view->space, view->base, values);
    const Ints& shape = graph_.node(value).type.shape;
    out.rows = shape[shape.size() - 2];
    out.columns = shape.back();
    out.slot = storage_.source(view->source, tensor_cores_ ? Width::narrow : Width::wide);
    if (!tensor_cores_) return out;
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
    int vector = 8;
    while (vector > 1 && (extent % vector != 0 || (other_extent > 1 && other_stride % vector != 0) ||
                          !space_.is_multiple(operand.base, vector)))
      vector /= 2;
    return vector;
  }

  std::string operand_text(const Operand& operand) {
    const std::string memory = writer_.pointer(operand.slot, false), base = writer_.index(operand.base);
    std::string out = "StridedMatrix<" + cuda_type(operand.slot.dtype) + ">{" + memory;
    if (base != "0") out += " + (" + base + ")";
    for (int64_t number :
         {operand.rows, operand.columns, operand.view.row_stride, operand.view.column_stride})
      out += ", " + std::to_string(number);
    return out + "}";
  }

  std::string tile_text() const {
    const std::string sizes = std::to_string(tile_.rows) + ", " + std::to_string(tile_.columns) + ", " +
                              std::to_string(tile_.depth);
    if (!tensor_cores_)
      return "SimtTile<" + cuda_type(register_type(graph_.node(kernel_.product).type.dtype)) + ", " + sizes +
             ", " + std::to_string(tile_.threads()) + ">";
    auto access = [](const Operand& operand) {
      return std::to_string(operand.vector) + (operand.columns_inner ? ", true" : ", false");
    };
    return "MmaTile<" + cuda_type(a_.slot.dtype) + ", " + sizes + ", " + std::to_string(tile_.warp_rows) +
           ", " + std::to_string(tile_.warp_columns) + ", " + std::to_string(tile_.stages) + ", " +
           access(a_) + ", " + access(b_) + ">";
  }

  // The block's matrix and the first row and column of its tile.
  std::string prologue(KernelText& out) const {
    const int64_t down = divide_up(rows_, tile_.rows), across = divide_up(columns_, tile_.columns);
    const BlockGrid blocks = block_grid(batch_ * down * across);
    out.grid = blocks.grid;
    const std::string type = writer_.index_type();
    auto line = [&](const char* name, const std::string& value) {
      return "const " + type + " " + name + " = " + value + ";\n";
    };
    auto divided = [](const std::string& text, int64_t by) {
      return by == 1 ? text : text + " / " + std::to_string(by);
    };
    auto times = [](const std::string& text, int64_t extent, int size) {
      return extent == 1 ? std::string("0")
                         : text + " % " + std::to_string(extent) + " * " + std::to_string(size);
    };
    std::string lines = line("block", blocks.number);
    lines += line("column", times("block", across, tile_.columns));
    lines += line("row", times(divided("block", across), down, tile_.rows));
    if (batch_ > 1) lines += line("z", divided("block", across * down));
    if (!blocks.exact) lines += "if (block >= " + std::to_string(batch_ * down * across) + ") return;\n";
    return lines;
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
  std::string edge_guard() const {
    std::string outside;
    if (rows_ % tile_.rows != 0) outside = "m >= " + std::to_string(rows_);
    if (columns_ % tile_.columns != 0)
      outside += (outside.empty() ? "n >= " : " || n >= ") + std::to_string(columns_ / vector_);
    return outside.empty() ? "" : "if (" + outside + ") continue;\n";
  }

  std::string sum_type() const { return cuda_type(register_type(graph_.node(kernel_.product).type.dtype)); }

  // Every thread takes `vector` neighbouring sums of the tile at a time.
  std::string epilogue() {
    writer_.begin_pass();
    for (const auto& [value, role] : kernel_.makes)
      for (const Slot& slot : storage_.targets(value))
        writer_.store(trace_.stored(value), slot, epilogue_.position);
    const std::string vector = std::to_string(vector_), across = std::to_string(tile_.columns / vector_);
    const std::string type = writer_.index_type(), at = "e / " + across + " * Tile::kPitch + e % " + across;
    std::string lines = "const " + type + " m = row + e / " + across + ", n = ";
    lines += (vector_ == 1 ? "column" : "column / " + vector) + " + e % " + across + ";\n";
    lines += edge_guard();
    lines +=
        "const " + sum_type() + "* product = sums + " + at + (vector_ == 1 ? "" : " * " + vector) + ";\n";
    lines += writer_.text(Scope::kernel) +
             writer_.text(Scope::loop);  // of a 1 x 1 product nothing depends on m or n
    if (!writer_.text(Scope::element).empty())
      lines += "#pragma unroll\nfor (int v = 0; v < " + vector + "; ++v) {\n" +
               indent(writer_.text(Scope::element), 2) + "}\n";
    lines += writer_.after();
    const std::string count = std::to_string(tile_.rows * tile_.columns / vector_),
                      threads = std::to_string(tile_.threads());
    return "#pragma unroll 1\nfor (int e = threadIdx.x; e < " + count + "; e += " + threads + ") {\n" +
           indent(lines, 2) + "}\n";
  }

  LaunchWork work() {
    KernelSchedule schedule;
    schedule.grid[0] = batch_ * divide_up(rows_, tile_.rows) * divide_up(columns_, tile_.columns);
    schedule.warps = {1, 1, tile_.threads() / 32};
    schedule.turns = divide_up(a_.columns, tile_.depth);
    schedule.stages = tensor_cores_ ? tile_.stages : 0;
    schedule.ahead = false;
    WorkCounter counter(space_, column_index_, element_, vector_);
    const double steps = static_cast<double>(tile_.rows * tile_.columns / vector_ / tile_.threads());
    for (Scope scope : {Scope::kernel, Scope::loop, Scope::element})
      counter.add(writer_.work(scope), steps, scope == Scope::element, tile_.threads() / 32);
    for (const Operand* operand : {&a_, &b_}) {
      const double matrices = space_.uses(operand->base) == 0 ? 1 : static_cast<double>(batch_);
      counter.touch(operand->slot, false, space_.smallest(operand->base), last_of(*operand),
                    matrices * static_cast<double>(operand->rows * operand->columns));
    }
    count_tile(counter.block());
    return counter.take(schedule);
  }

  int64_t last_of(const Operand& operand) const {
    return space_.largest(operand.base) + (operand.rows - 1) * operand.view.row_stride +
           (operand.columns - 1) * operand.view.column_stride;
  }

  // What device/matmul.cuh does in a turn, and with the sums.
  void count_tile(BlockWork& block) const {
    const double warps = tile_.threads() / 32, sums = tile_.rows * tile_.columns,
                 products = sums * tile_.depth;
    count_copy(block, a_, std::min<int64_t>(tile_.rows, rows_), tile_.depth);
    count_copy(block, b_, tile_.depth, std::min<int64_t>(tile_.columns, columns_));
    block.loop.chain += kTileBarrierCycles;
    block.once.shared_bytes += sums * 4 * 2;
    block.once.chain += 2 * kTileBarrierCycles;
    block.registers = kMatmulRegisters + sums / tile_.threads();
    if (tensor_cores_) {
      const double height = tile_.rows / tile_.warp_rows, width = tile_.columns / tile_.warp_columns;
      block.loop.mma = products / (16 * 8 * 16);
      block.loop.shared_bytes += warps * (height + width) * tile_.depth * 2;
      block.loop.slots += block.loop.mma + warps * (height + width) * tile_.depth / 256;
      block.loop_room = (tile_.rows * (tile_.depth + 8) + tile_.depth * (tile_.columns + 8)) * 2;
      block.exchange_bytes = tile_.rows * (tile_.columns + 8) * 4;
      return;
    }
    // Of one step along the inner dimension, every thread: its rows one by one, its columns at once.
    const double down = sums / tile_.threads() / kSimtAcross, steps = tile_.depth * warps;
    block.loop.slots += steps * (down * kSimtAcross + down + 1);
    block.loop.shared_bytes += steps * 32 * (down * 4 + kSimtAcross * 4);
    block.loop.chain += kTileBarrierCycles;
    block.loop.trips += 1;
    block.exchange_bytes = sums * 4;
  }

  // A tile of an operand, of which `rows` times `columns` are inside the matrix: chunk by chunk, each at an
  // address of its own.
  void count_copy(BlockWork& block, const Operand& operand, int64_t rows, int64_t columns) const {
    const double size = static_cast<double>(dtype_size(operand.slot.dtype));
    const bool by_columns = tensor_cores_ ? operand.columns_inner : operand.view.row_stride != 1;
    const double outer = static_cast<double>(by_columns ? rows : columns),
                 inner = static_cast<double>(by_columns ? columns : rows);
    const bool neighbours = (by_columns ? operand.view.column_stride : operand.view.row_stride) == 1;
    const double chunks = outer * inner / operand.vector;
    const double bytes = outer * (neighbours ? std::ceil(inner * size / 32) : inner) * 32;
    block.loop_bytes += outer * inner * size;
    block.loop_l2 += bytes;
    block.loop.slots += chunks / 32 * kChunkIssue;
    block.loop.shared_bytes += std::max(bytes, chunks * 4) + outer * inner * 4;
    // Single elements go through registers, a few at a time.
    if (operand.vector == 1) block.loop.trips += chunks / tile_.threads() / kUnrolled;
  }

  const Graph& graph_;
  const Kernel& kernel_;
  const KernelTrace& trace_;
  const Storage& storage_;
  IndexSpace space_;
  KernelWriter writer_;
  int64_t rows_ = 0, columns_ = 0, batch_ = 0;
  bool tensor_cores_ = false;
  Tile tile_;
  int vector_ = 1;  // neighbouring columns stored at once
  Index matrix_, row_, column_index_, element_;
  Operand a_, b_;
  KernelTrace::Placed epilogue_;
};

}  // namespace

KernelText emit_matmul(const Graph& graph, const Kernel& kernel, const Partition& partition,
                       const Storage& storage) {
  const KernelTrace trace(graph, kernel, partition.is_root);
  for (bool wide : {false, true}) {
    MatmulEmitter emitter(graph, kernel, trace, partition, storage, wide);
    KernelText text = emitter.run();
    if (!emitter.needs_wide()) return text;
  }
  fatal(__FILE__, __LINE__, "64-bit indices do not suffice");
}

}  // namespace quern
