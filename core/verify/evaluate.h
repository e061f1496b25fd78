// Evaluates a graph over any domain of values: real numbers, perturbed numbers, finite fields.
//
// A Domain has
//   using Value
//   Value number(double value, DType dtype)                       a constant or an index, exact in `dtype`
//   Value apply(OpCode, DType compute, const Value* operands)     an elementwise operator, operands already
//   converted Value convert(Value, DType from, DType to)                    between compute types (f32, i32,
//   boolean), no rounding Value cast(Value, DType from, DType to)                       the operator `cast`
//   Value zero(DType), Value add(Value, Value, DType)             sums of a matmul
//   Value multiply(Value, Value, DType)                           products of a matmul that has this dtype
//   Value identity(OpCode, DType)                                 of a reduction
//   Value combine(OpCode, Value, Value, DType)                    what a reduction makes of two values
//   Value finish(Value, const Node&)                              called once for every element a node has
//   computed
//   void begin_sums(int64_t terms, bool of_products)              optional: in front of the sums of a node
//   Value shared(Value)                                           optional: of an element that several read
//   void at(const std::string& name)                              optional: in front of the elements of a
//   `where`
//   bool stopped_before(int64_t elements)                       optional: in front of so many; once true, results
//   are incomplete (stop.h)
#pragma once

#include <span>
#include <vector>

#include "core/graph/graph.h"

