#include "core/verify/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/elements.h"
#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/verify/lengths.h"
#include "core/verify/noise.h"
#include "core/verify/pull.h"
#include "core/verify/real_domains.h"

namespace quern {

namespace {

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
  output.bound.push_back(noise::own_bound(dtype, element));
  output.demand.push_back(noise::demand_of(dtype, element, special));
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

bool has_special_numbers(const Graph& graph, const std::vector<std::string>& inputs) {
  for (const Node& node : decompose(graph).nodes)
    if (node.code == OpCode::constant && !std::isfinite(round_to(node.type.dtype, node.number))) return true;
  const std::vector<TensorDesc> descs = graph.input_descs();
  bool special = false;
  for (size_t i = 0; i < inputs.size() && !special; ++i)
    if (is_float(descs[i].dtype) && descs[i].strides == dense_strides(descs[i].shape))
      special = !all_finite(inputs[i].data(), descs[i].dtype, descs[i].element_count());
    else if (is_float(descs[i].dtype))
      for_each_offset(descs[i].shape, descs[i].strides, 0, [&](int64_t at) {
        special |= !std::isfinite(load_element(inputs[i].data(), descs[i].dtype, at));
      });
  return special;
}

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
  std::vector<double> values;
  for (int64_t at = 0; at < desc.span(); at += static_cast<int64_t>(values.size())) {
    values.resize(static_cast<size_t>(std::min<int64_t>(desc.span() - at, 4096)));
    for (double& value : values) {
      const uint64_t bits = random.bits();
      const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
      value = desc.dtype == DType::i32       ? static_cast<double>(bits % 17) - 8
              : desc.dtype == DType::boolean ? static_cast<double>(bits >> 63)
                                             : scale * (2 * unit - 1);
    }
    store_elements(buffer.data(), desc.dtype, at, values);
  }
  return buffer;
}

std::vector<std::string> random_inputs(const Graph& graph, uint64_t seed) {
  const std::vector<int64_t> extents = compared_positions(graph);
  std::vector<std::string> buffers;
  for (const TensorDesc& desc : graph.input_descs()) {
    const size_t i = buffers.size();
    buffers.push_back(extents[i] > 0 ? length_buffer(desc, extents[i], seed + i) : random_buffer(desc, seed + i));
  }
  return buffers;
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
    if (!noise::meets(expected.demand[i], desc.dtype, actual[i], exact, own) && result.acceptable) {
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
