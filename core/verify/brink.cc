#include "core/verify/brink.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "core/base/dtype_info.h"
#include "core/base/random.h"
#include "core/verify/needed.h"
#include "core/verify/real_domains.h"

namespace quern {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double largest_of(DType dtype) { return dtype_info(is_float(dtype) ? dtype : DType::f32).largest; }

struct Ranged {
  double v = 0;
  double reached = 0;  // of a sum: that of the sizes of its terms so far
};

// A domain of evaluate.h: f64, and how near the values come to the ends of their dtypes.
class RangeDomain {
 public:
  using Value = Ranged;

  // The values of `spared`, if it is a node, may leave the range.
  explicit RangeDomain(const Node* spared) : spared_(spared) {}
  // Of the fullest value, its share of the range; infinite once one has left it.
  double fullest() const { return fullest_; }
  void note(double value, DType dtype) {
    if (std::isfinite(value)) fullest_ = std::max(fullest_, std::fabs(value) / largest_of(dtype));
  }

  Ranged number(double value, DType dtype) { return {real_.number(value, dtype)}; }
  Ranged zero(DType) { return {}; }
  Ranged identity(OpCode reduction, DType dtype) { return {real_.identity(reduction, dtype)}; }
  Ranged convert(const Ranged& x, DType from, DType to) { return {real_.convert(x.v, from, to)}; }
  Ranged cast(const Ranged& x, DType from, DType to) {
    if (is_float(to)) note(x.v, to);
    return {real_.cast(x.v, from, to)};
  }
  Ranged apply(OpCode code, DType compute, const Ranged* operands) {
    const double values[3] = {operands[0].v, operands[1].v, operands[2].v};
    const double result = real_.apply(code, compute, values);
    if (!std::isfinite(result) && std::isfinite(values[0]) && std::isfinite(values[1]) &&
        std::isfinite(values[2]))
      fullest_ = kInfinity;
    return {result};
  }
  Ranged combine(OpCode reduction, const Ranged& a, const Ranged& b, DType dtype) {
    if (op_info(reduction).laws & kLinear) return add(a, b, dtype);
    return {real_.combine(reduction, a.v, b.v, dtype)};
  }
  Ranged add(const Ranged& a, const Ranged& b, DType dtype) {
    const double size = std::isfinite(b.v) ? std::fabs(b.v) : 0;
    return {real_.add(a.v, b.v, dtype), a.reached + size};
  }
  Ranged multiply(const Ranged& a, const Ranged& b, DType dtype) { return {real_.multiply(a.v, b.v, dtype)}; }
  Ranged finish(const Ranged& x, const Node& node) {
    if (!is_float(node.type.dtype)) return {x.v};
    if (&node != spared_) note(x.v, node.type.dtype);
    note(x.reached, DType::f32);
    return {x.v};
  }

