#include "tools/bench/unpruned.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <set>
#include <tuple>

#include "core/verify/field.h"

namespace quern {

namespace {

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A value of the program where every dimension has extent 2: one bit of the position is one label. It is
// repeated along labels that it does not have.
using Points = std::vector<FieldValue>;

class Instance {
 public:
  explicit Instance(const Terms& terms) : terms_(terms), count_(size_t{1} << terms.labels.size()) {}

  Points leaf(int32_t input) {
    const LabelSet own = label_set(terms_.inputs[static_cast<size_t>(input)]);
    Points points;
    for (size_t at = 0; at < count_; ++at)
      points.push_back(domain_.random(static_cast<uint64_t>(input), at & own));
    return points;
  }

  Points constant(const ENode& node) {
    double number = node.number;
    if (node.index > 0)  // a product of extents
      number = static_cast<double>(
          LabelSet{1} << __builtin_popcountll(terms_.counts[static_cast<size_t>(node.index) - 1]));
    return Points(count_, domain_.number(number, DType::f32));
  }

  Points apply(OpCode code, const Points* const* operands, size_t arity) {
    Points result;
    for (size_t at = 0; at < count_; ++at) {
      FieldValue values[3];
      for (size_t i = 0; i < arity; ++i) values[i] = (*operands[i])[at];
      result.push_back(domain_.apply(code, DType::f32, values));
    }
    return result;
  }

  Points reduce(OpCode code, Label label, const Points& operand) {
    Points result;
    const size_t bit = size_t{1} << label;
    for (size_t at = 0; at < count_; ++at) {
      const FieldValue a = operand[at & ~bit], b = operand[at | bit];
      result.push_back(domain_.combine(code, a, b, DType::f32));
    }
    return result;
  }

  // A term of the class, which is of a program that is not saturated.
  Points of_class(const EGraph& egraph, ClassId id) {
    for (const ENode& node : egraph.nodes(id)) {
      if (op_info(node.code).kind == OpKind::composite) continue;
      if (node.code == OpCode::input) return leaf(node.index);
      if (node.code == OpCode::constant) return constant(node);
      std::vector<Points> values;
      for (ClassId child : node.children) values.push_back(of_class(egraph, child));
      if (op_info(node.code).kind == OpKind::reduction) return reduce(node.code, node.index, values[0]);
      const Points* operands[3] = {};
      for (size_t i = 0; i < values.size(); ++i) operands[i] = &values[i];
      return apply(node.code, operands, values.size());
    }
    return {};
  }

 private:
  const Terms& terms_;
  const size_t count_;
  FieldDomain domain_{1};
};

// An operator without its operands.
struct Symbol {
  OpCode code = OpCode::constant;
  Label label = -1;  // of sums, maxima and contractions
  size_t arity = 0;
  bool operator<(const Symbol& other) const {
    return std::tie(code, label, arity) < std::tie(other.code, other.label, other.arity);
  }
};

class Enumeration {
 public:
  Enumeration(const Terms& program, const EGraph& saturated, int bound, double limit_s)
      : program_(program), instance_(program), bound_(bound), limit_s_(limit_s) {
    for (ClassId id : saturated.classes())
      for (const ENode& node : saturated.nodes(id)) note(node);
    vocabulary_.assign(symbols_.begin(), symbols_.end());
    const ClassId goal = program.goals[0];
    goal_labels_ = program.egraph.labels(goal);
    goal_ = instance_.of_class(program.egraph, goal);
  }

  UnprunedReport run() {
    extend(0, {});
    return report_;
  }

 private:
  struct Value {
    LabelSet labels = 0;
    Points points;
    bool is_operator = false;
    int uses = 0;
  };
  // Operands from the latest to the first, the symbol, operands as it takes them: prefixes are made with
  // ascending ranks, so that every DAG comes once.
  struct Rank {
    std::array<int, 3> latest = {-1, -1, -1};
    int symbol = -1;
    std::array<int, 3> taken = {-1, -1, -1};
    auto operator<=>(const Rank&) const = default;
  };

  void note(const ENode& node) {
    switch (op_info(node.code).kind) {
      case OpKind::leaf:
        values_.push_back(
            {node.code == OpCode::input ? label_set(program_.inputs[static_cast<size_t>(node.index)])
                                        : LabelSet{0},
             node.code == OpCode::input ? instance_.leaf(node.index) : instance_.constant(node)});
        return;
      case OpKind::composite:
        return;
      case OpKind::reduction:
        symbols_.insert({node.code, node.index, 1});
        if (node.code == OpCode::reduce_sum) symbols_.insert({OpCode::matmul, node.index, 2});
        return;
      default:
        symbols_.insert({node.code, -1, node.children.size()});
    }
  }

