// Keeps the store within its size: the least recently used plans are evicted first.
#pragma once

#include <cstdint>

#include "cache/tables.h"

namespace quern {

// Eviction goes down to this share of the limit, so that it is not needed again on the next write.
inline constexpr double kEvictDownTo = 0.9;

// Does nothing up to `max_bytes` of live pages. Above it, removes plans in the order of their last use, but
// never one used after `newest_to_go` (a sequence number): what the running transaction has just stored
// stays, even if the limit is exceeded by it. Returns how many plans went. Order is by sequence number, so no
// clock can make a plan immortal.
Result<uint64_t> evict(WriteTxn& write, uint64_t max_bytes, uint64_t newest_to_go);

}  // namespace quern
