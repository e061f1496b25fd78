#include "core/search/regroup.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/mugraph/block_op.h"
#include "core/search/rewriter.h"

namespace quern {

namespace {

// A dimension that is two in the graph that is made: counted from the end, as broadcasting does.
struct Split {
  int64_t from_end = 0, outer = 1, inner = 1;
  bool operator==(const Split&) const = default;
  size_t dim(const Node& node) const { return static_cast<size_t>(node.type.rank() - from_end); }
};

class Regrouper : Rewriter {
 public:
  // `repetitions`: whether those disappear.
  Regrouper(const Graph& graph, bool repetitions) : Rewriter(graph), repetitions_(repetitions) {}

  // Nothing if the graph has no repetition, or has no form without it.
  std::optional<Graph> run() {
    values_.resize(graph_.nodes.size());
    find_groups();
    for (ValueId id : graph_.inputs)
      if (!(values_[index(id)].plain = copied(node(id)))) return std::nullopt;
    for (size_t id = 0; id < graph_.nodes.size(); ++id)
      if (node(static_cast<ValueId>(id)).code != OpCode::input && !add(static_cast<ValueId>(id)))
        return std::nullopt;
    if (!found_) return std::nullopt;
    return finished([this](ValueId output) { return plain(output); });
  }

 private:
  // What a value became: as it was, with its split dimension in two, or both. The two may have extents of 1 where
  // what is computed with them broadcasts.
  struct Value {
    std::optional<ValueId> plain, parted;
    std::optional<Split> split;  // what the two are, once it was asked for
  };

  std::string parted_name(const Node& node) { return unused(node.name + "_parted"); }

  std::optional<ValueId> reshaped(ValueId value, OpCode code, Ints shape, const std::string& name) {
    Attrs attrs;
    attrs.shape = std::move(shape);
    return added(code, {value}, attrs, name);
  }

  static Ints parted_shape(const Node& node, const Split& split, int64_t outer, int64_t inner) {
    Ints shape = node.type.shape;
    shape[split.dim(node)] = outer;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(split.dim(node)) + 1, inner);
    return shape;
  }

  // Which dimension of `joined` is two in `apart`, the first that `fits`; nothing if that is not all that they differ in.
  template <class Fits>
  static std::optional<Split> split_between(const Node& joined, const Node& apart, const Fits& fits) {
    if (apart.type.rank() != joined.type.rank() + 1) return std::nullopt;
    for (int64_t d = 0; d < joined.type.rank(); ++d) {
      const Split split{joined.type.rank() - d, apart.type.shape[index(d)], apart.type.shape[index(d) + 1]};
      if (split.outer > 1 && split.inner > 1 &&
          parted_shape(joined, split, split.outer, split.inner) == apart.type.shape && fits(split))
        return split;
    }
    return std::nullopt;
  }
  static std::optional<Split> split_between(const Node& joined, const Node& apart) {
    return split_between(joined, apart, [](const Split&) { return true; });
  }

  // Products whose rows or matrices a reshape takes apart that another one joins again, as for masks of queries in groups.
  void find_groups() {
    std::vector<Split> joined;
    for (const Node& join : graph_.nodes)
      if (join.code == OpCode::reshape)
        if (const auto split = split_between(join, node(join.operands[0]))) joined.push_back(*split);
    for (const Node& apart : graph_.nodes) {
      if (apart.code != OpCode::reshape) continue;
      const std::optional<Split> split = split_between(node(apart.operands[0]), apart);
      if (split && std::find(joined.begin(), joined.end(), *split) != joined.end())
        group(apart.operands[0], *split);
    }
  }
  // The products that `last` is computed of, element by element.
  void group(ValueId last, const Split& split) {
    std::set<ValueId> from = {last};
    while (!from.empty()) {
      const ValueId id = *from.rbegin();  // operands come before their users
      from.erase(id);
      const Node& op = node(id);
      const OpKind kind = op_info(op.code).kind;
      if (kind == OpKind::contraction && split.from_end > 1) groups_.emplace(id, split);
      if (kind != OpKind::elementwise && kind != OpKind::conversion) continue;
      for (ValueId operand : op.operands)
        if (node(operand).type.shape == op.type.shape) from.insert(operand);
    }
  }
  bool is_of_groups(const Split& split) const {
    return std::any_of(groups_.begin(), groups_.end(),
                       [&](const auto& each) { return each.second == split; });
  }

