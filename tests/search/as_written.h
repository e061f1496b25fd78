// A program as a DAG of its own operators.
#pragma once

#include <optional>

#include "core/search/roles.h"
#include "tests/search/examples.h"

namespace quern {

// The program's own operators as a DAG: the first admitted operator that is no composite, class by class.
class AsWritten {
 public:
  explicit AsWritten(const std::string& text) : graph(graph_of(text)) {
    Result<Terms> made = make_terms(graph);
    assert_ok(made);
    terms = std::move(*made);
    universe.emplace(terms);
    for (ClassId& goal : terms.goals) goal = terms.egraph.find(goal);
    for (ClassId goal : terms.goals) dag.outputs.push_back(place(goal));
  }

  std::optional<LoopForm> loop(const char* label, std::string* why = nullptr) {
    return loop_form({dag, {}}, find(label), terms, why);
  }
  Label find(const char* name) const {
    for (size_t label = 0; label < terms.labels.size(); ++label)
      if (terms.labels[label].name == name) return static_cast<Label>(label);
    fail_test("no such label");
    return -1;
  }

  Graph graph;
  Terms terms;
  std::optional<Universe> universe;
  Dag dag;

 private:
  int place(ClassId id) {
    for (size_t at = 0; at < dag.ops.size(); ++at)
      if (dag.ops[at].id == id) return static_cast<int>(at);
    const std::vector<BlockTerm>& choices = universe->of(id);
    const BlockTerm* chosen = nullptr;
    for (const BlockTerm& term : choices)
      if (term.kind != BlockKind::composite && (!chosen || term.kind == BlockKind::matmul)) chosen = &term;
    assert_non_null(chosen);
    DagOp op{*chosen, id, {}, terms.egraph.labels(id)};
    for (ClassId operand : op.term.operands) op.operands.push_back(place(operand));
    dag.ops.push_back(std::move(op));
    return static_cast<int>(dag.ops.size()) - 1;
  }
};

}  // namespace quern
