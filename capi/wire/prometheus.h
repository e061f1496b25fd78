// Statistics as Prometheus reads them: what `quern stats --prometheus` prints and the daemon's metrics port
// answers.
#pragma once

#include <optional>
#include <string>

#include "capi/wire/messages.h"

namespace quern::wire {

// A counter NAME_us_le_LIMIT: answers that took up to LIMIT microseconds.
struct Bucket {
  std::string name;
  double limit_us;
};
std::optional<Bucket> bucket_of(const std::string& counter);

// Text of the exposition format, version 0.0.4: the counters under their names, and the facts as labels.
std::string prometheus_text(const StatsReply& stats);

}  // namespace quern::wire
