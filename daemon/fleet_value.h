// A plan as the nodes of a fleet keep it on their server: a pack of one plan (capi/wire/pack.h), with what compares it to others.
#pragma once

#include <string>
#include <vector>

#include "cache/store.h"
#include "capi/wire/pack.h"

namespace quern {

// How good a plan is, as far as plans of two machines can be compared.
struct Rank {
  Tier tier = Tier::baseline;
  std::string device;    // of the time
  uint64_t cold_ps = 0;  // 0: not known

  // A higher tier, or less time on the same device.
  bool beats(const Rank& other) const {
    if (tier != other.tier) return tier > other.tier;
    return cold_ps > 0 && device == other.device && cold_ps < other.cold_ps;
  }
};

struct FleetPlan {
  PlanPut put;
  Rank rank;
};

// Larger values are neither sent nor taken.
inline constexpr size_t kMaxFleetValue = size_t{8} << 20;
// The first bytes of a value: they tell it from every other, because the signature is among them.
inline constexpr size_t kFleetHead = 104;

struct FleetValue {
  std::string bytes;
  Rank rank;
};
// The stored plan of a key, signed. NOT_FOUND when it is gone, LIMIT when it is too large.
Result<FleetValue> make_fleet_value(Store& store, const Hash128& key, const SigningKey& signer);
// Nothing of it is believed before the signature holds. PERMISSION, CORRUPT, UNSUPPORTED, LIMIT; CORRUPT also when it is the plan of another
// key material than `material`.
Result<FleetPlan> read_fleet_value(const std::string& bytes, const std::vector<std::string>& trusted,
                                   const KeyMaterial& material);

}  // namespace quern
