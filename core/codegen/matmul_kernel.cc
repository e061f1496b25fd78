// Kernels of matrix products: a tile of device/matmul.cuh a block, then what is fused behind it, element by
// element.
#include <algorithm>

#include "core/base/integers.h"
#include "core/codegen/kernel_text.h"
#include "core/codegen/tiles.h"

namespace quern {

namespace {

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
