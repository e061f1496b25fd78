// A tensor map over a buffer of a run: which bytes of global memory a box is, and where TMA puts
// them in shared memory.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/plan.h"
#include "core/emulator/memory.h"

namespace quern::emulated {

// As kernels name a place: innermost dimension first, elements.
using BoxPlace = std::array<int64_t, kMostTensorMapDims>;

struct BoundTensorMap {
  const TensorMap* map = nullptr;
  uintptr_t base = 0;

  // Whether `thread` may read all of the box that lies inside of the tensor.
  bool read_box(const BoxPlace& at, Memory& memory, int thread) const;
  // Writes the box to shared memory, zeros for what lies outside.
  void copy_box(const BoxPlace& at, uintptr_t to) const;
  // Whether `thread` may write all of the box that lies inside of the tensor.
  bool write_box(const BoxPlace& at, Memory& memory, int thread) const;
  // Writes the box from shared memory to the tensor, but for what lies outside.
  void store_box(const BoxPlace& at, uintptr_t from) const;

 private:
  // Where TMA has a byte of a box that begins at `begin`.
  uintptr_t swizzled(uintptr_t begin, uintptr_t offset) const;
  // Calls visit(address or 0 if outside, byte offset in the box) for every row of the box, in chunks of one
  // element.
  template <class Visit>
  void for_each_element(const BoxPlace& at, Visit visit) const;
};

}  // namespace quern::emulated
