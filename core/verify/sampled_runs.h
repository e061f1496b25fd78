// The unfused program run a few times with random roundings.
//
// The noise of noisy.h is computed value by value: of what many values have in common it follows two causes,
// and functions are looked at where the noise ends. That is too little where the noise of a contraction comes
// from many elements at once (they move all of a row the same way, and a sum over the row adds that up), and
// where a function bends within the noise. Whoever finds an element beyond its bound asks here before calling
// it wrong.
#pragma once

#include "core/verify/reference.h"

namespace quern {

// Bounds become those of the noise of these runs where that is more.
void widen_bounds(const Graph& graph, const std::vector<RealTensor>& inputs, bool tf32,
                  std::vector<Expected>& expected);

// What a graph's outputs may be on some inputs. The runs are made when an element is beyond its bound for the
// first time.
class ExpectedOutputs {
 public:
  // `graph` must outlive it.
  ExpectedOutputs(const Graph& graph, std::vector<RealTensor> inputs, bool tf32)
      : graph_(graph),
        inputs_(std::move(inputs)),
        tf32_(tf32),
        expected_(expect_outputs(graph, inputs_, tf32)) {}

  Comparison compare(size_t output, const TensorDesc& desc, const RealTensor& actual);

 private:
  const Graph& graph_;
  const std::vector<RealTensor> inputs_;
  const bool tf32_;
  std::vector<Expected> expected_;
  bool sampled_ = false;
};

}  // namespace quern
