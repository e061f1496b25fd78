// Decides whether a muGraph computes a graph, by evaluating both at random points of a finite field (Mirage,
// OSDI'25, section 5, made stricter: fields near 2^31, independent random inputs, several trials, all
// elements of the outputs on a small instance, sampled ones at the full shape).
//
// What is accepted is equal by the laws that the field satisfies (core/verify/field.h), except with the
// probability that the certificate states. What is rejected differs in f64, too, or does not fit together.
#pragma once

#include <functional>
#include <memory>

#include "core/mugraph/mugraph.h"
#include "core/verify/certificate.h"

namespace quern {

struct VerifyOptions {
  uint64_t seed = 0;  // 0 draws a fresh one
  int trials = 2;     // at least; up to 40 are made while the error bound is above max_error
  double max_error = 1e-9;
  // Values that may be computed for elements at the full shape, in each of the two programs; 0 leaves them
  // out.
  int64_t sample_budget = 8'000'000;
  // Of ordered trials that are made because they cost little, all together, beside those that show every kind of input.
  double cheap_work = 1e5;
  // Programs with less work than this are compared at their full shape.
  double whole_work = 20'000;
  // Asked now and then. Once true, samples at the full shape that are left are left out; before all trials
  // are made nothing is decided.
  std::function<bool()> stop = [] { return false; };
};

// For several muGraphs of one graph: what they have in common is computed once. Not for several threads.
class FullShape;
class Verifier {
 public:
  // A valid graph, which must outlive this.
  explicit Verifier(const Graph& graph, const VerifyOptions& options = {});
  ~Verifier();
  // Never fails: what cannot be decided says why.
  Certificate verify(const MuGraph& mugraph);

 private:
  const Graph& graph_;
  VerifyOptions options_;
  std::unique_ptr<FullShape> full_shape_;
};

Certificate verify(const Graph& graph, const MuGraph& mugraph, const VerifyOptions& options = {});

}  // namespace quern
