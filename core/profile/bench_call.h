// What is said between a bench's process and its parent; both are of one build.
#pragma once

#include "core/base/bytes.h"
#include "core/profile/bench.h"
#include "core/profile/device_bench.h"

namespace quern {

// The first byte of a message. An answer is an ErrorCode and a message, and if that is OK what was asked for.
enum class BenchCall : uint8_t { open, add, remove, check, time, disturbance };

void encode(const DeviceBenchOptions& options, ByteWriter& out);
DeviceBenchOptions decode_options(ByteReader& in);
void encode(const Bench::Check& check, ByteWriter& out);
Bench::Check decode_check(ByteReader& in);
void encode(const std::vector<Bench::Time>& times, ByteWriter& out);
std::vector<Bench::Time> decode_times(ByteReader& in);

}  // namespace quern
