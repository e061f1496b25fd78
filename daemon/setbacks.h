// What went wrong with keys: the last failure of a job (in memory), and quarantine (kept in the store too).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

#include "cache/store.h"
#include "core/base/hash.h"
#include "core/base/status.h"

namespace quern {

class Setbacks {
 public:
  static constexpr uint32_t kDeathsBeforeQuarantine = 2;

  // `store` may be null: then a quarantine ends with the daemon.
  explicit Setbacks(Store* store) : store_(store) {}

  // For those who ask after the job has ended; the oldest of many are forgotten.
  void failed(const Hash128& key, const Status& status);
  // Forgets them and all deaths: what killed a worker once and then did its work may do so again much later.
  void succeeded(const Hash128& key) { release(key); }
  std::optional<Status> last_failure(const Hash128& key) const;

  // Counts, and says how many workers have died on this key by now.
  uint32_t worker_died(const Hash128& key, const std::string& how);
  // Why the key is set aside; nothing if it is not.
  std::optional<std::string> quarantine(const Hash128& key) const;
  void release(const Hash128& key);

 private:
  struct Deaths {
    uint32_t count = 0;
    std::string how;  // the last one
  };
  Deaths deaths(const Hash128& key) const;

  Store* const store_;
  std::unordered_map<Hash128, Status> failures_;
  std::deque<Hash128> failure_order_;
  std::unordered_map<Hash128, Deaths> deaths_;  // of this daemon's life; the store may know of more
};

}  // namespace quern