namespace quern {

// Elements in row-major order.
template <class Value>
using Elements = std::vector<Value>;

// For every element of `shape` in row-major order, calls f(offset) with the dot product of its coordinates
// and `strides`, plus `start`.
template <class F>
void for_each_offset(const Ints& shape, const Ints& strides, int64_t start, F f) {
  for (int64_t extent : shape)
    if (extent == 0) return;
  Ints index(shape.size(), 0);
  int64_t offset = start;
  for (;;) {
    f(offset);
    size_t d = shape.size();
    while (d-- > 0) {
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= strides[d] * shape[d];
      index[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return;
  }
}

// The dtype a value of `dtype` computes in.
inline DType compute_class(DType dtype) { return is_float(dtype) ? DType::f32 : dtype; }

namespace internal {

// Strides with which an operand of `shape` is read at the coordinates of `result`: 0 where it broadcasts.
inline Ints broadcast_strides(const Ints& shape, const Ints& result) {
  Ints strides = dense_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) strides[d] = 0;
  strides.insert(strides.begin(), result.size() - shape.size(), 0);
  return strides;
}

template <class Domain>
class Evaluator {
 public:
  using Value = typename Domain::Value;
  using Tensor = Elements<Value>;

  Evaluator(const Graph& graph, Domain& domain)
      : graph_(graph), domain_(domain), values_(graph.nodes.size()) {}

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    const std::vector<size_t> last_use = last_uses();
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      if (last_use[graph_.inputs[i]] != kUnused) values_[graph_.inputs[i]] = inputs[i];
    for (size_t id = 0; id < graph_.nodes.size() && !stopped_before(1); ++id) {
      const Node& node = graph_.nodes[id];
      if (node.code == OpCode::input) continue;
      if (last_use[id] == kUnused) continue;
      values_[id] = compute(node);
      if (node.code != OpCode::constant)
        for (Value& value : values_[id]) value = domain_.finish(value, node);
      for (ValueId operand : node.operands)
        if (last_use[operand] == id) Tensor().swap(values_[operand]);
    }
    std::vector<Tensor> outputs;
    for (ValueId id : graph_.outputs) outputs.push_back(values_[id]);
    return outputs;
  }

 private:
  static constexpr size_t kUnused = static_cast<size_t>(-2), kOutput = static_cast<size_t>(-1);

  bool stopped_before([[maybe_unused]] int64_t elements) {
    if constexpr (requires { domain_.stopped_before(elements); })
      return domain_.stopped_before(elements);
    else
      return false;
  }

  // The last node that reads each value; dead values are not computed.
  std::vector<size_t> last_uses() const {
    std::vector<size_t> last(graph_.nodes.size(), kUnused);
    for (ValueId id : graph_.outputs) last[id] = kOutput;
    for (size_t id = graph_.nodes.size(); id-- > 0;)
      if (last[id] != kUnused)
        for (ValueId operand : graph_.nodes[id].operands)
          if (last[operand] == kUnused) last[operand] = id;
    return last;
  }

  const Node& operand(const Node& node, size_t i) const { return graph_.node(node.operands[i]); }
  const Tensor& value(const Node& node, size_t i) const { return values_[node.operands[i]]; }

  // Operand i converted to the compute class of `to`.
  Value read(const Node& node, size_t i, int64_t offset, DType to) {
    return domain_.convert(value(node, i)[offset], compute_class(operand(node, i).type.dtype),
                           compute_class(to));
  }

  Value shared(const Value& value, [[maybe_unused]] bool repeats) {
    if constexpr (requires { domain_.shared(value); })
      return repeats ? domain_.shared(value) : value;
    else
      return value;
  }

  Tensor compute(const Node& node) {
    switch (op_info(node.code).kind) {
      case OpKind::elementwise:
        return elementwise(node);
      case OpKind::contraction:
        return matmul(node);
      case OpKind::reduction:
        return reduce(node);
      case OpKind::conversion:
        return cast(node);
      default:
        break;
    }
    switch (node.code) {
      case OpCode::constant:
        return {domain_.number(node.number, node.type.dtype)};
      case OpCode::iota:
        return iota(node);
      case OpCode::reshape:
        return value(node, 0);
      case OpCode::concat:
        return concat(node);
      case OpCode::transpose:
        return gather(node, transposed_strides(node), 0);
      case OpCode::broadcast:
        return gather(node, broadcast_strides(operand(node, 0).type.shape, node.type.shape), 0);
      case OpCode::slice:
        return slice(node);
      default:
        fatal(__FILE__, __LINE__, "the evaluator takes decomposed graphs");
    }
  }

  Tensor elementwise(const Node& node) {
    const std::vector<TensorType> types = graph_.operand_types(node);
    const DType compute = compute_dtype(node.code, types);
    const size_t arity = types.size();
    std::vector<std::vector<int64_t>> offsets(arity);
    Tensor result;
    const int64_t count = node.type.element_count();
    result.reserve(count);
    for (size_t i = 0; i < arity; ++i) {
      offsets[i].reserve(count);
      for_each_offset(node.type.shape, broadcast_strides(types[i].shape, node.type.shape), 0,
                      [&](int64_t offset) { offsets[i].push_back(offset); });
    }
    std::vector<bool> repeats(arity);
    for (size_t i = 0; i < arity; ++i) repeats[i] = types[i].element_count() < count;
    const bool select = op_info(node.code).result == ResultRule::select;
    if constexpr (requires { domain_.at(node.name); })
      if (select) domain_.at(node.name);
    for (int64_t at = 0; at < count && !stopped_before(1); ++at) {
      Value operands[3] = {domain_.zero(compute), domain_.zero(compute), domain_.zero(compute)};
      for (size_t i = 0; i < arity; ++i)
        operands[i] = shared(read(node, i, offsets[i][at], select && i == 0 ? DType::boolean : compute), repeats[i]);
      result.push_back(domain_.apply(node.code, compute, operands));
    }
    return result;
  }

  Tensor matmul(const Node& node) {
    Ints a = operand(node, 0).type.shape, b = operand(node, 1).type.shape, out = node.type.shape;
    if (a.size() == 1) a.insert(a.begin(), 1), out.insert(out.end() - (b.size() > 1), 1);
    if (b.size() == 1) b.push_back(1), out.push_back(1);
    const int64_t rows = out[out.size() - 2], columns = out.back(), inner = a.back();
    const Ints batch(out.begin(), out.end() - 2);
    auto batch_offsets = [&](const Ints& shape, int64_t matrix) {
      const Ints own(shape.begin(), shape.end() - 2);
      std::vector<int64_t> offsets;
      for_each_offset(batch, broadcast_strides(own, batch), 0,
                      [&](int64_t at) { offsets.push_back(at * matrix); });
      return offsets;
    };
    const auto a_at = batch_offsets(a, rows * inner), b_at = batch_offsets(b, inner * columns);
    const DType compute = compute_class(node.type.dtype),
                right_class = compute_class(operand(node, 1).type.dtype);
    Tensor result(node.type.element_count(), domain_.zero(compute));
    begin_sums(inner, true);
    for (size_t i = 0; i < a_at.size(); ++i)
      for (int64_t row = 0; row < rows; ++row) {
        Value* sums = result.data() + (i * rows + row) * columns;
        for (int64_t k = 0; k < inner && !stopped_before(columns); ++k) {
          const Value left = read(node, 0, a_at[i] + row * inner + k, compute);
          const Value* right = value(node, 1).data() + (b_at[i] + k * columns);
          for (int64_t column = 0; column < columns; ++column)
            sums[column] = domain_.add(
                sums[column],
                domain_.multiply(left, domain_.convert(right[column], right_class, compute), node.type.dtype),
                compute);
        }
      }
    return result;
  }

  void begin_sums(int64_t terms, bool of_products) {
    if constexpr (requires { domain_.begin_sums(terms, of_products); })
      domain_.begin_sums(terms, of_products);
  }

  Tensor reduce(const Node& node) {
    const Ints& shape = operand(node, 0).type.shape;
    const DType compute = compute_class(node.type.dtype);
    Ints kept = shape;
    for (int64_t axis : *node.attrs.axis) kept[axis] = 1;
    Tensor result(node.type.element_count(), domain_.identity(node.code, compute));
    begin_sums(static_cast<int64_t>(value(node, 0).size() / std::max<size_t>(result.size(), 1)), false);
    int64_t at = 0;
    for_each_offset(shape, broadcast_strides(kept, shape), 0, [&](int64_t to) {
      if (stopped_before(1)) return;
      result[to] = domain_.combine(node.code, result[to], read(node, 0, at++, compute), compute);
    });
    return result;
  }

  Tensor cast(const Node& node) {
    if (node.keeps_precision) return value(node, 0);
    Tensor result;
    for (const Value& element : value(node, 0))
      result.push_back(domain_.cast(element, operand(node, 0).type.dtype, node.type.dtype));
    return result;
  }

  Tensor iota(const Node& node) {
    Ints strides(node.type.shape.size(), 0);
    strides[node.attrs.axis->front()] = 1;
    Tensor result;
    for_each_offset(node.type.shape, strides, 0, [&](int64_t index) {
      result.push_back(domain_.number(static_cast<double>(index), node.type.dtype));
    });
    return result;
  }

  Tensor gather(const Node& node, const Ints& strides, int64_t start) {
    Tensor result;
    const bool repeats = operand(node, 0).type.element_count() < node.type.element_count();
    for_each_offset(node.type.shape, strides, start,
                    [&](int64_t offset) { result.push_back(shared(value(node, 0)[offset], repeats)); });
    return result;
  }

  Ints transposed_strides(const Node& node) const {
    const Ints dense = dense_strides(operand(node, 0).type.shape);
    Ints strides;
    for (int64_t axis : *node.attrs.perm) strides.push_back(dense[axis]);
    return strides;
  }

  Tensor slice(const Node& node) {
    Ints strides = dense_strides(operand(node, 0).type.shape);
    int64_t start = 0;
    for (size_t d = 0; d < strides.size(); ++d) {
      start += (*node.attrs.start)[d] * strides[d];
      strides[d] *= (*node.attrs.step)[d];
    }
    return gather(node, strides, start);
  }

  Tensor concat(const Node& node) {
    const size_t axis = node.attrs.axis->front();
    const Ints strides = dense_strides(node.type.shape);
    Tensor result(node.type.element_count(), domain_.zero(compute_class(node.type.dtype)));
    int64_t start = 0;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Ints& shape = operand(node, i).type.shape;
      int64_t at = 0;
      for_each_offset(shape, strides, start,
                      [&](int64_t to) { result[to] = read(node, i, at++, node.type.dtype); });
      start += shape[axis] * strides[axis];
    }
    return result;
  }

  const Graph& graph_;
  Domain& domain_;
  std::vector<Tensor> values_;
};

}  // namespace internal

// The outputs of a decomposed graph (core/graph/decompose.h), in order.
template <class Domain>
std::vector<Elements<typename Domain::Value>> evaluate(
    const Graph& graph, Domain& domain, const std::vector<Elements<typename Domain::Value>>& inputs) {
  return internal::Evaluator<Domain>(graph, domain).run(inputs);
}

}  // namespace quern