  // All ways to go on from a prefix of `size` operators whose last one has rank `last`.
  void extend(int size, const Rank& last) {
    if (size == bound_) return;
    for (size_t s = 0; s < vocabulary_.size(); ++s) {
      Rank rank;
      rank.symbol = static_cast<int>(s);
      choose(size, last, rank, 0);
    }
  }

  // Operands from number `at` on.
  void choose(int size, const Rank& last, Rank& rank, size_t at) {
    const Symbol& symbol = vocabulary_[static_cast<size_t>(rank.symbol)];
    if (at == symbol.arity) {
      rank.latest = rank.taken;
      std::sort(rank.latest.begin(), rank.latest.end(), std::greater<>());
      if (rank > last) attempt(size, rank, symbol);
      return;
    }
    const bool commutes = symbol.code == OpCode::matmul || (op_info(symbol.code).laws & kCommutative);
    const int count = static_cast<int>(values_.size());
    for (int i = commutes && at > 0 ? rank.taken[at - 1] : 0; i < count && report_.finished; ++i) {
      rank.taken[at] = i;
      choose(size, last, rank, at + 1);
    }
  }

  void attempt(int size, const Rank& rank, const Symbol& symbol) {
    const std::array<int, 3>& operands = rank.taken;
    if (++report_.seen % 1024 == 0) report_.finished &= processor_seconds() < limit_s_;
    if (!report_.finished) return;
    LabelSet labels = 0;
    const Points* points[3] = {};
    for (size_t i = 0; i < symbol.arity; ++i) {
      const Value& operand = value_at(operands[i]);
      labels |= operand.labels;
      points[i] = &operand.points;
      if (symbol.label >= 0 && !has_label(operand.labels, symbol.label)) return;
    }
    if (symbol.label >= 0) labels &= ~label_bit(symbol.label);
    // A contraction has rows or columns, or it is a product and a sum.
    if (symbol.code == OpCode::matmul && value_at(operands[0]).labels == value_at(operands[1]).labels) return;
    Value made{labels, {}, true, 0};
    if (symbol.code == OpCode::matmul)
      made.points = instance_.reduce(OpCode::reduce_sum, symbol.label,
                                     instance_.apply(OpCode::mul, points, symbol.arity));
    else if (symbol.label >= 0)
      made.points = instance_.reduce(symbol.code, symbol.label, *points[0]);
    else
      made.points = instance_.apply(symbol.code, points, symbol.arity);
    push(std::move(made), symbol, operands);
    // Every operator that is left can use up one more value than it makes.
    if (unused_ <= 1 + bound_ - (size + 1)) {
      ++report_.extended;
      if (unused_ == 1 && labels == goal_labels_) judge();
      extend(size + 1, rank);
    }
    pop(symbol, operands);
  }

  void judge() {
    ++report_.complete;
    const Points& found = values_.back().points;
    for (size_t at = 0; at < goal_.size(); ++at)
      if (!found[at].agrees(goal_[at])) return;
    ++report_.equal;
  }

  void push(Value value, const Symbol& symbol, const std::array<int, 3>& operands) {
    for (size_t i = 0; i < symbol.arity; ++i) {
      Value& operand = value_at(operands[i]);
      unused_ -= operand.uses++ == 0 && operand.is_operator;
    }
    values_.push_back(std::move(value));
    ++unused_;
  }

  void pop(const Symbol& symbol, const std::array<int, 3>& operands) {
    values_.pop_back();
    --unused_;
    for (size_t i = 0; i < symbol.arity; ++i) {
      Value& operand = value_at(operands[i]);
      unused_ += --operand.uses == 0 && operand.is_operator;
    }
  }

  Value& value_at(int at) { return values_[static_cast<size_t>(at)]; }

  const Terms& program_;
  Instance instance_;
  const int bound_;
  const double limit_s_;
  std::set<Symbol> symbols_;
  std::vector<Symbol> vocabulary_;
  LabelSet goal_labels_ = 0;
  Points goal_;
  std::vector<Value> values_;  // leaves and constants, then the prefix
  int unused_ = 0;             // operators of the prefix that none uses
  UnprunedReport report_;
};

}  // namespace

UnprunedReport enumerate_unpruned(const Terms& program, const EGraph& saturated, int bound, double limit_s) {
  return Enumeration(program, saturated, bound, limit_s).run();
}

}  // namespace quern
