// The float reference: what a graph computes in f64, and how far from it a kernel may be.
//
// Semantics: inputs and written numbers are rounded to their dtype, everything in between is real arithmetic
// (explicit casts round), outputs are rounded once; i32 wraps. A kernel is acceptable when the error of every
// element is at most twice that of the unfused program, which accumulates in f32 and rounds every
// intermediate to its dtype, and when it has infinities and NaN where docs/language.md puts them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/verify/evaluate.h"
#include "core/verify/demand.h"

namespace quern {

using RealTensor = Elements<double>;

// Dense row-major elements of a caller's buffer of `desc.span()` elements, and back (rounding once).
RealTensor read_buffer(const TensorDesc& desc, const void* buffer);
std::string write_buffer(const TensorDesc& desc, const RealTensor& elements);

// A buffer of desc.span() elements: floats uniform in [-scale, scale], integers in [-8, 8], truth values by a
// coin; elements that share a place (stride 0) are equal. The same seed gives the same bytes everywhere.
std::string random_buffer(const TensorDesc& desc, uint64_t seed, double scale = 1.0);

// One for each input of a graph. Integers that positions are compared with are lengths (lengths.h).
std::vector<std::string> random_inputs(const Graph& graph, uint64_t seed);

// The outputs in f64, not yet rounded to their dtype.
std::vector<RealTensor> evaluate_reference(const Graph& graph, const std::vector<RealTensor>& inputs);

// What an output may hold, element by element.
struct Expected {
  using Demand = quern::Demand;
  RealTensor exact;  // f64
  RealTensor bound;  // twice the error of the unfused program, and the rounding of the output
  std::vector<Demand> demand;
};

// One an output. The error of the unfused program is what it makes in one run, or four standard deviations
// of its rounding noise (noise.h), whichever is larger. With `tf32`, operands of f32 products are rounded to
// tf32.
std::vector<Expected> expect_outputs(const Graph& graph, const std::vector<RealTensor>& inputs,
                                     bool tf32 = false);

// The same for some elements of each output, one after the other, from what they depend on alone. Once `over`
// says yes no more than the first of each output is begun, and `elements` is cut to what was computed.
std::vector<Expected> expect_elements(const Graph& graph, const std::vector<RealTensor>& inputs,
                                      std::vector<std::vector<int64_t>>& elements, bool tf32,
                                      const std::function<bool()>& over);

// Whether an input, of the bytes of its buffer, or a number written in the graph is not finite: then outputs
// that are not may be infinite or NaN.
bool has_special_numbers(const Graph& graph, const std::vector<std::string>& inputs);

struct Comparison {
  bool acceptable = false;
  double error = 0;  // ||actual - exact|| / ||exact||, over the elements that must be close
  double bound = 0;  // what that is if every element is at its bound
  double worst = 0;  // the largest error of an element, relative to its own bound
  std::string what;  // the first element that is wrong: "[1, 2]: 3.5 instead of 1.25"
};
// `actual` holds what the kernel wrote, as f64. With `elements`, it and `expected` are of these alone.
Comparison compare(const TensorDesc& desc, const RealTensor& actual, const Expected& expected,
                   const std::vector<int64_t>* elements = nullptr);

}  // namespace quern
