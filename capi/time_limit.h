// Time limits of requests, as client and daemon keep them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quern {

// What the daemon is told of a client's limit: a little less, so that its answer, which says why there is no
// plan, comes before the client has given up.
inline uint32_t daemon_limit_ms(uint32_t limit_ms) {
  return limit_ms - std::min<uint32_t>(limit_ms / 10, 100);
}

}  // namespace quern
