#include "core/search/dag.h"

namespace quern {

namespace {

std::string operand_name(const Dag& dag, const Terms& terms, int at) {
  const DagOp& op = dag.ops[at];
  if (op.term.kind == BlockKind::leaf) return "i" + std::to_string(op.term.index);
  if (op.term.kind != BlockKind::constant) return "t" + std::to_string(at);
  if (op.term.index == 0) return print_number(op.term.number);
  std::string name;
  for (size_t label = 0; label < terms.labels.size(); ++label)
    if (has_label(terms.counts[op.term.index - 1], static_cast<Label>(label)))
      name += (name.empty() ? "|" : "*") + terms.labels[label].name;
  return name.empty() ? "1" : name + "|";
}

std::string operator_name(const BlockTerm& term, const Terms& terms) {
  std::string name = op_info(term.code).text;
  if (term.kind == BlockKind::concat_matmul)
    return "concat_matmul[" + terms.labels[term.label].name + ", " + terms.labels[term.label2].name + "]";
  if (term.label >= 0) name += "[" + terms.labels[term.label].name + "]";
  return name;
}

}  // namespace

std::string print_dag(const Dag& dag, const Terms& terms) {
  std::string text;
  for (size_t at = 0; at < dag.ops.size(); ++at) {
    const DagOp& op = dag.ops[at];
    if (op.term.kind == BlockKind::leaf || op.term.kind == BlockKind::constant) continue;
    text += operand_name(dag, terms, static_cast<int>(at)) + " = " + operator_name(op.term, terms) + "(";
    for (size_t i = 0; i < op.operands.size(); ++i)
      text += (i ? ", " : "") + operand_name(dag, terms, op.operands[i]);
    text += ")\n";
  }
  text += "out";
  for (int output : dag.outputs) text += " " + operand_name(dag, terms, output);
  return text + "\n";
}

}  // namespace quern
