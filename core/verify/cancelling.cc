#include "core/verify/cancelling.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/dtype_info.h"
#include "core/base/random.h"
#include "core/verify/needed.h"
#include "core/verify/real_domains.h"

namespace quern {

namespace {

constexpr int kBitsLeft = 3;  // of the mantissa of what cancels

// A sum one of whose operands is an input, moved at most, that the other is not made of.
struct CancellingSum {
  ValueId id;
  size_t input, side;  // of its operands
};

// The input that each value is a movement or a cast of.
std::vector<std::optional<size_t>> moved_inputs(const Graph& graph, const std::vector<RealTensor>& inputs,
                                                size_t count) {
  std::vector<std::optional<size_t>> of(graph.nodes.size());
  for (size_t i = 0; i < count; ++i)
    if (!inputs[i].empty()) of[graph.inputs[i]] = i;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const OpKind kind = op_info(node.code).kind;
    const bool moves = kind == OpKind::movement || kind == OpKind::conversion;
    if (moves && node.operands.size() == 1) of[id] = of[node.operands[0]];
    if (!is_float(node.type.dtype)) of[id].reset();
  }
  return of;
}

std::vector<CancellingSum> cancelling_sums(const Graph& graph, const std::vector<RealTensor>& inputs,
                                           size_t count) {
  const std::vector<std::optional<size_t>> moved = moved_inputs(graph, inputs, count);
  const std::vector<bool> live = needed_values(graph, graph.outputs);  // of others inputs may be missing
  std::vector<CancellingSum> sums;
  for (ValueId id = 0; id < static_cast<ValueId>(graph.nodes.size()); ++id) {
    const Node& node = graph.node(id);
    const bool adds = node.code == OpCode::add || node.code == OpCode::sub;
    if (!live[id] || !adds || !is_float(node.type.dtype)) continue;
    for (size_t side = 0; side < 2; ++side) {
      const std::optional<size_t> input = moved[node.operands[side]];
      if (input && !needed_values(graph, {node.operands[1 - side]})[graph.inputs[*input]])
        sums.push_back({id, *input, side});
    }
  }
  return sums;
}

// An element of the input, or of what is made of one; of a sum also its other operand.
struct Traced {
  double v = 0;
  int64_t element = -1;
  double other = 0;
};

// A domain of evaluate.h: f64, and which element of an input is added to what.
class TracedDomain {
 public:
  using Value = Traced;

  explicit TracedDomain(size_t side) : side_(side) {}

  Traced number(double value, DType dtype) { return {real_.number(value, dtype)}; }
  Traced zero(DType) { return {}; }
  Traced identity(OpCode reduction, DType dtype) { return {real_.identity(reduction, dtype)}; }
  Traced convert(const Traced& x, DType from, DType to) { return {real_.convert(x.v, from, to), x.element}; }
  Traced cast(const Traced& x, DType from, DType to) { return {real_.cast(x.v, from, to), x.element}; }
  Traced apply(OpCode code, DType compute, const Traced* operands) {
    const double values[3] = {operands[0].v, operands[1].v, operands[2].v};
    return {real_.apply(code, compute, values), operands[side_].element, operands[1 - side_].v};
  }
  Traced combine(OpCode reduction, const Traced& a, const Traced& b, DType dtype) {
    return {real_.combine(reduction, a.v, b.v, dtype)};
  }
  Traced add(const Traced& a, const Traced& b, DType dtype) { return {real_.add(a.v, b.v, dtype)}; }
  Traced multiply(const Traced& a, const Traced& b, DType dtype) { return {real_.multiply(a.v, b.v, dtype)}; }
  Traced finish(const Traced& x, const Node&) { return x; }

 private:
  const size_t side_;
  RealDomain real_;
};

// For each element of the input the other operands, in all places where it is read.
std::vector<std::vector<double>> other_operands(Graph graph, const std::vector<RealTensor>& inputs,
                                                const CancellingSum& sum) {
  graph.outputs = {sum.id};
  TracedDomain domain(sum.side);
  std::vector<Elements<Traced>> traced(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t e = 0; e < inputs[i].size(); ++e)
      traced[i].push_back({inputs[i][e], i == sum.input ? static_cast<int64_t>(e) : -1});
  std::vector<std::vector<double>> others(inputs[sum.input].size());
  const Elements<Traced> places = evaluate(graph, domain, traced)[0];
  for (const Traced& place : places) others[static_cast<size_t>(place.element)].push_back(place.other);
  return others;
}

// Of each element the one place. What is read nowhere, or is not finite there, is NaN.
RealTensor at_place(const std::vector<std::vector<double>>& others, uint64_t place) {
  RealTensor at;
  for (const std::vector<double>& each : others) {
    const double value = each.empty() ? NAN : each[place % each.size()];
    at.push_back(std::isfinite(value) ? value : NAN);
  }
  return at;
}

}  // namespace

bool cancel_sum(const Graph& primitive, std::vector<RealTensor>& inputs, size_t count, uint64_t seed,
                int draw) {
  const std::vector<CancellingSum> sums = cancelling_sums(primitive, inputs, count);
  if (sums.empty()) return false;
  const CancellingSum& sum = sums[static_cast<size_t>(draw) % sums.size()];
  Random random(seed);
  const RealTensor others = at_place(other_operands(primitive, inputs, sum), random.bits());
  double largest = 0;
  for (double other : others) largest = std::fmax(largest, std::fabs(other));
  const DType dtype = primitive.node(primitive.inputs[sum.input]).type.dtype;
  const double small = std::ldexp(largest, kBitsLeft - dtype_info(dtype).mantissa);
  const double sign = primitive.node(sum.id).code == OpCode::add ? -1 : 1;
  for (size_t e = 0; e < others.size(); ++e) {
    const double wanted = round_to(dtype, sign * others[e] + small * random.symmetric());
    if (std::isfinite(wanted)) inputs[sum.input][e] = wanted;
  }
  return true;
}

}  // namespace quern
