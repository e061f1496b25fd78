// Where values lie between kernels: the caller's buffers, and a workspace whose places are used again once
// their value has been read for the last time.
#pragma once

#include <map>

#include "core/codegen/partition.h"

namespace quern {

// Memory that holds a value, dense and row-major unless it is an input.
struct Slot {
  DType dtype = DType::f32;
  LaunchArg arg;
  bool operator==(const Slot&) const = default;
};

// A value in registers' precision (f32, i32, bool), or in its own 16-bit dtype for tensor cores.
enum class Width : uint8_t { wide, narrow };

// Part of the workspace, needed from the launch that writes it to the last one that reads it.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t offset = 0;  // the answer
};
// Gives the intervals offsets, multiples of 256, so that no two that are needed at once overlap. Returns the
// size.
int64_t plan_memory(std::vector<Lifetime>& intervals);

class Storage {
 public:
  Storage(const Graph& graph, const Partition& partition);

  // Where `value` is read from. It is an input, or stored in this width.
  const Slot& source(ValueId value, Width width) const;
  // Where the kernel that makes `value` must store it: none if only that kernel uses it.
  std::vector<Slot> targets(ValueId value) const;
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const std::vector<Lifetime>& intervals() const { return intervals_; }

 private:
  using Key = std::pair<ValueId, Width>;
  static std::map<Key, int> find_last_reads(const Partition& partition);

  std::map<Key, Slot> slots_;
  std::map<ValueId, Slot> outputs_;
  std::vector<Lifetime> intervals_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace quern