 private:
  const Node* spared_;
  RealDomain real_;
  double fullest_ = 0;
};

// What is wanted of the fullest value: its power of two over the largest number.
struct Levels {
  double low, wanted, high;
};
// Near enough to the end that what is larger by a half leaves it, far enough that rounding does not decide.
constexpr Levels kBefore = {-0.3, -0.15, -0.05};
// Far beyond, where infinities go on to outputs.
constexpr Levels kBeyond = {4, 16, 64};

// Sums and products that outputs are made of, one for each set of float inputs, of the first `count`, that
// one is made of, but no output.
std::vector<ValueId> inner_values(const Graph& graph, size_t count) {
  auto inputs_of = [&](const std::vector<bool>& is) {
    std::vector<bool> inputs;
    for (size_t i = 0; i < count; ++i)
      inputs.push_back(is[graph.inputs[i]] && is_float(graph.node(graph.inputs[i]).type.dtype));
    return inputs;
  };
  const std::vector<bool> live = needed_values(graph, graph.outputs);
  std::set<std::vector<bool>> known = {std::vector<bool>(count, false)};
  for (ValueId id : graph.outputs) known.insert(inputs_of(needed_values(graph, {id})));
  std::vector<ValueId> values;
  for (ValueId id = 0; id < static_cast<ValueId>(graph.nodes.size()); ++id) {
    const Node& node = graph.node(id);
    const bool combines =
        node.code == OpCode::matmul || node.code == OpCode::mul || (op_info(node.code).laws & kLinear);
    if (live[id] && combines && is_float(node.type.dtype) &&
        known.insert(inputs_of(needed_values(graph, {id}))).second)
      values.push_back(id);
  }
  return values;
}

// How an input follows the scale.
enum class Follows : int8_t { grows = 1, stays = 0, shrinks = -1 };

double largest(const RealTensor& elements) {
  double most = 0;
  for (double element : elements) most = std::max(most, std::fabs(element));
  return most;
}

class Brink {
 public:
  Brink(const Graph& primitive, const std::vector<RealTensor>& inputs, size_t count, uint64_t seed, int draw)
      : graph_(primitive),
        inputs_(inputs),
        levels_(draw % 4 == 3 ? kBeyond : kBefore),
        follows_(inputs.size(), Follows::stays) {
    Random random(seed);
    std::vector<size_t> scaled;
    for (size_t i = 0; i < count; ++i)
      if (is_float(dtype(i)) && !inputs[i].empty()) scaled.push_back(i);
    constexpr Follows kChoices[] = {Follows::grows, Follows::grows, Follows::stays, Follows::shrinks};
    const int outputs = static_cast<int>(primitive.outputs.size());
    graph_.outputs = {primitive.outputs[static_cast<size_t>(draw / 4 % outputs)]};
    if (draw % 4 == 1) spared_ = &graph_.node(graph_.outputs[0]);
    for (size_t i : scaled)
      follows_[i] = draw < 4 * outputs ? Follows::grows : kChoices[random.below(std::size(kChoices))];
    if (!scaled.empty() && std::find(follows_.begin(), follows_.end(), Follows::grows) == follows_.end())
      follows_[scaled[random.below(scaled.size())]] = Follows::grows;
  }

  // All inputs of one output grow, of elements of nearly one size, and the output may overflow.
  Brink(const Graph& primitive, const std::vector<RealTensor>& inputs, size_t count, ValueId output)
      : graph_(primitive), inputs_(inputs), levels_(kBefore), follows_(inputs.size(), Follows::stays) {
    graph_.outputs = {output};
    spared_ = &graph_.node(output);
    for (size_t i : level_inputs(count, output)) follows_[i] = Follows::grows;
  }

  // Inputs grow or shrink as the value inside grows with them, and all others shrink, so that it alone comes
  // near its end. If not all that can are to grow, the seed says which stay.
  Brink(const Graph& primitive, const std::vector<RealTensor>& inputs, size_t count, ValueId inner,
        uint64_t seed, bool all)
      : graph_(primitive), inputs_(inputs), levels_(kBefore), follows_(inputs.size(), Follows::stays) {
    std::erase_if(graph_.outputs, [&](ValueId output) { return !needed_values(primitive, {output})[inner]; });
    const std::vector<bool> is_needed = needed_values(graph_, graph_.outputs);
    for (size_t i = 0; i < count; ++i)
      if (is_float(dtype(i)) && is_needed[graph_.inputs[i]]) follows_[i] = Follows::shrinks;
    std::vector<size_t> growing;
    for (size_t i : level_inputs(count, inner)) {
      follows_[i] = follows(i, inner);
      if (follows_[i] == Follows::grows) growing.push_back(i);
    }
    if (all || growing.empty()) return;
    Random random(seed);
    const size_t kept = growing[random.below(growing.size())];
    for (size_t i : growing)
      if (i != kept && random.one_in(2)) follows_[i] = Follows::stays;
  }

  // The power of two of the scale at which the fullest value is between the levels, or the nearest one below
  // that was met. By straight lines through logarithms, which is what products are.
  bool find(double& power) const {
    double below = 0, above = kMostPower, level_below = level(below), level_above = kInfinity, slope = 0;
    // Some graphs are beyond it on inputs of moderate size.
    while (!(level_below < levels_.high) && below > kLeastPower) {
      above = below, level_above = level_below;
      below = below * 2 - 1, level_below = level(below);
    }
    if (!(level_below < levels_.high) || !std::isfinite(level_below)) return false;
    for (int step = 0; step < kMostSteps && level_below < levels_.low; ++step) {
      const double width = above - below;
      double next = step == 0 ? 1 : below + width / 2;
      if (std::isfinite(level_above))
        next = std::clamp(below + width * (levels_.wanted - level_below) / (level_above - level_below),
                          below + width / 16, above - width / 16);
      else if (slope > 0)
        next = std::min(next, below + (levels_.wanted - level_below) / slope);
      const double at = level(next);
      if (at < levels_.high) {
        slope = (at - level_below) / (next - below);
        below = next, level_below = at;
      } else {
        above = next, level_above = at;
      }
    }
    power = below;
    return level_below > levels_.low - kUseful;
  }

