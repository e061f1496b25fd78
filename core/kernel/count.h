// What a block of a kernel does, counted from its statements: the accesses, instructions and barriers that
// its passes decided on. Loops have their trip counts, conditions are asked for every thread, warps of a role
// do what the role says.
//
// Arithmetic on indices is not counted, as compilers fold most of it away; nor is what the prelude does
// inside a matrix tile of the baseline. A condition that depends on data holds.
#pragma once

#include <map>
#include <string>

#include "core/kernel/ir.h"
#include "core/kernel/launch_facts.h"

namespace quern::ir {

enum class Path : uint8_t {
  global_load,
  global_store,
  cp_async,
  shared_load,
  shared_store,
  cluster_load,  // shared memory of another block
  ldmatrix,
};
inline constexpr size_t kPaths = 7;
const char* path_name(Path path);

struct AccessCount {
  double accesses = 0;      // of threads
  double instructions = 0;  // of warps
  // Sectors of 32 bytes of global memory; of shared memory wavefronts, of 128 bytes where banks do not
  // conflict.
  double moved = 0;
};

struct Counts {
  std::map<int64_t, AccessCount> accesses[kPaths];  // by the bytes of an access of a thread
  double tma_loads = 0, tma_load_bytes = 0, tma_stores = 0, tma_store_bytes = 0;
  // Instructions of warps and of warpgroups, and what they compute: a product and a sum are two.
  double mma = 0, wgmma = 0, mma_flops = 0, wgmma_flops = 0;
  // Instructions of warps: of the FMA and ALU pipes, of the special function unit, functions of tens of
  // instructions.
  double simple = 0, special = 0, slow = 0, shuffles = 0;
  // Of a block, not of its threads.
  double barriers = 0, cluster_barriers = 0, mbarrier_waits = 0;

  const std::map<int64_t, AccessCount>& of(Path path) const { return accesses[static_cast<size_t>(path)]; }
  double bytes(Path path) const;
  void add(const Counts& other, double times);
};

// Of one block of the grid.
Counts count_block(const Kernel& kernel, const LaunchFacts& facts, const std::array<int64_t, 3>& block);
// Of the mean of the blocks at the beginning, the end and between along each axis of the grid.
Counts count_mean_block(const Kernel& kernel, const LaunchFacts& facts);

// A line for each kind of what there is.
std::string print_counts(const Counts& counts);

}  // namespace quern::ir
