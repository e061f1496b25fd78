// How a warp reads or writes a tile in shared memory: which instructions, at which offsets, and what they
// cost.
//
// Shared memory has 32 banks of 4 bytes; a bank gives one word a cycle, and lanes that want the same word
// share it. An access of up to 4 bytes a lane serves all lanes at once; one of 8 bytes serves half a warp
// after another, one of 16 bytes a quarter after another (consecutive lanes).
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/layout.h"

namespace quern {

enum class AccessKind { store, load };

struct SharedAccess {
  AccessKind kind;
  int vector_bits;  // a lane's contiguous elements in memory, log2
  // (register, lane, warp) -> offset of the address that a lane gives; `register` counts instructions, and is
  // in the order of instruction_bits.
  Layout address = {};
  // An instruction moves, for each lane, 2^element_bits.size() registers. Element e of instruction n is the
  // register whose bit element_bits[i] is bit i of e and whose bit instruction_bits[i] is bit i of n; other
  // bits are 0. The elements are in the order of memory.
  std::vector<int> element_bits = {}, instruction_bits = {};
  // A thread takes part if these bits of its lane and warp are 0: the others have copies only. Loads: always
  // 0.
  uint64_t idle_lanes = 0, idle_warps = 0;

  int instructions = 0;  // a warp that takes part
  int conflicts = 0;     // cycles a bank needs for what one cycle should serve: 1 is free of conflicts
  int wavefronts = 0;    // cycles of shared memory for all instructions of such a warp
};

// The access of this kind by which threads with `registers` (from (register, lane, warp)) reach `memory`
// (tensor -> offset), with 2^vector_bits elements a lane and instruction. Nothing if the layouts do not permit it: elements that are not neighbours in the right order, or
// an unaligned vector. A store writes each element once; a load fills the registers whose bits are
// independent, of which the others are copies (Layout::independent_bits).
std::optional<SharedAccess> shared_access(const Layout& registers, const Layout& memory, int element_bytes,
                                          AccessKind kind, int vector_bits);

// The bits of a register layout that an access uses; the others make copies.
struct UsedBits {
  std::vector<int> registers, lanes, warps;
};
UsedBits used_bits(const Layout& registers, AccessKind kind);
// log2 of the elements in a lane's 32-bit word.
int word_element_bits(int element_bytes);
// How many low lane bits are served at once by an access of 2^vector_bits elements a lane.
int together_lane_bits(int vector_bits, int element_bytes);

}  // namespace quern
