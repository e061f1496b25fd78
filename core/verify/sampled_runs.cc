#include "core/verify/sampled_runs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/verify/noise.h"

namespace quern {

namespace {

constexpr int kRuns = 16;

// Every rounding moves a value by up to as much as one to nearest may, in either direction.
class RandomRoundings : public RealDomain {
 public:
  RandomRoundings(uint64_t seed, bool tf32) : random_(seed), tf32_(tf32) {}

  double apply(OpCode code, DType compute, const double* operands) {
    const double value = RealDomain::apply(code, compute, operands);
    return is_float(compute) ? rounded(value, noise::kFunction) : value;
  }
  double convert(double value, DType from, DType to) {
    const double converted = RealDomain::convert(value, from, to);
    return is_float(to) ? rounded(converted, noise::kRounding) : converted;
  }
  double combine(OpCode reduction, double a, double b, DType dtype) {
    if (op_info(reduction).laws & kLinear) return add(a, b, dtype);
    return RealDomain::combine(reduction, a, b, dtype);
  }
  double add(double a, double b, DType dtype) {
    const double sum = RealDomain::add(a, b, dtype);
    return is_float(dtype) ? rounded(sum, noise::kRounding) : sum;
  }
  double multiply(double a, double b, DType dtype) {
    const double product = RealDomain::multiply(a, b, dtype);
    if (!tf32_ || dtype != DType::f32) return product;
    return moved(product, noise::kTf32Product * noise::squared(product));
  }
  double finish(double value, const Node& node) {
    const DType dtype = node.type.dtype;
    if (!rounds(node) || !is_float(dtype) || dtype == DType::f32) return value;
    const double nearest = round_to(dtype, value);
    if (nearest == value || !std::isfinite(nearest)) return nearest;
    return moved(value, noise::rounding_variance(dtype, value));
  }

 private:
  double moved(double value, double variance) {
    return value + random_.symmetric() * std::sqrt(3 * variance);
  }
  // To f32. What f32 has is not rounded.
  double rounded(double value, double relative) {
    const double nearest = static_cast<float>(value);
    if (nearest == value || !std::isfinite(nearest)) return nearest;
    return moved(value, relative * noise::squared(value));
  }

  Random random_;
  const bool tf32_;
};

}  // namespace

void widen_bounds(const Graph& graph, const std::vector<RealTensor>& inputs, bool tf32,
                  std::vector<Expected>& expected) {
  const Graph primitive = decompose(graph);
  std::vector<RealTensor> squares(expected.size());
  std::vector<std::vector<bool>> leaves(expected.size());  // what is finite, where some run is not
  for (size_t i = 0; i < expected.size(); ++i) {
    squares[i].resize(expected[i].exact.size());
    leaves[i].resize(expected[i].exact.size());
  }
  for (int run = 0; run < kRuns; ++run) {
    RandomRoundings domain(static_cast<uint64_t>(run), tf32);
    const std::vector<RealTensor> outputs = evaluate(primitive, domain, inputs);
    for (size_t i = 0; i < outputs.size(); ++i)
      for (size_t e = 0; e < outputs[i].size(); ++e)
        if (std::isfinite(outputs[i][e]))
          squares[i][e] += noise::squared(outputs[i][e] - expected[i].exact[e]) / kRuns;
        else
          leaves[i][e] = true;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const DType dtype = graph.node(graph.outputs[i]).type.dtype;
    for (size_t e = 0; e < expected[i].exact.size(); ++e) {
      if (expected[i].demand[e] == Demand::close && leaves[i][e] &&
          std::isfinite(round_to(dtype, expected[i].exact[e])))
        expected[i].demand[e] = Demand::close_if_finite;
      if (!is_float(dtype) || !std::isfinite(squares[i][e])) continue;
      Noisy value = noise::known(expected[i].exact[e]);
      value.variance = squares[i][e];
      expected[i].bound[e] = std::max(expected[i].bound[e], noise::own_bound(dtype, value));
    }
  }
}

Comparison ExpectedOutputs::compare(size_t output, const TensorDesc& desc, const RealTensor& actual) {
  Comparison found = quern::compare(desc, actual, expected_[output]);
  if (found.acceptable || std::exchange(sampled_, true)) return found;
  widen_bounds(graph_, inputs_, tf32_, expected_);
  return quern::compare(desc, actual, expected_[output]);
}

}  // namespace quern
