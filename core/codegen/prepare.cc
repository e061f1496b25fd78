#include "core/codegen/prepare.h"

#include <algorithm>

#include "core/base/integers.h"
#include "core/codegen/tiles.h"

namespace quern {

namespace {

class Preparer {
 public:
  Preparer(const Graph& from, const Target& target) : from_(from), target_(target) {}

  Graph run() {
    to_.name = from_.name;
    const std::vector<bool> live = find_live();
    renumbered_.assign(from_.nodes.size(), -1);
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (!live[i]) continue;
      Node node = from_.nodes[i];
      for (ValueId& operand : node.operands) operand = renumbered_[static_cast<size_t>(operand)];
      const std::string name = node.name;
      renumbered_[i] = rewrite(std::move(node));
      if (!name.empty()) to_.nodes[static_cast<size_t>(renumbered_[i])].name = name;
    }
    for (ValueId id : from_.inputs) to_.inputs.push_back(renumbered_[static_cast<size_t>(id)]);
    for (ValueId id : from_.outputs) to_.outputs.push_back(output(renumbered_[static_cast<size_t>(id)]));
    return std::move(to_);
  }

 private:
  std::vector<bool> find_live() const {
    std::vector<bool> live(from_.nodes.size());
    for (ValueId id : from_.inputs) live[static_cast<size_t>(id)] = true;
    for (ValueId id : from_.outputs) live[static_cast<size_t>(id)] = true;
    for (size_t i = from_.nodes.size(); i-- > 0;)
      if (live[i])
        for (ValueId operand : from_.nodes[i].operands) live[static_cast<size_t>(operand)] = true;
    return live;
  }

  const TensorType& type(ValueId id) const { return to_.node(id).type; }

  ValueId append(Node node) {
    to_.nodes.push_back(std::move(node));
    return static_cast<ValueId>(to_.nodes.size()) - 1;
  }

  ValueId move(OpCode code, ValueId x, Ints shape, Ints perm = {}) {
    Node node;
    node.code = code;
    node.operands = {x};
    node.type = {type(x).dtype, shape};
    if (code == OpCode::transpose)
      node.attrs.perm = std::move(perm);
    else
      node.attrs.shape = std::move(shape);
    return append(std::move(node));
  }
  ValueId reshape(ValueId x, Ints shape) {
    return shape == type(x).shape ? x : move(OpCode::reshape, x, shape);
  }
  ValueId transpose(ValueId x, Ints perm) {
    Ints shape;
    for (int64_t axis : perm) shape.push_back(type(x).shape[static_cast<size_t>(axis)]);
    return move(OpCode::transpose, x, shape, perm);
  }

  ValueId number(double value, const TensorType& like) {
    Node node;
    node.code = OpCode::constant;
    node.type = {like.dtype, {}};
    node.number = value;
    return move(OpCode::broadcast, append(std::move(node)), like.shape);
  }

  // Inputs, numbers and what is an output already are copied, so that every output is a value of its own.
  ValueId output(ValueId id) {
    const bool leaf = op_info(to_.node(id).code).kind == OpKind::leaf;
    const bool repeated = std::find(to_.outputs.begin(), to_.outputs.end(), id) != to_.outputs.end();
    return leaf || repeated ? move(OpCode::reshape, id, type(id).shape) : id;
  }

  ValueId rewrite(Node node) {
    const OpKind kind = op_info(node.code).kind;
    if (node.type.element_count() == 0) return append(std::move(node));
    if (kind == OpKind::reduction) return rewrite_reduction(std::move(node));
    if (kind == OpKind::contraction) return rewrite_matmul(node);
    return append(std::move(node));
  }

  // A reduction of `x` over one axis, which disappears.
  ValueId reduce(OpCode code, ValueId x, int64_t axis, DType dtype) {
    Node node;
    node.code = code;
    node.operands = {x};
    node.attrs.axis = Ints{axis};
    node.attrs.keepdims = false;
    node.type = {dtype, type(x).shape};
    node.type.shape.erase(node.type.shape.begin() + axis);
    return append(std::move(node));
  }

  ValueId rewrite_reduction(Node node) {
    const TensorType x = type(node.operands[0]);
    if (x.element_count() == 0) return number(reduction_identity(node.code, node.type.dtype), node.type);
    if (x.element_count() == node.type.element_count()) {
      const ValueId same = move(OpCode::reshape, node.operands[0], node.type.shape);
      to_.nodes[static_cast<size_t>(same)].type.dtype = node.type.dtype;
      return same;
    }
    const Ints& axes = *node.attrs.axis;
    const auto longest = std::max_element(axes.begin(), axes.end(), [&](int64_t a, int64_t b) {
      return x.shape[static_cast<size_t>(a)] < x.shape[static_cast<size_t>(b)];
    });
    const size_t axis = static_cast<size_t>(*longest);
    const int64_t parts =
        reduction_parts(node.type.element_count(), x.element_count() / node.type.element_count(),
                        reduces_neighbours(x.shape, axes));
    if (parts < 2 || keeps_row(target_, x.shape, axes) || x.shape[axis] < 2 * parts)
      return append(std::move(node));
    return split_reduction(std::move(node), axis, parts);
  }

