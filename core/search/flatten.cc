#include "core/search/flatten.h"

#include <algorithm>

#include "core/base/wgmma.h"
#include "core/search/rewriter.h"

namespace quern {

namespace {

using Nodes = std::set<ValueId>;

class Flattener : CopyingRewriter {
 public:
  explicit Flattener(const Graph& graph)
      : CopyingRewriter(graph), readers_(readers()), flat_(graph.nodes.size()) {}

  // Nothing if no product has such rows, or what is made is too large for a graph.
  std::optional<Graph> run() {
    Nodes seen;
    for (ValueId id = 0; id < end(); ++id)
      if (is_product_of_rows(id) && !seen.count(id)) {
        Nodes together = computed_with(id);
        seen.insert(together.begin(), together.end());
        leave_to_readers(together);
        if (keeps_products(together)) flattened_.insert(together.begin(), together.end());
      }
    if (flattened_.empty()) return std::nullopt;
    return rewritten([this](ValueId id) { return made(id); });
  }

 private:
  OpKind kind(ValueId id) const { return op_info(node(id).code).kind; }
  const Ints& shape(ValueId id) const { return node(id).type.shape; }
  bool is_flattened(ValueId id) const { return flattened_.count(id) > 0; }

  Ints flat_shape(ValueId id) const {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < shape(id).size(); ++d) rows *= shape(id)[d];
    return {rows, shape(id).back()};
  }
  bool has_rows_of(ValueId a, ValueId b) const {
    return shape(a).size() == shape(b).size() && shape(a).size() > 2 &&
           std::equal(shape(a).begin(), shape(a).end() - 1, shape(b).begin());
  }
  // Whether all rows have the same of it.
  bool is_same_in_rows(ValueId id) const {
    return node(id).type.literal || shape(id).size() < 2 ||
           std::all_of(shape(id).begin(), shape(id).end() - 1, [](int64_t extent) { return extent == 1; });
  }

