#include "core/verify/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/verify/noise.h"
#include "core/verify/pull.h"
#include "core/verify/real_domains.h"

namespace quern {

namespace {

// Of the noise of the unfused program.
constexpr double kDeviations = 3;

// What one rounding of a result moves it by at most, relative and absolute. What is subnormal in f32 may be
// flushed to zero.
double output_rounding(DType dtype, double value) {
  switch (dtype) {
    case DType::f16:
      return std::fabs(value) * 0x1p-11 + 0x1p-25;
    case DType::bf16:
      return std::fabs(value) * 0x1p-8 + 0x1p-126;
    case DType::f32:
      return std::fabs(value) * 0x1p-24 + 0x1p-126;
    default:
      return 0;
  }
}

// The rounding of the output itself is no noise: it is counted at its largest, and twice like all error of
// the unfused program.
double own_bound(DType dtype, const Noisy& value) {
  const double rounding = is_float(dtype) ? noise::rounding_variance(dtype, value.exact) : 0;
  const double variance = value.variance >= rounding ? value.variance - rounding : value.variance;
  const double one_run = std::fabs(value.unfused - value.exact);
  const double error = std::max(std::isfinite(one_run) ? one_run : 0, kDeviations * std::sqrt(variance));
  return 2 * (error + output_rounding(dtype, value.exact));
}

// `special`: an input or a written number is not finite.
Expected::Demand demand_of(DType dtype, const Noisy& value, bool special) {
  using enum Expected::Demand;
  const double rounded = round_to(dtype, value.exact);
  if (std::isfinite(value.exact)) {
    const bool overflows = value.unfused == rounded && std::isinf(rounded);
    if (!std::isfinite(value.unfused) && !overflows) return anything;
    return value.fragile || std::isinf(value.variance) ? close_if_finite : close;
  }
  if (std::isfinite(value.unfused) || value.fragile || value.overflowed) return anything;
  return special ? not_finite : std::isnan(value.exact) ? nan : infinity;
}

bool meets(Expected::Demand demand, DType dtype, double actual, double exact, double bound) {
  switch (demand) {
    case Expected::Demand::close_if_finite:
      if (!std::isfinite(actual)) return true;
      [[fallthrough]];
    case Expected::Demand::close:
      if (std::isfinite(actual)) return std::fabs(actual - exact) <= bound;
      // An infinity stands for what is too large for the dtype.
      return actual == round_to(dtype, exact + std::copysign(bound, exact));
    case Expected::Demand::infinity:
      return actual == exact;
    case Expected::Demand::nan:
      return std::isnan(actual);
    case Expected::Demand::not_finite:
      return !std::isfinite(actual);
    case Expected::Demand::anything:
      return true;
  }
  return false;
}

bool has_special_numbers(const Graph& graph, const std::vector<RealTensor>& inputs) {
  for (const Node& node : graph.nodes)
    if (node.code == OpCode::constant && !std::isfinite(round_to(node.type.dtype, node.number))) return true;
  for (const RealTensor& input : inputs)
    for (double element : input)
      if (!std::isfinite(element)) return true;
  return false;
}

void add_element(Expected& output, DType dtype, const Noisy& element, bool special) {
  output.exact.push_back(element.exact);
  output.bound.push_back(own_bound(dtype, element));
  output.demand.push_back(demand_of(dtype, element, special));
}

std::string coordinates(const Ints& shape, size_t index) {
  Ints at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = static_cast<int64_t>(index) % shape[d];
    index /= static_cast<size_t>(shape[d]);
  }
  return print_ints(at);
}

}  // namespace

RealTensor read_buffer(const TensorDesc& desc, const void* buffer) {
  RealTensor elements;
  for_each_offset(desc.shape, desc.strides, 0,
                  [&](int64_t at) { elements.push_back(load_element(buffer, desc.dtype, at)); });
  return elements;
}

std::string write_buffer(const TensorDesc& desc, const RealTensor& elements) {
  std::string buffer(static_cast<size_t>(desc.span()) * dtype_size(desc.dtype), '\0');
  size_t next = 0;
  for_each_offset(desc.shape, desc.strides, 0,
                  [&](int64_t at) { store_element(buffer.data(), desc.dtype, at, elements[next++]); });
  return buffer;
}