  // All of it, in two dimensions.
  std::optional<ValueId> apart(ValueId id) {
    const Value& value = values_[index(id)];
    const Ints whole = parted_shape(node(id), *value.split, value.split->outer, value.split->inner);
    if (builder_.graph().node(*value.parted).type.shape == whole) return value.parted;
    return reshaped(*value.parted, OpCode::broadcast, whole, parted_name(node(id)));
  }

  // As the graph has it.
  std::optional<ValueId> plain(ValueId id) {
    Value& value = values_[index(id)];
    if (value.plain) return value.plain;
    const std::optional<ValueId> full = apart(id);
    if (full) value.plain = reshaped(*full, OpCode::reshape, node(id).type.shape, node(id).name);
    return value.plain;
  }

  // In two dimensions, where it has them; nothing if they are others.
  std::optional<ValueId> parted(ValueId id, const Split& split) {
    Value& value = values_[index(id)];
    if (value.split == split) return value.parted;
    if (!value.plain) return std::nullopt;
    if (node(id).type.literal || node(id).type.rank() < split.from_end) return value.plain;
    const int64_t extent = node(id).type.shape[split.dim(node(id))];
    if (extent != 1 && extent != split.outer * split.inner) return std::nullopt;
    const Ints shape = extent == 1 ? parted_shape(node(id), split, 1, 1)
                                   : parted_shape(node(id), split, split.outer, split.inner);
    value.split = split;
    return value.parted = reshaped(*value.plain, OpCode::reshape, shape, parted_name(node(id)));
  }

  bool add(ValueId id) {
    const Node& op = node(id);
    Value& value = values_[index(id)];
    if (op.code == OpCode::constant) return (value.plain = copied(op)).has_value();
    if (repeats(id) || joins(id) || takes_apart(id) || computes_parted(id)) return true;
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands) {
      const std::optional<ValueId> made = plain(operand);
      if (!made) return false;
      operands.push_back(*made);
    }
    value.plain = added(op.code, operands, op.attrs, op.name);
    return value.plain.has_value();
  }

  // Whether it is a reshape that joins a dimension with the next one, along one of which it is broadcast.
  bool repeats(ValueId id) {
    const Node& join = node(id);
    if (!repetitions_ || join.code != OpCode::reshape) return false;
    const Node& wide = node(join.operands[0]);
    if (wide.code != OpCode::broadcast) return false;
    const Node& narrow = node(wide.operands[0]);
    const std::optional<ValueId>& source = values_[index(wide.operands[0])].plain;
    if (!source || narrow.type.rank() != wide.type.rank()) return false;
    const std::optional<Split> split = split_between(join, wide, [&](const Split& each) {
      return narrow.type.shape == parted_shape(join, each, each.outer, 1) ||
             narrow.type.shape == parted_shape(join, each, 1, each.inner);
    });
    if (split) values_[index(id)] = {std::nullopt, source, split};
    found_ |= split.has_value();
    return split.has_value();
  }

  // Whether it joins two dimensions that a product of its groups would have as two, or has them as two again.
  bool joins(ValueId id) {
    const Node& join = node(id);
    if (join.code != OpCode::reshape) return false;
    const std::optional<Split> split = split_between(join, node(join.operands[0]));
    if (!split || !is_of_groups(*split)) return false;
    const std::optional<ValueId> source = plain(join.operands[0]);
    if (source) values_[index(id)] = {std::nullopt, source, split};
    return source.has_value();
  }
  bool takes_apart(ValueId id) {
    const Node& op = node(id);
    if (op.code != OpCode::reshape) return false;
    const Value& value = values_[index(op.operands[0])];
    if (!value.split || value.plain || split_between(node(op.operands[0]), op) != value.split) return false;
    const std::optional<ValueId> made = apart(op.operands[0]);
    values_[index(id)].plain = made;
    return made.has_value();
  }

