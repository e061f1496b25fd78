#include "cache/eviction.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quern {

namespace {

struct Candidate {
  uint64_t sequence;
  Hash128 key;
  auto operator<=>(const Candidate&) const = default;
};

// Oldest use first. A plan whose usage record is damaged counts as never used.
Result<std::vector<Candidate>> candidates(Txn& txn, uint64_t newest_to_go) {
  std::vector<Candidate> found;
  const Status status = txn.scan(Table::usage, {}, [&](std::string_view key, std::string_view value) {
    const auto usage = decode_record<UsageRecord>(value);
    const uint64_t sequence = usage.ok() ? usage->sequence : 0;
    if (sequence <= newest_to_go && key.size() == sizeof(Hash128))
      found.push_back({sequence, hash_of_table_key(key)});
    return true;
  });
  if (!status.ok()) return status;
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Result<uint64_t> evict(WriteTxn& write, uint64_t max_bytes, uint64_t newest_to_go) {
  if (write.txn.live_bytes() <= max_bytes) return uint64_t{0};
  const auto victims = candidates(write.txn, newest_to_go);
  if (!victims) return victims.status();
  const auto target = static_cast<uint64_t>(static_cast<double>(max_bytes) * kEvictDownTo);
  uint64_t removed = 0;
  for (const Candidate& victim : *victims) {
    if (is_pinned(write.txn, victim.key)) continue;
    if (Status status = remove_plan(write, victim.key); !status.ok()) return status;
    ++removed;
    if (write.txn.live_bytes() <= target) break;
  }
  return removed;
}

}  // namespace quern
