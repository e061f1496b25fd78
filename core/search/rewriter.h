// A graph that is built again with other operators: what rewrites before the search have in common.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/builder.h"

namespace quern {

class Rewriter {
 protected:
  explicit Rewriter(const Graph& graph) : graph_(graph), builder_(graph.name) {
    for (const Node& node : graph.nodes) names_.insert(node.name);
  }

  static size_t index(int64_t id) { return static_cast<size_t>(id); }
  const Node& node(ValueId id) const { return graph_.node(id); }
  ValueId end() const { return static_cast<ValueId>(graph_.nodes.size()); }
  bool is_output(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }
  // Of each value.
  std::vector<std::set<ValueId>> readers() const {
    std::vector<std::set<ValueId>> out(graph_.nodes.size());
    for (ValueId id = 0; id < end(); ++id)
      for (ValueId operand : node(id).operands) out[index(operand)].insert(id);
    return out;
  }

  // A name that the graph does not have.
  std::string unused(std::string name) {
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  // Each nothing where the graph that is made would be too large.
  std::optional<ValueId> added(OpCode code, const std::vector<ValueId>& operands, const Attrs& attrs,
                               const std::string& name) {
    return value_of(builder_.add_op(code, operands, attrs, name));
  }
  // An input or a constant as it is.
  std::optional<ValueId> copied(const Node& leaf) {
    return value_of(
        leaf.code == OpCode::constant
            ? builder_.add_constant(leaf.number, leaf.type.dtype == DType::i32)
            : builder_.add_input(leaf.name, leaf.type.dtype, leaf.type.shape, leaf.strides, leaf.is_const));
  }
  std::optional<ValueId> added(int64_t number) {
    return value_of(builder_.add_constant(static_cast<double>(number), true));
  }
  // The graph, whose outputs are what `became` gives for those of the other.
  template <class F>
  std::optional<Graph> finished(F became) {
    for (ValueId output : graph_.outputs) {
      const std::optional<ValueId> value = became(output);
      if (!value || !builder_.add_output(*value).ok()) return std::nullopt;
    }
    Result<Graph> made = builder_.finish();
    return made ? std::optional(std::move(*made)) : std::nullopt;
  }

  const Graph& graph_;
  GraphBuilder builder_;

 private:
  static std::optional<ValueId> value_of(const Result<ValueId>& made) {
    return made ? std::optional(*made) : std::nullopt;
  }

  std::set<std::string> names_;
};

// One that takes over most nodes as they are. Its values are 0 once something has failed.
class CopyingRewriter : protected Rewriter {
 protected:
  explicit CopyingRewriter(const Graph& graph) : Rewriter(graph), became_(graph.nodes.size(), -1) {}

  ValueId became(ValueId id) const { return became_[static_cast<size_t>(id)]; }

  ValueId add(OpCode code, const std::vector<ValueId>& operands, const Attrs& attrs,
              const std::string& name) {
    return failed_ ? 0 : checked(added(code, operands, attrs, name));
  }
  ValueId constant(int64_t number) { return failed_ ? 0 : checked(added(number)); }
  // As it is, of what its operands became.
  ValueId copy(ValueId id) {
    if (node(id).code == OpCode::input || node(id).code == OpCode::constant) return checked(copied(node(id)));
    std::vector<ValueId> operands;
    for (ValueId operand : node(id).operands) operands.push_back(became(operand));
    return add(node(id).code, operands, node(id).attrs, node(id).name);
  }
  // Inputs first, in their order; `made` says what any other value becomes.
  template <class F>
  std::optional<Graph> rewritten(F made) {
    for (ValueId id : graph_.inputs) became_[static_cast<size_t>(id)] = copy(id);
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.nodes.size()) && !failed_; ++id)
      if (node(id).code != OpCode::input) became_[static_cast<size_t>(id)] = made(id);
    if (failed_) return std::nullopt;
    return finished([this](ValueId output) { return std::optional(became(output)); });
  }

 private:
  ValueId checked(std::optional<ValueId> made) {
    failed_ = failed_ || !made;
    return made.value_or(0);
  }

  std::vector<ValueId> became_;
  bool failed_ = false;
};

}  // namespace quern
