// Where values lie between kernels: the caller's buffers, and a workspace whose places are used again once
// their value has been read for the last time.
#pragma once

#include <map>

#include "core/codegen/partition.h"
#include "core/schedule/memory_plan.h"

namespace quern {

// Memory that holds a value, dense and row-major unless it is an input.
struct Slot {
  DType dtype = DType::f32;
  LaunchArg arg;
  bool operator==(const Slot&) const = default;
};

// A value in registers' precision (f32, i32, bool), or in its own 16-bit dtype for tensor cores.
enum class Width : uint8_t { wide, narrow };

inline constexpr int64_t kWorkspaceAlignment = 256;

class Storage {
 public:
  Storage(const Graph& graph, const Partition& partition);

  // Where `value` is read from. It is an input, or stored in this width.
  const Slot& source(ValueId value, Width width) const;
  // Where the kernel that makes `value` must store it: none if only that kernel uses it.
  std::vector<Slot> targets(ValueId value) const;
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // What lies in the workspace, from the launch that writes it to the last one that reads it, and where.
  const std::vector<MemoryBuffer>& buffers() const { return buffers_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  using Key = std::pair<ValueId, Width>;
  static std::map<Key, int> find_last_reads(const Partition& partition);

  std::map<Key, Slot> slots_;
  std::map<ValueId, Slot> outputs_;
  std::vector<MemoryBuffer> buffers_;
  std::vector<int64_t> offsets_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace quern
