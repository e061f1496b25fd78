// A plan as the nodes of a fleet keep it on their server: a pack of one plan (capi/wire/pack.h), with what
// compares it to others.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cache/store.h"
#include "capi/wire/pack.h"

namespace quern {

// How good a plan is, as far as plans of two machines can be compared.
struct Rank {
  Tier tier = Tier::baseline;
  std::string device;     // of the time
  uint64_t cold_ps = 0;   // 0: not known
  uint32_t searched = 0;  // how_searched()
  size_t timings = 0;     // that come with it

  // A higher tier, or less time on the same device, or measured to the end; else more that is known.
  bool beats(const Rank& other) const {
    if (tier != other.tier) return tier > other.tier;
    if (cold_ps > 0 && other.cold_ps > 0 && device == other.device && cold_ps != other.cold_ps)
      return cold_ps < other.cold_ps;
    if (tier == Tier::measured && (cold_ps > 0) != (other.cold_ps > 0)) return cold_ps > 0;
    return std::pair(searched, timings) > std::pair(other.searched, other.timings);
  }
};

// How far the search for a better plan has come: 0 is not at all, more is after more time, kSearched to its
// end.
inline constexpr uint32_t kSearched = UINT32_MAX;
uint32_t how_searched(const Findings* findings);

struct FleetPlan {
  PlanPut put;
  Rank rank;
};

// Larger values are neither sent nor taken.
inline constexpr size_t kMaxFleetValue = size_t{8} << 20;
// The first bytes of a value: they tell it from every other, because the signature is among them.
inline constexpr size_t kFleetHead = 104;
// Ends of ranges of bytes, as the server is asked for them; one byte more than a value may have, so that what
// is too large is seen to be.
inline const std::string kLastHeadByte = std::to_string(kFleetHead - 1);
inline const std::string kLastValueByte = std::to_string(kMaxFleetValue);

struct FleetValue {
  std::string bytes;
  Rank rank;
};
// The stored plan of a key, signed; with a device, also what its programs take there. NOT_FOUND when it is
// gone, LIMIT when it is too large.
Result<FleetValue> make_fleet_value(Store& store, const Hash128& key, const std::string& device,
                                    const SigningKey& signer);
// Nothing of it is believed before the signature holds. PERMISSION, CORRUPT, UNSUPPORTED, LIMIT; CORRUPT also
// when it is the plan of another key material than `material`.
Result<FleetPlan> read_fleet_value(const std::string& bytes, const std::vector<std::string>& trusted,
                                   const KeyMaterial& material);

}  // namespace quern
