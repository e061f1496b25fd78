// print_mugraph and print_dot of text.h.
#include "core/graph/text.h"
#include "core/graph/literals.h"
#include "core/mugraph/text.h"

namespace quern {

namespace {

constexpr const char* kAxisNames[] = {"x", "y", "z", "cluster"};

// Prints the operators of one block graph.
class BlockPrinter {
 public:
  BlockPrinter(const MuGraph& mugraph, const MuKernel& kernel)
      : mugraph_(mugraph), kernel_(kernel), uses_(kernel.ops.size(), 0) {
    for (const BlockOp& op : kernel.ops)
      for (BlockValue operand : op.operands) ++uses_[static_cast<size_t>(operand)];
  }

  // A number that one operator uses, and that has no name, stands where it is used.
  bool is_inline(size_t i) const {
    const BlockOp& op = kernel_.ops[i];
    return op.is_compute(OpCode::constant) && op.extents().empty() && op.name.empty() && uses_[i] == 1;
  }

  // "y = load(x, loop=1)", without the type.
  std::string statement(size_t i) const {
    const BlockOp& op = kernel_.ops[i];
    return op.is_store() ? call(op) : name(i) + " = " + call(op);
  }

 private:
  const std::string& tensor(int32_t id) const { return mugraph_.tensors[static_cast<size_t>(id)].name; }
  std::string name(size_t i) const {
    const std::string& given = kernel_.ops[i].name;
    return given.empty() ? "v" + std::to_string(i) : given;
  }
  std::string operand(BlockValue value) const {
    const size_t i = static_cast<size_t>(value);
    return is_inline(i) ? print_number(kernel_.ops[i].number()) : name(i);
  }
  std::string operands(const BlockOp& op) const {
    std::string text;
    for (BlockValue value : op.operands) text += (text.empty() ? "" : ", ") + operand(value);
    return text;
  }
  static std::string cuts(const BlockOp& op) {
    std::string text;
    for (int axis = 0; axis < kGridAxes; ++axis)
      if (op.map()[static_cast<size_t>(axis)] >= 0)
        text +=
            std::string(", ") + kAxisNames[axis] + "=" + std::to_string(op.map()[static_cast<size_t>(axis)]);
    if (op.loop_dim() >= 0) text += ", loop=" + std::to_string(op.loop_dim());
    return text;
  }

  std::string call(const BlockOp& op) const {
    switch (op.kind()) {
      case BlockOp::Kind::load:
        return "load(" + tensor(op.tensor()) + cuts(op) + ")";
      case BlockOp::Kind::store:
        return "store(" + operands(op) + ", " + tensor(op.tensor()) + cuts(op) + ")";
      case BlockOp::Kind::accumulate:
        return "accumulate_" + combine_text(op.combine()) + "(" + operands(op) +
               (op.combine() == Combine::concat ? ", axis=" + std::to_string(op.concat_dim()) : "") + ")";
      case BlockOp::Kind::reduce_cluster:
        return "cluster_" + combine_text(op.combine()) + "(" + operands(op) + ")";
      case BlockOp::Kind::rescale_factor:
        return "rescale_factor()";
      case BlockOp::Kind::compute:
        break;
    }
    if (op.code() != OpCode::constant) {
      const std::string attrs = print_attrs(op.attrs());
      const std::string arguments = operands(op);
      return std::string(op_info(op.code()).text) + "(" + arguments +
             (arguments.empty() || attrs.empty() ? "" : ", ") + attrs + ")";
    }
    if (op.extents().empty()) return "number(" + print_number(op.number()) + ")";
    std::string text;
    for (const TensorDim& dim : op.extents())
      text += (text.empty() ? "" : ", ") + tensor(dim.tensor) + "[" + std::to_string(dim.dim) + "]";
    return "extent(" + text + ")";
  }