  // [.., L, ..] is [.., parts, L / parts, ..]: summed over all axes but `parts`, then over that. What is
  // missing at the end is filled with the identity.
  ValueId split_reduction(Node node, size_t axis, int64_t parts) {
    ValueId x = node.operands[0];
    const int64_t extent = type(x).shape[axis], part = divide_up(extent, parts);
    if (part * parts != extent) {
      Node padded;
      padded.code = OpCode::concat;
      padded.attrs.axis = Ints{static_cast<int64_t>(axis)};
      padded.type = {node.type.dtype, type(x).shape};
      padded.type.shape[axis] = part * parts - extent;
      padded.operands = {x, number(reduction_identity(node.code, node.type.dtype), padded.type)};
      padded.type.shape[axis] = part * parts;
      x = append(std::move(padded));
    }
    Ints shape = type(x).shape;
    shape[axis] = parts;
    shape.insert(shape.begin() + static_cast<int64_t>(axis) + 1, part);
    Node first;
    first.code = node.code;
    first.operands = {reshape(x, shape)};
    first.attrs.axis = Ints{};
    first.attrs.keepdims = false;
    first.type.dtype = register_dtype(node.type.dtype);
    int64_t parts_axis = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      const size_t old = i > axis ? i - 1 : i;
      const bool reduced = i != axis && std::count(node.attrs.axis->begin(), node.attrs.axis->end(), old);
      if (reduced)
        first.attrs.axis->push_back(static_cast<int64_t>(i));
      else
        first.type.shape.push_back(shape[i]);
      if (i < axis && !reduced) ++parts_axis;
    }
    const ValueId sums = append(std::move(first));
    return reshape(reduce(node.code, sums, parts_axis, node.type.dtype), node.type.shape);
  }

  static DType register_dtype(DType dtype) { return is_float(dtype) ? DType::f32 : dtype; }

  ValueId rewrite_matmul(const Node& node) {
    ValueId a = node.operands[0], b = node.operands[1];
    if (type(a).rank() == 1) a = reshape(a, {1, type(a).shape[0]});
    if (type(b).rank() == 1) b = reshape(b, {type(b).shape[0], 1});
    if (type(a).shape.back() == 0) return number(0, node.type);
    const Ints batch_b(type(b).shape.begin(), type(b).shape.end() - 2);
    const bool shared =
        std::all_of(batch_b.begin(), batch_b.end(), [](int64_t extent) { return extent == 1; });
    if (shared) {
      const int64_t k = type(a).shape.back(), rows = type(a).element_count() / k;
      a = reshape(a, {rows, k});
      b = reshape(b, {k, type(b).shape.back()});
    }
    return reshape(product(a, b, node.type.dtype), node.type.shape);
  }

  ValueId matmul(ValueId a, ValueId b, DType dtype) {
    Ints shape = type(a).shape;
    const Ints& other = type(b).shape;
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (size_t i = 2; i < other.size(); ++i) {
      int64_t& extent = shape[shape.size() - 1 - i];
      if (extent == 1) extent = other[other.size() - 1 - i];
    }
    shape.back() = other.back();
    Node node;
    node.code = OpCode::matmul;
    node.operands = {a, b};
    node.type = {dtype, std::move(shape)};
    return append(std::move(node));
  }

  // [.., m, k] x [.., k, n], in parts along k where one product would leave most of a GPU idle.
  ValueId product(ValueId a, ValueId b, DType dtype) {
    const int64_t k = type(a).shape.back(), m = type(a).shape[type(a).shape.size() - 2],
                  n = type(b).shape.back();
    int64_t batch = std::max(type(a).element_count() / (m * k), type(b).element_count() / (k * n));
    const ProductUnit unit = product_unit(type(a).dtype, type(b).dtype);
    const int64_t parts = matmul_parts(choose_tile(m, n, unit), unit, batch, m, n, k);
    if (parts < 2) return matmul(a, b, dtype);
    const size_t rank = std::max(type(a).shape.size(), type(b).shape.size());
    const ValueId split_a = split_k(with_rank(a, rank), true, parts),
                  split_b = split_k(with_rank(b, rank), false, parts);
    return reduce(OpCode::reduce_sum, matmul(split_a, split_b, register_dtype(dtype)), 0, dtype);
  }

  ValueId with_rank(ValueId x, size_t rank) {
    Ints shape = type(x).shape;
    shape.insert(shape.begin(), rank - shape.size(), 1);
    return reshape(x, shape);
  }

  // [.., m, k] -> [parts, .., m, k / parts], or for the right operand [.., k, n] -> [parts, .., k / parts,
  // n].
  ValueId split_k(ValueId x, bool left, int64_t parts) {
    Ints shape = type(x).shape;
    const size_t at = left ? shape.size() - 1 : shape.size() - 2;
    shape[at] /= parts;
    shape.insert(shape.begin() + static_cast<int64_t>(at), parts);
    Ints perm = {static_cast<int64_t>(at)};
    for (size_t i = 0; i < shape.size(); ++i)
      if (i != at) perm.push_back(static_cast<int64_t>(i));
    return transpose(reshape(x, shape), perm);
  }

  const Graph& from_;
  const Target& target_;
  Graph to_;
  std::vector<ValueId> renumbered_;
};

}  // namespace

Graph prepare(const Graph& graph, const Target& target) { return Preparer(graph, target).run(); }

}  // namespace quern
