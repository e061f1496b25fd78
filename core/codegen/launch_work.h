// What a launch of the baseline emitter does: instructions and accesses of memory, counted while its text is
// written, so that the model of schedules can say how long it takes (core/schedule/model.h).
#pragma once

#include "core/codegen/storage.h"
#include "core/schedule/block_work.h"

namespace quern {

// Of all blocks together: how much of a buffer a launch reads or writes, each element once.
struct BufferAccess {
  LaunchArg buffer;
  double bytes = 0;
  bool written = false;
};

struct LaunchWork {
  BlockWork block;  // its unique_bytes are left to whoever knows what the L2 cache holds
  KernelSchedule schedule;
  std::vector<BufferAccess> accesses;  // a buffer once, or twice: read and written
  bool joined = false;                 // in the launch of the one in front of it (core/kernel/join.h)
};

// What the statements of one scope do, a thread and a time.
struct ScopeWork {
  struct Access {
    Slot slot;
    Index index;    // of the first element
    int width = 1;  // elements at a time
    bool written = false;
  };
  double issue = 0, special = 0;  // instructions of all kinds; those of the special function unit
  double shared_bytes = 0;        // of shared memory, read or written
  std::vector<Access> accesses;
};

class WorkCounter {
 public:
  // `lane` is the variable in which the threads of a warp differ, `element` the one that a thread goes
  // through within a vector, of `vector` elements.
  WorkCounter(const IndexSpace& space, const Index& lane, const Index& element, int vector);

  // Every warp of a block does this `times`; `by_element` if it stands in the loop over a vector's elements.
  void add(const ScopeWork& scope, double times, bool by_element, double warps);
  // A buffer of which elements between `first` and `last` are accessed, at most `most` different ones.
  void touch(const Slot& slot, bool written, int64_t first, int64_t last, double most);
  // The counts of a block, for whoever adds what else it does.
  BlockWork& block() { return block_; }
  LaunchWork take(const KernelSchedule& schedule);

 private:
  struct Touched {
    Slot slot;
    bool written;
    int64_t first, last;
    double most;
  };
  int64_t evaluate(const Index& index, int lane, int element) const;
  double sectors(const ScopeWork::Access& access, int elements) const;
  double different_elements(const ScopeWork::Access& access) const;

  const IndexSpace& space_;
  const AtomId lane_, element_;  // -1: there is one value
  const int vector_;
  mutable std::vector<std::vector<int64_t>> values_;  // of all atoms, by element and lane
  BlockWork block_;
  std::vector<Touched> touched_;
};

}  // namespace quern
