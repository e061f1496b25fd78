#include "core/codegen/roots.h"

#include <algorithm>

#include "core/codegen/partition.h"

namespace quern {

namespace {

// An expression of at most so much work is repeated for every reader rather than stored: to store it, and load it again, takes as
// long as some 50 operations. What moves elements costs integer operations, of which readers have much in common.
constexpr int kCheap = 10;
constexpr int kMovementWork = 2, kMovementStatements = 6;

class RootChooser {
 public:
  explicit RootChooser(const Graph& graph)
      : graph_(graph), roots_(graph.nodes.size()), costs_(graph.nodes.size()), work_(graph.nodes.size()) {}

  std::vector<bool> run() {
    for (ValueId id : graph_.outputs) mark(id);
    for (ValueId id = 0; id < count(); ++id) {
      const OpKind kind = op_info(node(id).code).kind;
      if (kind != OpKind::reduction && kind != OpKind::contraction) continue;
      mark(id);
      if (kind == OpKind::contraction && node(id).type.element_count() > 0)
        for (ValueId operand : node(id).operands) mark_operand(operand, node(id).type.shape);
    }
    for (ValueId id = 0; id < count(); ++id) bound_cost(id);
    for (ValueId id = 0; id < count(); ++id) bound_work(id);
    mark_repeated();
    mark_operands_again();
    return std::move(roots_);
  }

 private:
  ValueId count() const { return static_cast<ValueId>(graph_.nodes.size()); }
  const Node& node(ValueId id) const { return graph_.node(id); }
  bool is_root(ValueId id) const { return roots_[static_cast<size_t>(id)]; }
  int& cost(ValueId id) { return costs_[static_cast<size_t>(id)]; }

  void mark(ValueId id) {
    if (node(id).code != OpCode::input && node(id).type.element_count() > 0)
      roots_[static_cast<size_t>(id)] = true;
  }

  // What a view moves is stored, rather than the view; unless that makes no matrix.
  void mark_operand(ValueId operand, const Ints& product) {
    ValueId base = operand;
    while (is_view(node(base).code)) base = node(base).operands[0];
    const OpKind kind = op_info(node(base).code).kind;
    const bool computed = node(base).code == OpCode::constant || kind == OpKind::generator;
    mark(computed ? operand : base);
    if (!view_matrix(graph_, roots_, operand, product)) mark(operand);
  }

  // What became a root since may lie between an operand and what it was a view of. In the order of values: a
  // mark changes the views of later values only.
  void mark_operands_again() {
    std::vector<std::pair<ValueId, ValueId>> operands;  // with their products
    for (ValueId id = 0; id < count(); ++id)
      if (op_info(node(id).code).kind == OpKind::contraction && is_root(id))
        for (ValueId operand : node(id).operands) operands.emplace_back(operand, id);
    std::sort(operands.begin(), operands.end());
    for (const auto& [operand, product] : operands)
      if (!view_matrix(graph_, roots_, operand, node(product).type.shape)) mark(operand);
  }

  // An upper bound of the statements that `id` needs, or their number where that is too high; cuts its
  // operands off until it is low enough.
  void bound_cost(ValueId id) {
    if (node(id).type.element_count() == 0) return;
    const OpKind kind = op_info(node(id).code).kind;
    if (kind == OpKind::leaf || kind == OpKind::reduction || kind == OpKind::contraction) {
      cost(id) = 1;
      return;
    }
    while (true) {
      cost(id) = kind == OpKind::movement ? kMovementStatements : 1;
      for (ValueId operand : node(id).operands)
        cost(id) += (is_root(operand) ? 1 : cost(operand)) + (node(id).code == OpCode::concat ? 1 : 0);
      if (cost(id) > kMaxExpression / 2) cost(id) = measure(id);
      if (cost(id) <= kMaxExpression || !cut_operand(id)) return;
    }
  }

  void bound_work(ValueId id) {
    int& own = work_[static_cast<size_t>(id)];
    const OpKind kind = op_info(node(id).code).kind;
    own = kind == OpKind::movement ? kMovementWork : 1;
    if (kind == OpKind::leaf || kind == OpKind::reduction || kind == OpKind::contraction) return;
    for (ValueId operand : node(id).operands)
      own = std::min(kMaxExpression, own + (is_root(operand) ? 1 : work_[static_cast<size_t>(operand)]));
  }

  int measure(ValueId id) const {
    IndexSpace space;
    Trace trace(
        graph_, space,
        [&](ValueId value, const Coords&) { return is_root(value) ? Meeting::load : Meeting::expand; },
        kMaxExpression + 1);
    const Ints& shape = node(id).type.shape;
    trace.root(id, space.unflatten(shape, space.variable("i", node(id).type.element_count())));
    return trace.failed() ? kMaxExpression + 1 : trace.cost();
  }

  bool cut_operand(ValueId id) {
    ValueId worst = -1;
    for (ValueId operand : node(id).operands)
      if (op_info(node(operand).code).kind != OpKind::leaf && !is_root(operand) &&
          (worst < 0 || cost(operand) > cost(worst)))
        worst = operand;
    if (worst >= 0) mark(worst);
    return worst >= 0;
  }

  // The reader of a value, told apart by the place at which it reads: elementwise operators read where they
  // are read themselves. A value read at several places would be computed for each of them.
  void mark_repeated() {
    constexpr int kUnread = -1, kSeveral = -2;
    std::vector<int> places(graph_.nodes.size(), kUnread);
    int next = 0;
    auto read = [&](ValueId id, int place) {
      int& known = places[static_cast<size_t>(id)];
      known = known == kUnread || known == place ? place : kSeveral;
    };
    for (ValueId id = count() - 1; id >= 0; --id) {
      int place = places[static_cast<size_t>(id)];
      if (place == kSeveral && work_[static_cast<size_t>(id)] > kCheap &&
          op_info(node(id).code).kind != OpKind::leaf)
        mark(id);
      if (is_root(id) || place < 0) place = next++;
      const OpKind kind = op_info(node(id).code).kind;
      for (ValueId operand : node(id).operands) {
        const bool here = (kind == OpKind::elementwise || kind == OpKind::conversion) &&
                          node(operand).type.shape == node(id).type.shape;
        read(operand, here ? place : next++);
      }
    }
  }

  const Graph& graph_;
  std::vector<bool> roots_;
  std::vector<int> costs_;  // statements, at most
  std::vector<int> work_;   // of one element, at most
};

}  // namespace

std::vector<bool> choose_roots(const Graph& graph) { return RootChooser(graph).run(); }

}  // namespace quern
