// What a worker says is checked before it is kept: what it ran is the least trusted of all.
#pragma once

#include <set>
#include <string>

#include "cache/store.h"
#include "core/base/plan.h"
#include "core/base/status.h"
#include "daemon/workers.h"

namespace quern {

// A list of programs that is larger goes without the code of its last ones: it must fit into a frame, with
// what travels beside it.
inline constexpr size_t kMaxProgramsBytes = size_t{12} << 20;

// INTERNAL unless `encoded` is a plan of this tier for the target of `spec`, with the buffers of the plan
// that stands, because clients swap one for the other. NOT_FOUND when no plan stands any more.
Status check_better_plan(Store& store, const JobSpec& spec, const std::string& encoded, Tier tier);

// The programs that a worker made, with the code of those that were compiled before: stored ones, and the
// plan that stands, which is the baseline's until there is a better one. INTERNAL when they are no programs
// of this graph.
Result<std::string> join_programs(Store& store, const JobSpec& spec, const std::string& made);

// The names of what a measuring may say something of: what it was asked to measure, and one program more that it hands back, of a
// muGraph of those.
Result<std::set<std::string>> measured_names(const std::string& asked, const std::string& made);

// Sees to it that the program that stands is in the list of a measuring: one that a measuring made is in none of a search, nor of
// another node. False where it is not known any more.
bool list_standing(Store& store, const Hash128& key, JobSpec& spec);

}  // namespace quern