  const MuGraph& mugraph_;
  const MuKernel& kernel_;
  std::vector<int> uses_;
};

std::string print_library_operator(const MuGraph& mugraph, const MuKernel& kernel) {
  auto name = [&](int32_t id) {
    const MuTensor& tensor = mugraph.tensors[static_cast<size_t>(id)];
    return tensor.type.literal ? print_literal(tensor.number, tensor.type.dtype) : tensor.name;
  };
  std::string arguments;
  for (int32_t operand : kernel.operands) arguments += (arguments.empty() ? "" : ", ") + name(operand);
  const std::string attrs = print_attrs(kernel.attrs);
  if (!attrs.empty()) arguments += (arguments.empty() ? "" : ", ") + attrs;
  return name(kernel.result) + " = " + op_info(kernel.code).text + "(" + arguments + ")";
}

// "kernel grid=[2, 16] loop=4 threads=128"
std::string print_options(const MuKernel& kernel) {
  Ints grid(kernel.grid.begin(), kernel.grid.begin() + 3);
  while (grid.size() > 1 && grid.back() == 1) grid.pop_back();
  std::string text = "kernel grid=" + print_ints(grid);
  if (kernel.grid[3] != 1) text += " cluster=" + std::to_string(kernel.grid[3]);
  if (kernel.trip_count != 1) text += " loop=" + std::to_string(kernel.trip_count);
  if (Ints tiles(kernel.tiles.begin(), kernel.tiles.end()); tiles != Ints(tiles.size()))
    text += " tiles=" + print_ints(tiles);
  return text + " threads=" + std::to_string(kernel.threads);
}

std::string print_block_graph(const MuGraph& mugraph, const MuKernel& kernel) {
  const BlockPrinter printer(mugraph, kernel);
  std::string text = print_options(kernel) + " {\n";
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    if (printer.is_inline(i)) continue;
    std::string line = "  " + printer.statement(i);
    if (!kernel.ops[i].type.shape.empty()) {
      if (line.size() < 44) line.resize(44, ' ');
      line += "  # " + print_ints(kernel.ops[i].type.shape);
    }
    text += line + "\n";
  }
  return text + "}\n";
}

// The boxes of a block graph, and edges from and to the tensors it loads and stores.
std::string dot_block_graph(const MuGraph& mugraph, const MuKernel& kernel, size_t index) {
  const BlockPrinter printer(mugraph, kernel);
  const std::string prefix = "k" + std::to_string(index) + "_";
  std::string text = "  subgraph cluster_" + std::to_string(index) +
                     " {\n    label=" + quote_dot(print_options(kernel)) + ";\n";
  std::string edges;
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    if (printer.is_inline(i)) continue;
    const BlockOp& op = kernel.ops[i];
    const std::string box = prefix + std::to_string(i);
    text += "    " + box + " [label=" + quote_dot(printer.statement(i) + "  " + print_ints(op.type.shape)) +
            "];\n";
    if (op.is_load()) edges += "  t" + std::to_string(op.tensor()) + " -> " + box + ";\n";
    if (op.is_store()) edges += "  " + box + " -> t" + std::to_string(op.tensor()) + ";\n";
    for (BlockValue operand : op.operands)
      if (!printer.is_inline(static_cast<size_t>(operand)))
        edges += "  " + prefix + std::to_string(operand) + " -> " + box + ";\n";
  }
  return text + "  }\n" + edges;
}

}  // namespace

std::string print_mugraph(const MuGraph& mugraph) {
  std::string text = "mugraph " + mugraph.name + "\n";
  std::vector<bool> is_input(mugraph.tensors.size());
  auto declare = [&](const char* word, const MuTensor& tensor) {
    text += std::string(word) + " " + tensor.name + ": " + print_type(tensor.type) +
            (tensor.dense ? " dense\n" : "\n");
  };
  for (int32_t input : mugraph.inputs) {
    is_input[static_cast<size_t>(input)] = true;
    declare("in", mugraph.tensors[static_cast<size_t>(input)]);
  }
  for (size_t i = 0; i < mugraph.tensors.size(); ++i)
    if (!is_input[i] && !mugraph.tensors[i].type.literal) declare("tensor", mugraph.tensors[i]);
  for (const MuKernel& kernel : mugraph.kernels)
    text +=
        kernel.custom ? print_block_graph(mugraph, kernel) : print_library_operator(mugraph, kernel) + "\n";
  text += "out ";
  for (size_t i = 0; i < mugraph.outputs.size(); ++i)
    text += (i ? ", " : "") + mugraph.tensors[static_cast<size_t>(mugraph.outputs[i])].name;
  return text + "\n";
}

std::string print_dot(const MuGraph& mugraph) {
  std::string text = "digraph " + quote_dot(mugraph.name) + " {\n  node [shape=box, fontname=monospace];\n";
  for (size_t i = 0; i < mugraph.tensors.size(); ++i)
    text += "  t" + std::to_string(i) + " [style=rounded, label=" +
            quote_dot(mugraph.tensors[i].name + ": " + print_type(mugraph.tensors[i].type)) + "];\n";
  for (size_t k = 0; k < mugraph.kernels.size(); ++k) {
    const MuKernel& kernel = mugraph.kernels[k];
    if (kernel.custom) {
      text += dot_block_graph(mugraph, kernel, k);
      continue;
    }
    const std::string box = "k" + std::to_string(k);
    text += "  " + box + " [label=" + quote_dot(print_library_operator(mugraph, kernel)) + "];\n";
    for (int32_t operand : kernel.operands) text += "  t" + std::to_string(operand) + " -> " + box + ";\n";
    text += "  " + box + " -> t" + std::to_string(kernel.result) + ";\n";
  }
  for (size_t i = 0; i < mugraph.outputs.size(); ++i) {
    const std::string name = "out" + std::to_string(i);
    text += "  " + name + " [shape=plaintext, label=" + quote_dot("out " + std::to_string(i)) + "];\n  t" +
            std::to_string(mugraph.outputs[i]) + " -> " + name + ";\n";
  }
  return text + "}\n";
}

}  // namespace quern