  // Whether its result has the two dimensions of an operand, or is a product whose rows are groups.
  bool computes_parted(ValueId id) {
    const Node& op = node(id);
    std::optional<Split> split;
    const auto group = groups_.find(id);
    if (group != groups_.end()) split = group->second;
    for (ValueId operand : op.operands)
      if (values_[index(operand)].split && !values_[index(operand)].plain)
        split = values_[index(operand)].split;
    if (!split) return false;
    Attrs attrs = op.attrs;
    const std::optional<Split> result = result_split(op, *split, group != groups_.end(), attrs);
    if (!result) return false;
    const bool rows = op_info(op.code).kind == OpKind::contraction && split->from_end == 2;
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands) {
      const auto made = rows && !operands.empty() ? beside_groups(operand) : parted(operand, *split);
      if (!made) return false;
      operands.push_back(*made);
    }
    const std::optional<ValueId> made = added(op.code, operands, attrs, parted_name(op));
    if (!made) return false;
    values_[index(id)] = {std::nullopt, made, result};
    found_ |= group != groups_.end();
    return true;
  }

  // The right operand of a product whose rows are groups, which are matrices of their own then.
  std::optional<ValueId> beside_groups(ValueId id) {
    const std::optional<ValueId> made = plain(id);
    if (!made || node(id).type.rank() == 2) return made;
    Ints shape = node(id).type.shape;
    shape.insert(shape.end() - 2, 1);
    return reshaped(*made, OpCode::reshape, shape, parted_name(node(id)));
  }

  // Where the result of an operator has the dimensions that its operands have in two; `attrs` become those for them.
  std::optional<Split> result_split(const Node& op, const Split& split, bool grouped, Attrs& attrs) const {
    const OpKind kind = op_info(op.code).kind;
    const Node& first = node(op.operands[0]);
    if (kind == OpKind::elementwise || kind == OpKind::conversion) return split;
    if (kind == OpKind::contraction) {
      const bool matrices = std::all_of(op.operands.begin(), op.operands.end(),
                                        [&](ValueId operand) { return node(operand).type.rank() >= 2; });
      if (!matrices || split.from_end < 2) return std::nullopt;
      if (split.from_end > 2) return split;
      const bool rows = grouped || values_[index(op.operands[0])].split == split;
      return rows && first.type.rank() >= node(op.operands[1]).type.rank() ? std::optional(split)
                                                                           : std::nullopt;
    }
    if (!values_[index(op.operands[0])].split) return std::nullopt;
    const auto dim = static_cast<int64_t>(split.dim(first));
    Split out = split;
    if (op.code == OpCode::transpose) {
      attrs.perm = Ints();
      for (size_t j = 0; j < op.attrs.perm->size(); ++j) {
        const int64_t from = (*op.attrs.perm)[j];
        attrs.perm->push_back(from > dim ? from + 1 : from);
        if (from != dim) continue;
        attrs.perm->push_back(dim + 1);
        out.from_end = first.type.rank() - static_cast<int64_t>(j);
      }
      return out;
    }
    if (!op.attrs.axis || (kind != OpKind::reduction && kind != OpKind::composite)) return std::nullopt;
    // Weights of norms lie along the axes.
    for (size_t i = 1; i < op.operands.size(); ++i)
      if (values_[index(op.operands[i])].split) return std::nullopt;
    const bool drops =
        (kind == OpKind::reduction || op.code == OpCode::reduce_mean) && !op.attrs.keepdims.value_or(false);
    for (int64_t& axis : *attrs.axis) {
      if (axis == dim) return std::nullopt;
      out.from_end -= drops && axis > dim;
      axis += axis > dim;
    }
    return out;
  }

  const bool repetitions_;
  std::vector<Value> values_;
  std::map<ValueId, Split> groups_;  // products whose result is to have two dimensions
  bool found_ = false;
};

// Whether the rows and matrices of a product have more dimensions than a grid has axes, so that some would be
// tiles' own: what is repeated is written to memory rather.
bool has_too_many_matrices(const Graph& graph) {
  constexpr int64_t kAxes = kGridAxes - 1;  // the last one is that of clusters
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    const Ints& shape = node.type.shape;
    return node.code == OpCode::matmul && node.type.rank() > kAxes &&
           std::count_if(shape.begin(), shape.end() - 1, [](int64_t extent) { return extent > 1; }) > kAxes;
  });
}

}  // namespace

Graph regroup(const Graph& graph) {
  std::optional<Graph> made = Regrouper(graph, true).run();
  if (made && has_too_many_matrices(*made)) made = Regrouper(graph, false).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
