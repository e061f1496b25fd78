#include "daemon/fleet_value.h"

#include <algorithm>
#include <chrono>

#include "core/optimize/program.h"
#include "daemon/catalog.h"
#include "daemon/import.h"

namespace quern {

namespace {

uint64_t wall_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

// The latest time of the program that the plan is, on this GPU (or any) or by the model, as its tier says.
// One look, of a plan that is published early, is not its time: it may be less than the one that it has in
// the end.
void add_time(Store& store, const Hash128& key, uint64_t generation, const std::string& device,
              wire::Import& plan) {
  const Tuning tuning = store.tuning(key);
  const auto timings = store.timings(key);
  if (plan.tier == Tier::baseline || tuning.generation != generation || !timings.ok()) return;
  const Timing* latest = nullptr;
  for (const Timing& timing : *timings) {
    const bool fits = (timing.device == kModelDevice) == (plan.tier == Tier::modelled);
    const bool elsewhere = plan.tier == Tier::measured && !device.empty() && timing.device != device;
    const bool one_look = plan.tier == Tier::measured && timing.samples <= 1;
    if (!fits || elsewhere || one_look || !(timing.program == tuning.program) || !(timing.cold_ns > 0)) continue;
    if (!latest || timing.measured_ms > latest->measured_ms) latest = &timing;
  }
  if (!latest) return;
  plan.device = latest->device;
  plan.program = latest->program;
  plan.cold_ps = static_cast<uint64_t>(latest->cold_ns * 1e3);
}

// So that a search that has come to its end is not done again, one that has not goes on, and its programs can
// be measured. Their code is made again where they are: it is many times what the rest is.
void add_search(Store& store, const Hash128& key, wire::Import& plan) {
  auto findings = store.findings(key);
  if (!findings) return;
  plan.searched = 1;
  plan.timeouts = findings->timeouts;
  plan.state = std::move(findings->state);
  const auto stored = store.programs(key);
  auto programs = stored.ok() ? decode_programs(*stored) : Result<std::vector<Program>>(stored.status());
  if (!programs) return;
  for (Program& program : *programs) program.plan.clear();
  plan.programs = encode_programs(*programs);
}

Rank rank_of(const wire::Import& plan) {
  Findings findings;
  findings.state = plan.state;
  findings.timeouts = plan.timeouts;
  return {plan.tier, plan.device, plan.cold_ps, how_searched(plan.searched ? &findings : nullptr),
          plan.timings.size()};
}

}  // namespace

uint32_t how_searched(const Findings* findings) {
  if (!findings) return 0;
  const bool ended = findings->state.empty() && findings->timeouts == 0;
  return ended ? kSearched : std::max(findings->timeouts, 1u);
}

Result<FleetValue> make_fleet_value(Store& store, const Hash128& key, const std::string& device,
                                    const SigningKey& signer) {
  auto shown = show_plan(store, key);
  if (!shown) return shown.status();
  const uint64_t generation = shown->row.generation;
  Pack pack;
  pack.created_ms = wall_ms();
  std::string reason = shown->reason;
  std::vector<wire::TimingRow> timings = std::move(shown->timings);
  std::erase_if(timings, [&](const wire::TimingRow& row) { return row.device != device; });
  pack.plans.push_back(import_of(std::move(*shown)));
  wire::Import& plan = pack.plans.front();
  plan.reason = std::move(reason);
  plan.timings = std::move(timings);
  add_time(store, key, generation, device, plan);
  add_search(store, key, plan);
  FleetValue value{sign_pack(pack, signer), rank_of(plan)};
  if (value.bytes.size() > kMaxFleetValue)
    return Status(ErrorCode::LIMIT, "the plan has " + std::to_string(value.bytes.size()) + " bytes");
  return value;
}

Result<FleetPlan> read_fleet_value(const std::string& bytes, const std::vector<std::string>& trusted,
                                   const KeyMaterial& material) {
  if (bytes.size() > kMaxFleetValue)
    return Status(ErrorCode::LIMIT, "it has more than " + std::to_string(kMaxFleetValue) + " bytes");
  auto pack = open_pack(bytes, trusted);
  if (!pack) return pack.status();
  if (pack->plans.size() != 1) return Status(ErrorCode::CORRUPT, "it is not one plan");
  const wire::Import& plan = pack->plans.front();
  auto put = put_of_import(plan);
  if (!put) return put.status();
  if (put->material.bytes() != material.bytes())
    return Status(ErrorCode::CORRUPT, "it is the plan of another key, " + to_hex(plan.key));
  return FleetPlan{std::move(*put), rank_of(plan)};
}

}  // namespace quern