std::string random_buffer(const TensorDesc& desc, uint64_t seed, double scale) {
  Random random(seed);
  std::string buffer(static_cast<size_t>(desc.span()) * dtype_size(desc.dtype), '\0');
  for (int64_t at = 0; at < desc.span(); ++at) {
    const uint64_t bits = random.bits();
    const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
    double value = scale * (2 * unit - 1);
    if (desc.dtype == DType::i32) value = static_cast<double>(bits % 17) - 8;
    if (desc.dtype == DType::boolean) value = static_cast<double>(bits >> 63);
    store_element(buffer.data(), desc.dtype, at, value);
  }
  return buffer;
}

std::vector<RealTensor> evaluate_reference(const Graph& graph, const std::vector<RealTensor>& inputs) {
  RealDomain domain;
  return evaluate(decompose(graph), domain, inputs);
}

std::vector<Expected> expect_outputs(const Graph& graph, const std::vector<RealTensor>& inputs, bool tf32) {
  const Graph primitive = decompose(graph);
  std::vector<Elements<Noisy>> known(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    for (double element : inputs[i]) known[i].push_back(NoisyDomain::known(element));
  NoisyDomain domain(tf32);
  const std::vector<Elements<Noisy>> outputs = evaluate(primitive, domain, known);
  const bool special = has_special_numbers(primitive, inputs);
  std::vector<Expected> expected(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    for (const Noisy& element : outputs[i])
      add_element(expected[i], graph.node(graph.outputs[i]).type.dtype, element, special);
  return expected;
}

std::vector<Expected> expect_elements(const Graph& graph, const std::vector<RealTensor>& inputs,
                                      std::vector<std::vector<int64_t>>& elements, bool tf32,
                                      const std::function<bool()>& over) {
  const Graph primitive = decompose(graph);
  std::vector<size_t> input_of(primitive.nodes.size());
  for (size_t i = 0; i < inputs.size(); ++i) input_of[static_cast<size_t>(primitive.inputs[i])] = i;
  NoisyDomain domain(tf32);
  PullBudget budget;
  PullEvaluator<NoisyDomain> evaluator(
      primitive, domain, budget, [&](ValueId node, int64_t at, int64_t step, int64_t count, Noisy* to) {
        const RealTensor& input = inputs[input_of[static_cast<size_t>(node)]];
        for (int64_t i = 0; i < count; ++i)
          to[i] = NoisyDomain::known(input[static_cast<size_t>(at + i * step)]);
      });
  const bool special = has_special_numbers(primitive, inputs);
  std::vector<Expected> expected(elements.size());
  // Outputs take turns, so that each has some when time is up.
  std::vector<size_t> done(elements.size());
  for (bool more = true, first = true; more; first = false) {
    more = false;
    for (size_t output = 0; output < elements.size(); ++output) {
      if (done[output] == elements[output].size() || (!first && over())) continue;
      budget.left = std::numeric_limits<int64_t>::max();
      const Noisy value = evaluator.element(primitive.outputs[output], elements[output][done[output]++]);
      add_element(expected[output], graph.node(graph.outputs[output]).type.dtype, value, special);
      more = true;
    }
  }
  for (size_t output = 0; output < elements.size(); ++output) elements[output].resize(done[output]);
  return expected;
}

Comparison compare(const TensorDesc& desc, const RealTensor& actual, const Expected& expected,
                   const std::vector<int64_t>* elements) {
  Comparison result;
  result.acceptable = true;
  double error = 0, bound = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double exact = expected.exact[i], own = expected.bound[i];
    if (!meets(expected.demand[i], desc.dtype, actual[i], exact, own) && result.acceptable) {
      char text[128];
      std::snprintf(text, sizeof text, "%.9g instead of %.9g", actual[i], exact);
      result.what = coordinates(desc.shape, elements ? static_cast<size_t>((*elements)[i]) : i) + ": " + text;
      if (std::isfinite(actual[i]) && std::isfinite(exact)) {
        std::snprintf(text, sizeof text, " (may differ by %.3g)", own);
        result.what += text;
      }
      result.acceptable = false;
    }
    const double difference = std::fabs(actual[i] - exact);
    if (!std::isfinite(difference) || !std::isfinite(own) || expected.demand[i] == Expected::Demand::anything)
      continue;
    error += difference * difference;
    bound += own * own;
    norm += exact * exact;
    if (difference > 0) result.worst = std::max(result.worst, difference / own);
  }
  const double scale = norm > 0 ? std::sqrt(norm) : 1;
  result.error = std::sqrt(error) / scale;
  result.bound = std::sqrt(bound) / scale;
  return result;
}

}  // namespace quern
