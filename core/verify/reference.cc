#include "core/verify/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/verify/real_domains.h"

namespace quern {

namespace {

constexpr int kPerturbations = 4;

// The coarsest unit by which a result of this dtype is rounded, relative; every bound allows for one
// rounding.
double half_unit(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::f32:
      return 0x1p-24;
    default:
      return 0;
  }
}

double smallest_unit(DType dtype) { return dtype == DType::f16 ? 0x1p-25 : 0x1p-149; }

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

std::vector<Tolerance> unfused_tolerance(const Graph& graph, const std::vector<RealTensor>& inputs,
                                         const std::vector<RealTensor>& reference, uint64_t seed, bool tf32) {
  const Graph primitive = decompose(graph);
  std::vector<Tolerance> tolerances;
  for (const RealTensor& output : reference) tolerances.push_back({0, std::vector<double>(output.size(), 0)});
  std::vector<std::future<std::vector<RealTensor>>> trials;
  for (int trial = 0; trial < kPerturbations; ++trial)
    trials.push_back(std::async([&, trial] {
      PerturbedDomain domain(seed + static_cast<uint64_t>(trial), tf32);
      return evaluate(primitive, domain, inputs);
    }));
  for (auto& trial : trials) {
    const std::vector<RealTensor> moved = trial.get();
    for (size_t output = 0; output < moved.size(); ++output)
      for (size_t i = 0; i < moved[output].size(); ++i) {
        const double error = 2 * std::fabs(moved[output][i] - reference[output][i]);
        double& bound = tolerances[output].elementwise[i];
        if (std::isfinite(error)) bound = std::max(bound, error);
      }
  }
  for (size_t output = 0; output < tolerances.size(); ++output) {
    const DType dtype = graph.node(graph.outputs[output]).type.dtype;
    double squares = 0, largest = 0;
    for (size_t i = 0; i < reference[output].size(); ++i) {
      double& bound = tolerances[output].elementwise[i];
      if (std::isfinite(reference[output][i]))
        bound += 2 * std::fabs(reference[output][i]) * half_unit(dtype) + smallest_unit(dtype);
      squares += bound * bound;
      largest = std::max(largest, bound);
    }
    const size_t count = reference[output].size();
    tolerances[output].rms = count ? std::sqrt(squares / static_cast<double>(count)) : 0;
    // One element's error is a sample; what bounds it is the spread over the output, with room for its tail.
    for (double& bound : tolerances[output].elementwise) bound = std::max(bound, largest) * 2;
  }
  return tolerances;
}

Comparison compare(const TensorDesc& desc, const RealTensor& actual, const RealTensor& reference,
                   const Tolerance& tolerance) {
  Comparison result;
  double error = 0, norm = 0;
  bool every_element = true;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double rounded = round_to(desc.dtype, reference[i]);
    const double difference = std::fabs(actual[i] - reference[i]);
    const bool special = !std::isfinite(rounded);
    const bool good = special ? (std::isnan(rounded) ? std::isnan(actual[i]) : actual[i] == rounded)
                              : difference <= tolerance.elementwise[i];
    if (!good && every_element) {
      char text[96];
      std::snprintf(text, sizeof text, "%.9g instead of %.9g", actual[i], reference[i]);
      result.what = coordinates(desc.shape, i) + ": " + text;
      every_element = false;
    }
    if (special || std::isnan(difference)) continue;
    error += difference * difference;
    norm += reference[i] * reference[i];
  }
  const double count = static_cast<double>(std::max<size_t>(reference.size(), 1));
  const double scale = norm > 0 ? std::sqrt(norm) : 1;
  result.error = std::sqrt(error) / scale;
  result.bound = tolerance.rms * std::sqrt(count) / scale;
  result.acceptable = every_element && result.error <= result.bound;
  return result;
}

}  // namespace quern
