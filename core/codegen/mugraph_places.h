// Where the tensors of a muGraph lie when it runs: inputs and outputs are the caller's; the rest share the
// workspace, each from the step that writes it to the last that reads it. What no other step than its own uses
// has no place.
#pragma once

#include "core/codegen/library_step.h"
#include "core/schedule/tensor_place.h"

namespace quern {

struct MuGraphPlaces {
  std::vector<TensorPlace> tensors;                  // as operators over whole tensors find them,
  std::vector<TensorPlace> read;                     // and as block graphs do
  std::vector<std::pair<size_t, LaunchArg>> copies;  // outputs that are inputs, or other outputs, too
  int64_t workspace = 0;                             // bytes
};

// `plan` has the descriptions of the graph's inputs and outputs. `launches`, by step: those of one launch have one
// number, as what they use is in use until the launch ends. INVALID_ARGUMENT if inputs or outputs are others.
Result<MuGraphPlaces> place_tensors(const MuGraph& mugraph, const Plan& plan,
                                    const std::vector<TensorLife>& lives, const std::vector<int>& launches);

}  // namespace quern
