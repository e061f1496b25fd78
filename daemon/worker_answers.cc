#include "daemon/worker_answers.h"

#include <algorithm>
#include <map>

#include "core/optimize/program.h"

namespace quern {

namespace {

Status no_good(const std::string& why) {
  return Status(ErrorCode::INTERNAL, "the worker's answer is no good: " + why);
}

// The plan that stands, decoded.
Result<Plan> standing_plan(Store& store, const Hash128& key) {
  auto stands = store.peek(key);
  if (!stands) return Status(ErrorCode::NOT_FOUND, "the plan was removed while a better one was looked for");
  return decode_plan(stands->plan);
}

Status check_plan(const JobSpec& spec, const Plan& stands, const std::string& encoded, Tier tier) {
  auto plan = decode_plan(encoded);
  if (!plan) return Status(ErrorCode::INTERNAL, "the worker's plan is no good: " + plan.status().message());
  if (plan->target != spec.target || plan->cubin.empty() || plan->tier != tier ||
      plan->inputs != stands.inputs || plan->outputs != stands.outputs)
    return Status(ErrorCode::INTERNAL, "the worker's plan is not one for this graph");
  return {};
}

// The code that is known already, by the names of programs.
std::map<std::string, std::string> known_code(Store& store, const Hash128& key) {
  std::map<std::string, std::string> known;
  if (const auto stored = store.programs(key); stored.ok())
    if (auto programs = decode_programs(*stored); programs.ok())
      for (Program& program : *programs)
        if (!program.plan.empty()) known.emplace(to_hex(program.name()), std::move(program.plan));
  if (const auto stands = store.peek(key); stands.ok() && stands->tier == Tier::baseline)
    known.insert_or_assign(to_hex(Program().name()), stands->plan);
  return known;
}

}  // namespace

Status check_better_plan(Store& store, const JobSpec& spec, const std::string& encoded, Tier tier) {
  const auto stands = standing_plan(store, spec.material.key());
  return stands.ok() ? check_plan(spec, *stands, encoded, tier) : stands.status();
}

Result<std::string> join_programs(Store& store, const JobSpec& spec, const std::string& made) {
  const Hash128 key = spec.material.key();
  auto programs = decode_programs(made);
  if (!programs) return no_good(programs.status().message());
  const auto stands = standing_plan(store, key);
  if (!stands) return stands.status();
  auto known = known_code(store, key);
  if (programs->empty() || !programs->front().is_baseline()) programs->insert(programs->begin(), Program());
  for (Program& program : *programs) {
    // Code of a tier of its own: the baseline's says so, whatever it is published as.
    const Tier tier = program.is_baseline() ? Tier::baseline : Tier::modelled;
    if (!program.plan.empty()) {
      if (Status status = check_plan(spec, *stands, program.plan, tier); !status.ok()) return status;
    } else if (const auto found = known.find(to_hex(program.name())); found != known.end()) {
      program.plan = std::move(found->second);
    }
  }
  size_t bytes = 0;
  for (Program& program : *programs) {
    if (bytes + program.plan.size() > kMaxProgramsBytes) program.plan.clear();
    bytes += program.plan.size();
  }
  return encode_programs(*programs);
}

}  // namespace quern
