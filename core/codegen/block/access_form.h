// In which order registers and lanes access global memory.
#pragma once

#include "core/codegen/block/facts.h"

namespace quern {

// The order in which registers are handed over, and what moves once lanes have exchanged 2^`exchanged` words each;
// 2^`vector` elements in an access. Pairs of 16 bits, as tensor cores leave them, have neighbours in other lanes: lanes
// exchange words until each has up to 16 bytes that lie together. Of loads those outside of the loop that no product
// takes; the exchange is its own opposite. Or they store rows, 2^`together` accesses at a time (warp_rows.h).
struct AccessForm {
  RegisterLayout registers, moved;
  int vector = 0, exchanged = 0;
  bool by_rows = false;
  int together = 0;
  // Bits of registers that are handed over at a time.
  int step() const { return vector + together; }
  bool operator==(const AccessForm&) const = default;
};
AccessForm access_form(const BlockFacts& facts, BlockValue access, RegisterLayout layout);
// Bytes that lie together in memory, of which neighbouring lanes have 2^`vector` elements each.
int64_t run_bytes(const BlockFacts& facts, BlockValue access, const RegisterLayout& layout, int vector);

}  // namespace quern
