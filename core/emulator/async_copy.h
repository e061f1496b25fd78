// A copy between global and shared memory that goes on beside the threads: which bytes go where, as they lie
// or as a tensor map says, and what must hold when it begins and when somebody has waited for it.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/plan.h"
#include "core/emulator/memory.h"
#include "core/emulator/runtime.h"

namespace quern::emulated {

// As kernels name a place: innermost dimension first, elements.
using BoxPlace = std::array<int64_t, kMostTensorMapDims>;

// A tensor map over a buffer of a run.
struct BoundTensorMap {
  const TensorMap* map = nullptr;
  uintptr_t base = 0;
};

struct Copy {
  const CopyInstruction* instruction = nullptr;
  uintptr_t shared = 0;
  size_t bytes = 0;  // in shared memory
  // In global memory: so many bytes, behind which a load has zeros, or a box.
  uintptr_t global = 0;
  size_t global_bytes = 0;
  BoundTensorMap map = {};
  BoxPlace at = {};

  // Both return the rule that was broken, empty if none. The bytes are there when it ends, as late as the
  // hardware may; `stamp` says for whom.
  std::string begin(Memory& memory, int thread) const;
  std::string end(Memory& memory, Stamp stamp) const;

 private:
  // Calls visit(address in global memory or 0 if outside of the tensor, address in shared memory, bytes) for
  // parts that lie together in both, until it returns false. False if it did.
  template <class Visit>
  bool for_each_part(Visit visit) const;
  template <class Visit>
  bool for_each_part_of_box(Visit visit) const;
  uintptr_t swizzled(uintptr_t offset) const;
};

// What a thread has asked for and not waited for: the copies since the last commit are one group.
class CopyGroups {
 public:
  void add(const Copy& copy) { copies_.push_back({copy, committed_}); }
  void commit() { ++committed_; }
  // Ends those that are not in the last `pending` groups.
  std::string wait(int pending, Memory& memory, Stamp stamp);
  size_t under_way() const { return copies_.size(); }

 private:
  struct Asked {
    Copy copy;
    int group;  // the number of groups that were committed before it
  };
  std::vector<Asked> copies_;
  int committed_ = 0;
};

}  // namespace quern::emulated
