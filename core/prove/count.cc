#include "core/prove/count.h"

#include <algorithm>
#include <functional>
#include <map>

namespace quern::proof {

namespace {

using ir::Expr;
using ir::Interval;
using ir::Symbol;

struct Part {
  std::vector<Symbol> variables;
  std::vector<Expr> conditions;
};

bool names(const Expr& expr, const Symbol& symbol) {
  bool found = false;
  ir::visit_nodes(expr, [&](const ir::ExprNode& node) { found |= node.symbol == symbol; });
  return found;
}

// Conditions that share no variable are counted apart.
std::vector<Part> parts_of(const std::vector<Symbol>& variables, const std::vector<Expr>& conditions) {
  std::vector<Part> parts;
  for (const Symbol& variable : variables) parts.push_back({{variable}, {}});
  for (const Expr& condition : conditions) {
    Part joined{{}, {condition}};
    std::vector<Part> others;
    for (Part& part : parts) {
      const bool shares = std::any_of(part.variables.begin(), part.variables.end(),
                                      [&](const Symbol& variable) { return names(condition, variable); });
      if (!shares) {
        others.push_back(std::move(part));
        continue;
      }
      joined.variables.insert(joined.variables.end(), part.variables.begin(), part.variables.end());
      joined.conditions.insert(joined.conditions.end(), part.conditions.begin(), part.conditions.end());
    }
    others.push_back(std::move(joined));
    parts = std::move(others);
  }
  return parts;
}

class Counter {
 public:
  explicit Counter(int64_t limit) : left_(limit) {}

  std::optional<int64_t> count(const Part& part, ir::Ranges ranges) {
    if (--left_ < 0) return {};
    std::vector<Expr> open;
    for (const Expr& condition : part.conditions) {
      const Interval holds = ranges.of(condition);
      const bool exact = never_wraps(condition, ranges);
      if (holds.is_one() && exact && !holds.low) return 0;
      if (!holds.is_one() || !exact) open.push_back(condition);
    }
    const Symbol* split = nullptr;
    int64_t points = 1;
    for (const Symbol& variable : part.variables) {
      const Interval range = ranges.of(Expr(variable));
      points *= range.high - range.low + 1;
      const bool matters =
          std::any_of(open.begin(), open.end(), [&](const Expr& each) { return names(each, variable); });
      if (!matters || range.is_one()) continue;
      if (!split || size(ranges, *split) < range.high - range.low) split = &variable;
    }
    if (open.empty()) return points;
    if (!split) return by_value(part, ranges);
    const Interval range = ranges.of(Expr(*split));
    const int64_t middle = range.low + (range.high - range.low) / 2;
    int64_t sum = 0;
    for (const Interval half : {Interval{range.low, middle}, Interval{middle + 1, range.high}}) {
      ir::Ranges inside = ranges;
      inside.set(**split, half);
      const auto found = count({part.variables, open}, inside);
      if (!found) return {};
      sum += *found;
    }
    return sum;
  }

 private:
  static int64_t size(const ir::Ranges& ranges, const Symbol& variable) {
    const Interval range = ranges.of(Expr(variable));
    return range.high - range.low;
  }

  // All that the conditions depend on is one value.
  static std::optional<int64_t> by_value(const Part& part, const ir::Ranges& ranges) {
    Values values;
    int64_t points = 1;
    for (const Symbol& variable : part.variables) {
      values[variable.get()] = ranges.of(Expr(variable)).low;
      points *= size(ranges, variable) + 1;
    }
    for (const Expr& condition : part.conditions) {
      const auto holds = evaluate(condition, values);
      if (!holds) return {};
      if (!*holds) return 0;
    }
    return points;
  }

  int64_t left_;
};

// What conditions know of a variable: the values of the largest expressions that depend on it alone, as few
// as there are, each with how often it comes.
struct Groups {
  std::vector<Symbol> names;  // that stand for these expressions
  std::map<std::vector<int64_t>, int64_t> values;
};

bool depends_alone(const Expr& expr, const Symbol& variable) {
  bool alone = true, found = false;
  ir::visit_nodes(expr, [&](const ir::ExprNode& node) {
    const bool known = node.kind == ir::ExprKind::number || node.kind == ir::ExprKind::symbol ||
                       node.kind == ir::ExprKind::operation || node.kind == ir::ExprKind::cast ||
                       node.kind == ir::ExprKind::select || ir::compute(node.function, 0, 0);
    alone &= known && (!node.symbol || node.symbol == variable);
    found |= node.symbol == variable;
  });
  return alone && found;
}

class Grouping {
 public:
  Grouping(const Symbol& variable, const ir::Ranges& ranges)
      : variable_(variable), range_(ranges.of(Expr(variable))) {}

