// Which index of a kernel may run where: grid, loop, cluster or tile; and what follows from it. The structure
// of a kernel is a function of the roles: a value that varies along the looped index is in the loop, a
// reduction over that index is an accumulator, and what depends on it comes after the loop.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/target.h"
#include "core/mugraph/mugraph.h"
#include "core/search/dag.h"

namespace quern {

// The part of a DAG that one kernel computes. Leaves and stores name tensors by number: the inputs of the
// piece, its outputs, then what kernels hand on to each other.
struct KernelDag {
  Dag dag;
  std::vector<int> stores;  // the tensor for each of dag.outputs
};

// How blocks share the looped index.
enum class Split : uint8_t {
  none,
  cluster,        // the blocks of a cluster combine their accumulators
  second_kernel,  // partial accumulators go to a workspace; a second kernel combines them
};
const char* split_name(Split split);

// What a looped index does to the operators of a kernel.
struct LoopForm {
  std::vector<Stage> stages;
  std::vector<bool> accumulates;  // reductions over the looped index
  // The `max` accumulator relative to which an accumulated sum is kept (online softmax); -1: a plain one.
  std::vector<int> shift;
};
// How an accumulator of the form combines.
Combine combine_of(const Dag& dag, const LoopForm& form, size_t accumulator);

// The form under this looped index, or nothing and in `why` the reason: what is not linear in an accumulated
// value cannot be in the loop, unless the online softmax applies.
std::optional<LoopForm> loop_form(const KernelDag& kernel, Label loop, const Terms& terms,
                                  std::string* why = nullptr);

// The roles of one kernel. A label that is in none of the fields is a tile dimension.
struct Roles {
  std::vector<Label> grid;  // axes x, y, z
  Label loop = -1;
  Split split = Split::none;
  LoopForm form;
  bool stores_in_loop = false;  // some results: they have the looped index
  // Then the grid of the second kernel: indices that only the first one reduces. And that of the first may have such as only
  // the second one does.
  std::vector<Label> combine;
  // The axis along which the looped index is split over a grid; behind the others.
  int split_axis() const { return static_cast<int>(grid.size()); }
};

// All legal roles of a kernel on the target. `why` collects reasons for indices that cannot be looped over.
std::vector<Roles> legal_roles(const KernelDag& kernel, const std::vector<Dims>& tensors, const Terms& terms,
                               const Target& target, std::vector<std::string>* why = nullptr);

}  // namespace quern
