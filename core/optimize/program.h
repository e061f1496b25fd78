// Programs of one graph as they are kept and sent: what can be measured on a GPU, and made again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash.h"
#include "core/base/status.h"

namespace quern {

struct Program {
  std::string mugraph, schedule;  // their texts; both empty: the baseline's program
  uint64_t modelled_ns = 0;       // what the model says that one launch of its plan takes
  std::string plan;               // as encode_plan writes it, with its cubin; empty: not compiled yet
  bool operator==(const Program&) const = default;

  bool is_baseline() const { return mugraph.empty(); }
  // How timings refer to it: a hash of its texts, whether or not it is compiled.
  Hash128 name() const;
};

// Programs of one muGraph share its text. CORRUPT unless `bytes` is exactly what encode_programs() writes.
std::string encode_programs(const std::vector<Program>& programs);
Result<std::vector<Program>> decode_programs(std::string_view bytes);

}  // namespace quern
