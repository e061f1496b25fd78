// The float reference: what a graph computes in f64, and how far from it a kernel may be.
//
// Semantics: inputs are rounded to their dtype, everything in between is real arithmetic (explicit casts
// round), outputs are rounded once; i32 wraps. A kernel is acceptable when its error is at most twice that of
// the unfused program, which accumulates in f32 and rounds every intermediate to its dtype.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/verify/evaluate.h"

namespace quern {

using RealTensor = Elements<double>;

// Dense row-major elements of a caller's buffer of `desc.span()` elements, and back (rounding once).
RealTensor read_buffer(const TensorDesc& desc, const void* buffer);
std::string write_buffer(const TensorDesc& desc, const RealTensor& elements);

// A buffer of desc.span() elements: floats uniform in [-scale, scale], integers in [-8, 8], truth values by a
// coin; elements that share a place (stride 0) are equal. The same seed gives the same bytes everywhere.
std::string random_buffer(const TensorDesc& desc, uint64_t seed, double scale = 1.0);

// The outputs in f64, not yet rounded to their dtype.
std::vector<RealTensor> evaluate_reference(const Graph& graph, const std::vector<RealTensor>& inputs);

// What a kernel's output may differ by.
struct Tolerance {
  double rms = 0;                   // root mean square of the error over an output
  std::vector<double> elementwise;  // per element
};

// Twice the error of the unfused program. Rounding to nearest can be lucky, so the unfused program is run
// several times with every intermediate moved by up to one unit in the last place of its dtype, in a
// direction drawn from `seed`; the largest error counts. With `tf32` operands of f32 products are moved by
// half a unit of tf32.
std::vector<Tolerance> unfused_tolerance(const Graph& graph, const std::vector<RealTensor>& inputs,
                                         const std::vector<RealTensor>& reference, uint64_t seed,
                                         bool tf32 = false);

struct Comparison {
  bool acceptable = false;
  double error = 0;  // ||actual - reference|| / ||reference||, over the finite elements
  double bound = 0;  // what `error` may be
  std::string what;  // the first element that is out of bounds: "output 0 [1, 2]: 3.5 instead of 1.25"
};
// `actual` holds what the kernel wrote, as f64. NaN must meet NaN, and an infinity the same infinity.
Comparison compare(const TensorDesc& desc, const RealTensor& actual, const RealTensor& reference,
                   const Tolerance& tolerance);

}  // namespace quern
