#include "core/graph/canon.h"

#include <map>

#include "core/graph/text.h"

namespace quern {

namespace {

class Canonicalizer {
 public:
  explicit Canonicalizer(const Graph& from) : from_(from), renumbered_(from.nodes.size(), -1) {}

  Graph run() {
    to_.name = "g";
    for (ValueId id : from_.inputs) {
      Node input = from_.node(id);
      input.name = "i" + std::to_string(to_.inputs.size());
      to_.inputs.push_back(append(std::move(input)));
      renumbered_[id] = to_.inputs.back();
    }
    for (ValueId id : from_.outputs) {
      visit(id);
      to_.outputs.push_back(renumbered_[id]);
    }
    return std::move(to_);
  }

 private:
  // Depth first with a stack of its own: programs may be thousands of operators deep.
  void visit(ValueId root) {
    std::vector<ValueId> stack = {root};
    while (!stack.empty()) {
      const ValueId id = stack.back();
      if (renumbered_[id] < 0) {
        const size_t depth = stack.size();
        const std::vector<ValueId>& operands = from_.node(id).operands;
        for (size_t i = operands.size(); i-- > 0;)
          if (renumbered_[operands[i]] < 0) stack.push_back(operands[i]);
        if (stack.size() > depth) continue;
        renumbered_[id] = place(from_.node(id));
      }
      stack.pop_back();
    }
  }

  // The node with renumbered operands; one that was placed before if it is the same computation.
  ValueId place(Node node) {
    std::string identity = std::to_string(static_cast<int>(node.code));
    for (ValueId& operand : node.operands) {
      operand = renumbered_[operand];
      identity += ' ' + std::to_string(operand);
    }
    identity += ' ' + print_attrs(node.attrs);
    if (node.code == OpCode::constant) {
      node.name.clear();
      identity += std::string(dtype_name(node.type.dtype)) + ' ' + print_number(node.number);
    }
    const auto [at, is_new] = placed_.try_emplace(identity, 0);
    if (!is_new) return at->second;
    if (node.code != OpCode::constant) node.name = "t" + std::to_string(ops_++);
    return at->second = append(std::move(node));
  }

  ValueId append(Node node) {
    to_.nodes.push_back(std::move(node));
    return static_cast<ValueId>(to_.nodes.size()) - 1;
  }

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> renumbered_;
  std::map<std::string, ValueId> placed_;
  size_t ops_ = 0;
};

}  // namespace

Graph canonicalize(const Graph& graph) { return Canonicalizer(graph).run(); }

std::string canonical_text(const Graph& graph) { return print_graph(canonicalize(graph)); }

}  // namespace quern
