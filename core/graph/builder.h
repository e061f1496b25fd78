// Builds a valid Graph step by step: every step checks types and limits, so that a Graph that exists is
// valid.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/graph/graph.h"

namespace quern {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = "graph");
  // Goes on from a valid graph, its outputs included.
  explicit GraphBuilder(Graph graph);

  // `strides` in elements, empty for dense row-major; elements may share places.
  Result<ValueId> add_input(std::string name, DType dtype, Ints shape, Ints strides = {},
                            bool is_const = false);
  // A number written in the program; integral says that it is an integer there ("2", not "2.0").
  Result<ValueId> add_constant(double number, bool integral);
  // An unnamed result gets a name of its own. Names are valid and unique.
  Result<ValueId> add_op(OpCode code, std::span<const ValueId> operands, Attrs attrs = {},
                         std::string name = "");
  Status add_output(ValueId value);

  // What has been built so far; its nodes are valid, but it may lack outputs.
  const Graph& graph() const { return graph_; }
  // INVALID_GRAPH without an output. The builder is empty afterwards.
  Result<Graph> finish();

 private:
  ValueId append(Node node);
  Status claim_name(const std::string& name);
  void round_numbers(Node& node, std::span<const TensorType> types);
  std::string not_a_value(ValueId id) const;
  bool exists(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.nodes.size(); }

  Graph graph_;
  std::unordered_set<std::string> names_;
  size_t ops_ = 0;
};

// Whether `name` can name a value: a letter or underscore, then letters, digits, underscores and dots, and no
// word of the language.
bool is_valid_name(std::string_view name);

}  // namespace quern