  // Whether rows in one dimension are all that changes with these operators.
  bool can_be_flat(ValueId id) const {
    const Node& op = node(id);
    if (op.type.rank() < 3 || op.operands.empty()) return false;
    const bool dense = std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId operand) {
      return !has_rows_of(operand, id) || node(operand).code != OpCode::input ||
             has_dense_rows(node(operand));
    });
    if (!dense) return false;
    switch (kind(id)) {
      case OpKind::contraction:
        return has_rows_of(op.operands[0], id) && shape(op.operands[1]).size() == 2;
      case OpKind::elementwise:
      case OpKind::conversion:
        return std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId operand) {
          return has_rows_of(operand, id) || is_same_in_rows(operand);
        });
      case OpKind::composite:
      case OpKind::reduction:
        return has_rows_of(op.operands[0], id) && op.attrs.axis == Ints{op.type.rank() - 1} &&
               std::all_of(op.operands.begin() + 1, op.operands.end(),
                           [&](ValueId operand) { return is_same_in_rows(operand); });
      default:
        return false;
    }
  }
  // Of an input: whether its rows are as far from each other as if they were all of one matrix.
  static bool has_dense_rows(const Node& input) {
    if (input.strides.empty()) return true;
    for (size_t d = 0; d + 2 < input.strides.size(); ++d)
      if (input.strides[d] != input.strides[d + 1] * input.type.shape[d + 1]) return false;
    return true;
  }
  bool is_product_of_rows(ValueId id) const {
    return kind(id) == OpKind::contraction && can_be_flat(id) &&
           std::count_if(shape(id).begin(), shape(id).end() - 1, [](int64_t extent) { return extent > 1; }) >
               1;
  }

  // A product of rows, and what is computed with these rows that can be flat, too.
  Nodes computed_with(ValueId product) const {
    Nodes together, left = {product};
    while (!left.empty()) {
      const ValueId id = *left.begin();
      left.erase(left.begin());
      if (!together.insert(id).second) continue;
      Nodes around = readers_[index(id)];
      around.insert(node(id).operands.begin(), node(id).operands.end());
      for (ValueId other : around)
        if (has_rows_of(other, id) && can_be_flat(other) && !together.count(other)) left.insert(other);
    }
    return together;
  }
  // Whether it is a product that keeps its rows where they are, or one is computed of it.
  bool is_for_products(ValueId value, const Nodes& together) const {
    Nodes seen;
    for (Nodes left = {value}; !left.empty();) {
      const ValueId id = *left.begin();
      left.erase(left.begin());
      if (together.count(id) || kind(id) == OpKind::movement || !seen.insert(id).second) continue;
      if (kind(id) != OpKind::contraction)
        left.insert(readers_[index(id)].begin(), readers_[index(id)].end());
      else if (!is_product_of_rows(id))
        return true;
    }
    return false;
  }
  // What is computed behind the products for others alone stays with these.
  void leave_to_readers(Nodes& together) const {
    for (auto id = together.rbegin(); id != together.rend();) {
      const Nodes& readers = readers_[index(*id)];
      const bool for_others = !is_output(*id) && !readers.empty() && kind(*id) != OpKind::contraction &&
                              std::all_of(readers.begin(), readers.end(), [&](ValueId reader) {
                                return !together.count(reader) && kind(reader) != OpKind::movement &&
                                       !is_for_products(reader, together);
                              });
      id = for_others ? std::make_reverse_iterator(together.erase(std::next(id).base())) : std::next(id);
    }
  }
  // Of a matrix: fewer than tensor cores take at a time, so that all of its rows are worth a pass over what they make.
  bool has_few_rows(ValueId product) const {
    return std::all_of(shape(product).begin(), shape(product).end() - 1,
                       [](int64_t extent) { return extent < kWgmmaRows; });
  }
  // Whether it is a product, or computed of one element by element.
  bool is_of_product(ValueId value) const {
    Nodes seen;
    for (Nodes left = {value}; !left.empty();) {
      const ValueId id = *left.begin();
      left.erase(left.begin());
      if (!seen.insert(id).second || shape(id) != shape(value)) continue;
      if (kind(id) == OpKind::contraction) return true;
      if (kind(id) == OpKind::elementwise || kind(id) == OpKind::conversion)
        left.insert(node(id).operands.begin(), node(id).operands.end());
    }
    return false;
  }
  // Whether no other product is behind or in front of these, with nothing between them that computes otherwise than element by
  // element; or none but what is computed of single values, or reduced, where all products have few rows.
  bool keeps_products(const Nodes& together) const {
    const bool few = std::all_of(together.begin(), together.end(), [&](ValueId id) {
      return kind(id) != OpKind::contraction || has_few_rows(id);
    });
    const auto is_inside = [&](ValueId other) { return together.count(other) > 0; };
    return std::all_of(together.begin(), together.end(), [&](ValueId id) {
      const auto& readers = readers_[index(id)];
      const auto& operands = node(id).operands;
      return std::all_of(readers.begin(), readers.end(),
                         [&](ValueId reader) {
                           return is_inside(reader) || kind(reader) == OpKind::movement ||
                                  (few && !is_for_products(reader, together));
                         }) &&
             std::all_of(operands.begin(), operands.end(), [&](ValueId operand) {
               return is_inside(operand) || !has_rows_of(operand, id) ||
                      (few ? kind(operand) != OpKind::contraction : !is_of_product(operand));
             });
    });
  }

  ValueId reshaped(ValueId value, const Ints& to, const std::string& name) {
    if (builder_.graph().node(value).type.shape == to) return value;
    Attrs attrs;
    attrs.shape = to;
    return add(OpCode::reshape, {value}, attrs, name);
  }

  // What a value becomes for those that read it as it is; -1 if nobody does.
  ValueId made(ValueId id) {
    const Node& op = node(id);
    if (is_flattened(id)) {
      flat_[index(id)] = computed_flat(id);
      return is_read_as_it_is(id) ? reshaped(*flat_[index(id)], op.type.shape, op.name) : ValueId{-1};
    }
    if (op.code != OpCode::reshape) return copy(id);
    if (!is_read_as_it_is(id)) return -1;
    return is_flattened(op.operands[0]) && !is_output(id)
               ? reshaped(*flat_[index(op.operands[0])], op.type.shape, op.name)
               : copy(id);
  }
  // Reshapes take their operand flat, and are made flat at once.
  bool is_read_as_it_is(ValueId id) const {
    const Nodes& readers = readers_[index(id)];
    if (is_output(id) || readers.empty()) return true;
    const bool is_reshape = node(id).code == OpCode::reshape;
    return std::any_of(readers.begin(), readers.end(), [&](ValueId reader) {
      if (is_flattened(reader)) return is_reshape && shape(id).size() < 3;
      return !is_flattened(id) || node(reader).code != OpCode::reshape || is_output(reader);
    });
  }

  ValueId computed_flat(ValueId id) {
    const Node& op = node(id);
    std::vector<ValueId> operands;
    for (ValueId operand : op.operands)
      operands.push_back(shape(operand).size() < 3 ? became(operand) : flat(operand));
    Attrs attrs = op.attrs;
    if (attrs.axis) attrs.axis = Ints{1};
    return add(op.code, operands, attrs, is_read_as_it_is(id) ? unused(op.name + "_flat") : op.name);
  }
  ValueId flat(ValueId id) {
    std::optional<ValueId>& value = flat_[index(id)];
    if (value) return *value;
    const Node& source = node(id);
    const bool again = source.code == OpCode::reshape;
    const ValueId from = again ? source.operands[0] : id;
    const ValueId whole = again && is_flattened(from) ? *flat_[index(from)] : became(from);
    value = reshaped(whole, flat_shape(id), unused(source.name + "_flat"));
    return *value;
  }

  std::vector<Nodes> readers_;
  Nodes flattened_;
  std::vector<std::optional<ValueId>> flat_;  // once it was asked for
};

}  // namespace

Graph flatten_rows(const Graph& graph) {
  std::optional<Graph> made = Flattener(graph).run();
  return made ? std::move(*made) : graph;
}

}  // namespace quern
