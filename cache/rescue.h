// A damaged file is set aside, and what reads back intact is carried over into a new one in its place.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace quern {

struct RescueOptions {
  std::string path;
  std::string engine;  // as in Engine::Options
  uint64_t map_bytes = 0;
  int64_t now_ms = 0;
  std::string why;
};

struct RescueReport {
  std::string why, aside;  // where the damaged file is now
  uint64_t plans = 0, records = 0;
  bool all = true;  // false: the disk was full before all was carried over
  std::string text() const;
};

// `damaged` is a descriptor of the file at the path. A plan is carried over when its record holds, everything
// else when its record holds and it belongs to such a plan. Of what the newest head page does not lead to any
// more, the one before it is asked. Atomic: at any moment the path leads to the old file or to the whole new
// one. Only the damaged file that was set aside last is kept.
Result<RescueReport> rescue_file(int damaged, const RescueOptions& options);

// The meta record in which a rescued file keeps RescueReport::text().
inline constexpr const char* kMetaRescue = "rescue";

}  // namespace quern
