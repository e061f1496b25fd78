// print_graph and print_dot of text.h.
#include "core/graph/literals.h"
#include "core/graph/text.h"

namespace quern {

namespace {

std::string print_operand(const Graph& graph, ValueId id) {
  const Node& node = graph.node(id);
  return node.code == OpCode::constant ? print_literal(node.number, node.type.dtype) : node.name;
}

std::string print_call(const Graph& graph, const Node& node) {
  std::string arguments;
  for (ValueId operand : node.operands)
    arguments += (arguments.empty() ? "" : ", ") + print_operand(graph, operand);
  const std::string attrs = print_attrs(node.attrs);
  if (!attrs.empty()) arguments += (arguments.empty() ? "" : ", ") + attrs;
  return std::string(op_info(node.code).text) + "(" + arguments + ")";
}

std::string print_input(const Node& node) {
  std::string text = node.name + ": " + print_type(node.type);
  if (node.strides != dense_strides(node.type.shape)) text += " strides" + print_ints(node.strides);
  if (node.is_const) text += " const";
  return text;
}

}  // namespace

std::string quote_dot(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string print_graph(const Graph& graph) {
  std::string text = "graph " + graph.name + "\n";
  for (ValueId id : graph.inputs) text += "in " + print_input(graph.node(id)) + "\n";
  for (const Node& node : graph.nodes)
    if (op_info(node.code).kind != OpKind::leaf) text += node.name + " = " + print_call(graph, node) + "\n";
  if (graph.outputs.empty()) return text;  // it is not finished
  text += "out ";
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    text += (i ? ", " : "") + graph.node(graph.outputs[i]).name;
  return text + "\n";
}

std::string print_dot(const Graph& graph) {
  std::string text = "digraph " + quote_dot(graph.name) + " {\n  node [shape=box, fontname=monospace];\n";
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.code == OpCode::constant) continue;
    const std::string label = node.code == OpCode::input ? print_input(node)
                                                         : node.name + " = " + print_call(graph, node) +
                                                               ": " + print_type(node.type);
    text += "  n" + std::to_string(id) + " [label=" + quote_dot(label) +
            (node.code == OpCode::input ? ", style=rounded" : "") + "];\n";
    for (ValueId operand : node.operands)
      if (graph.node(operand).code != OpCode::constant)
        text += "  n" + std::to_string(operand) + " -> n" + std::to_string(id) + ";\n";
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string name = "out" + std::to_string(i);
    text += "  " + name + " [shape=plaintext, label=" + quote_dot("out " + std::to_string(i)) + "];\n  n" +
            std::to_string(graph.outputs[i]) + " -> " + name + ";\n";
  }
  return text + "}\n";
}

}  // namespace quern
