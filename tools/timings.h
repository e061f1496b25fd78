// What programs of a graph take on GPUs, beside what the cost model says: as tables, and how good the model
// is.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capi/wire/messages.h"
#include "core/base/statistics.h"
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

// Microseconds; 0: not known.
struct TimedProgram {
  wire::ProgramRow row;
  double modelled_us = 0, cold_us = 0, hot_us = 0, error = 0;
  uint32_t samples = 0;
  std::string refusal;
  bool timed() const { return cold_us > 0 && refusal.empty(); }
};

struct DeviceTimings {
  std::string device;
  std::vector<TimedProgram> programs;  // the fastest first, then those that are refused or were not tried
  const TimedProgram* baseline() const;
  const TimedProgram* best() const;  // null: none is right
};

// One entry a device, by its name.
std::vector<DeviceTimings> join_timings(const std::vector<wire::ProgramRow>& programs,
                                        const std::vector<wire::TimingRow>& timings);

// The time of the model's first choice over that of the best, of those that were timed. Nothing for fewer
// than two.
std::optional<double> regret(const DeviceTimings& timings);

// How good the model was on one device.
struct ModelQuality {
  std::string device;
  size_t graphs = 0, programs = 0;
  double correlation = 0;  // the mean over graphs
  double regret = 1;       // the geometric mean over graphs
};
// Of at most so many plans of the cache, the first by their keys: as keys are hashes, a sample of all.
Result<std::vector<ModelQuality>> model_quality(Session& session, size_t most);

std::string program_name(const wire::ProgramRow& row);  // "baseline", or the first digits of its name
std::string timings_text(const std::vector<DeviceTimings>& devices);
Json timings_json(const std::vector<DeviceTimings>& devices);

// Calls `visit` with stored plans of the tier, `most` at most, until it returns an error.
Status for_each_plan(Session& session, Tier tier, size_t most,
                     const std::function<Status(const wire::ShowReply&)>& visit);

}  // namespace quern