  // Nothing, and the conditions as they were, if that leaves not much less than the variable itself has.
  std::optional<Groups> run(std::vector<Expr>& conditions) {
    constexpr int64_t kMostValues = 1 << 16;
    constexpr size_t kMostGroups = 64;
    if (range_.high - range_.low >= kMostValues) return {};
    std::vector<Expr> renamed;
    for (const Expr& condition : conditions) renamed.push_back(rename(condition));
    for (int64_t value = range_.low; value <= range_.high; ++value) {
      std::vector<int64_t> values;
      for (const Expr& each : expressions_) {
        const auto found = evaluate(each, {{variable_.get(), value}});
        if (!found) return {};
        values.push_back(*found);
      }
      ++groups_.values[values];
      if (groups_.values.size() > kMostGroups) return {};
    }
    conditions = std::move(renamed);
    return std::move(groups_);
  }

 private:
  Expr rename(const Expr& expr) {
    if (!names(expr, variable_)) return expr;
    if (is_integer(expr.type()) && depends_alone(expr, variable_)) {
      for (size_t i = 0; i < expressions_.size(); ++i)
        if (expressions_[i] == expr) return Expr(groups_.names[i]);
      groups_.names.push_back(std::make_shared<const ir::SymbolData>(
          ir::SymbolData{variable_->name, ir::Space::variable, expr.type(), 1, false, false, nullptr}));
      expressions_.push_back(expr);
      return Expr(groups_.names.back());
    }
    std::vector<Expr> operands;
    for (const Expr& operand : expr->operands) operands.push_back(rename(operand));
    return with_operands(expr, std::move(operands));
  }

  const Symbol variable_;
  const Interval range_;
  Groups groups_;
  std::vector<Expr> expressions_;
};

// Variables that conditions know little of are counted by what they know; the others by intervals.
std::optional<int64_t> count_part(Part part, const ir::Ranges& ranges, Counter& counter) {
  std::vector<Groups> grouped;
  std::erase_if(part.variables, [&](const Symbol& variable) {
    auto groups = Grouping(variable, ranges).run(part.conditions);
    if (groups) grouped.push_back(std::move(*groups));
    return groups.has_value();
  });
  std::function<std::optional<int64_t>(size_t, const ir::Ranges&)> count_from =
      [&](size_t number, const ir::Ranges& known) -> std::optional<int64_t> {
    if (number == grouped.size()) return counter.count(part, known);
    int64_t sum = 0;
    for (const auto& [values, times] : grouped[number].values) {
      ir::Ranges inside = known;
      for (size_t i = 0; i < values.size(); ++i)
        inside.set(*grouped[number].names[i], {values[i], values[i]});
      const auto found = count_from(number + 1, inside);
      if (!found) return {};
      sum += times * *found;
    }
    return sum;
  };
  // By value, the names count as variables with one.
  for (const Groups& groups : grouped)
    part.variables.insert(part.variables.end(), groups.names.begin(), groups.names.end());
  return count_from(0, ranges);
}

}  // namespace

std::optional<int64_t> count_values(const std::vector<Symbol>& variables, const std::vector<Expr>& conditions,
                                    const ir::Ranges& ranges, int64_t limit) {
  Counter counter(limit);
  int64_t product = 1;
  for (const Part& part : parts_of(variables, conditions)) {
    const auto found = count_part(part, ranges, counter);
    if (!found) return {};
    product *= *found;
  }
  return product;
}

bool for_each_value(const std::vector<Symbol>& variables, const std::vector<Expr>& conditions,
                    const ir::Ranges& ranges, int64_t limit,
                    const std::function<void(const Values&)>& visit) {
  Values values;
  __int128 points = 1;
  for (const Symbol& variable : variables) {
    const Interval range = ranges.of(Expr(variable));
    values[variable.get()] = range.low;
    points *= range.high - range.low + 1;
  }
  if (points > limit) return false;
  auto next = [&] {
    for (const Symbol& variable : variables) {
      const Interval range = ranges.of(Expr(variable));
      if (++values[variable.get()] <= range.high) return true;
      values[variable.get()] = range.low;
    }
    return false;
  };
  do {
    if (std::all_of(conditions.begin(), conditions.end(),
                    [&](const Expr& each) { return evaluate(each, values).value_or(0) != 0; }))
      visit(values);
  } while (next());
  return true;
}

}  // namespace quern::proof
