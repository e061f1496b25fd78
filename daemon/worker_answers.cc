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

Result<std::set<std::string>> measured_names(const std::string& asked, const std::string& made) {
  const auto programs = decode_programs(asked);
  if (!programs) return programs.status();
  std::set<std::string> names, mugraphs;
  for (const Program& program : *programs) {
    names.insert(to_hex(program.name()));
    mugraphs.insert(program.mugraph);
  }
  if (made.empty()) return names;
  const auto back = decode_programs(made);
  if (!back) return back.status();
  const size_t most = names.size() + 1;
  for (const Program& program : *back)
    if (names.size() < most && mugraphs.contains(program.mugraph)) names.insert(to_hex(program.name()));
  return names;
}

bool list_standing(Store& store, const Hash128& key, JobSpec& spec) {
  auto programs = decode_programs(spec.programs);
  if (!programs) return true;  // whoever measures says so
  const auto listed = [&](const Program& program) { return program.name() == spec.standing; };
  if (spec.standing == Program().name() || std::any_of(programs->begin(), programs->end(), listed))
    return true;
  const auto findings = store.findings(key);
  const auto stands = store.peek(key);
  auto plan = stands.ok() ? decode_plan(stands->plan) : Result<Plan>(stands.status());
  if (!findings || !plan) return false;
  plan->tier = Tier::modelled;
  programs->push_back({findings->mugraph, findings->schedule, 0, encode_plan(*plan)});
  if (!listed(programs->back())) return false;
  spec.programs = encode_programs(*programs);
  return true;
}

}  // namespace quern