  std::vector<RealTensor> scaled(double power) const {
    std::vector<RealTensor> inputs = inputs_;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (follows_[i] == Follows::stays) continue;
      const double factor =
          std::exp2(follows_[i] == Follows::grows ? power : -std::min(power, most_shrunk(i)));
      for (double& element : inputs[i]) element = round_to(dtype(i), element * factor);
    }
    return inputs;
  }

 private:
  static constexpr double kUseful = 2;  // as far below is better than nothing
  static constexpr double kLeastPower = -15, kMostPower = 144;
  static constexpr int kMostSteps = 14;

  DType dtype(size_t i) const { return graph_.node(graph_.inputs[i]).type.dtype; }

  // The float inputs that a value is made of, their elements now of nearly one size.
  std::vector<size_t> level_inputs(size_t count, ValueId value) {
    const std::vector<bool> is_needed = needed_values(graph_, {value});
    std::vector<size_t> of_value;
    for (size_t i = 0; i < count; ++i) {
      if (!is_float(dtype(i)) || !is_needed[graph_.inputs[i]]) continue;
      of_value.push_back(i);
      for (double& element : inputs_[i]) element = std::copysign(0.5 + std::fabs(element) / 2, element);
    }
    return of_value;
  }

  // What input i must do for a value to grow.
  Follows follows(size_t i, ValueId value) const {
    constexpr double kTimes = 16, kGrows = 4;
    Graph graph = graph_;
    graph.outputs = {value};
    std::vector<RealTensor> inputs = inputs_;
    const double before = largest(evaluate_reference(graph, inputs)[0]);
    for (double& element : inputs[i]) element *= kTimes;
    const double after = largest(evaluate_reference(graph, inputs)[0]);
    return after >= kGrows * before   ? Follows::grows
           : after <= before / kGrows ? Follows::shrinks
                                      : Follows::stays;
  }

  // So that an input keeps its bits.
  double most_shrunk(size_t i) const {
    return std::clamp(-6 - dtype_info(is_float(dtype(i)) ? dtype(i) : DType::f32).least_exponent, 0, 100);
  }

  double level(double power) const {
    RangeDomain domain(spared_);
    std::vector<Elements<Ranged>> inputs(inputs_.size());
    const std::vector<RealTensor> elements = scaled(power);
    for (size_t i = 0; i < elements.size(); ++i)
      for (size_t e = 0; e < elements[i].size(); ++e) {
        const bool left = std::isfinite(inputs_[i][e]) && !std::isfinite(elements[i][e]);
        if (left) return kInfinity;
        if (is_float(dtype(i))) domain.note(elements[i][e], dtype(i));
        inputs[i].push_back({elements[i][e]});
      }
    evaluate(graph_, domain, inputs);
    return std::log2(domain.fullest());
  }

  Graph graph_;  // of one output
  std::vector<RealTensor> inputs_;
  const Levels levels_;
  std::vector<Follows> follows_;
  const Node* spared_ = nullptr;
};

bool scale(const Brink& brink, std::vector<RealTensor>& inputs) {
  double power = 0;
  if (!brink.find(power)) return false;
  inputs = brink.scaled(power);
  return true;
}

}  // namespace

bool scale_to_brink(const Graph& primitive, std::vector<RealTensor>& inputs, size_t count, uint64_t seed,
                    int draw) {
  return scale(Brink(primitive, inputs, count, seed, draw), inputs);
}

bool scale_to_overflow(const Graph& primitive, std::vector<RealTensor>& inputs, size_t count, uint64_t seed,
                       int draw) {
  const size_t turn = static_cast<size_t>(draw / 4);
  if (draw % 4 != 3) {
    const size_t output = static_cast<size_t>(draw) - turn;
    return scale(Brink(primitive, inputs, count, primitive.outputs[output % primitive.outputs.size()]),
                 inputs);
  }
  const std::vector<ValueId> inner = inner_values(primitive, count);
  return !inner.empty() &&
         scale(Brink(primitive, inputs, count, inner[turn % inner.size()], seed, turn < inner.size()),
               inputs);
}

}  // namespace quern
