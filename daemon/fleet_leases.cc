// What one node of a fleet does for all: who does it, and how the others learn of its result.
#include <algorithm>
#include <utility>

#include "daemon/fleet.h"

namespace quern {

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kWatchedAtOnce = 256;
constexpr uint64_t kLeaseMs = 5000, kRenewNs = 1500 * kMs;
constexpr uint64_t kCompileNs = 300'000 * kMs;  // no compile takes longer, queues and retries included
constexpr uint64_t kBudgets = 4;                // what may be before a search in its queue, and a retry
constexpr uint64_t kFirstLookNs = 20 * kMs, kLastLookNs = 320 * kMs;
constexpr int kTries = 3;

// A value if there is one that the caller has not seen; else whether the lease is the caller's now.
constexpr const char* kClaimScript =
    "if redis.call('GETRANGE',KEYS[1],0,ARGV[5]) ~= ARGV[1] then return "
    "redis.call('GETRANGE',KEYS[1],0,ARGV[4]) end "
    "if redis.call('SET',KEYS[2],ARGV[2],'NX','PX',ARGV[3]) or redis.call('GET',KEYS[2]) == ARGV[2] then "
    "return 1 end "
    "return 0";
// For pairs of value and lease: 1 where one of them has changed, so that claiming makes sense.
constexpr const char* kWatchScript =
    "local r = {} for i = 1, #ARGV - 1 do local k = KEYS[2 * i - 1] "
    "if redis.call('GETRANGE',k,0,ARGV[#ARGV]) ~= ARGV[i] or redis.call('EXISTS',KEYS[2 * i]) == 0 "
    "then r[i] = 1 else r[i] = 0 end end return r";
// A server that was started again has forgotten the lease, but nobody else may have it.
constexpr const char* kRenewScript =
    "local node = redis.call('GET',KEYS[1]) "
    "if not node then redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2]) "
    "elseif node == ARGV[1] then redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";
constexpr const char* kReleaseScript =
    "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

}  // namespace

std::string Fleet::value_of(const Errand& errand) const {
  return value_of(errand.material.key(), errand.device);
}

std::string Fleet::lease_of(const Errand& errand) const {
  return value_of(errand) + (errand.kind == wire::JobKind::optimize ? ":search" : ":lease");
}

// How long others wait for it.
uint64_t Fleet::limit_ns(const Errand& errand) const {
  return (settings_.wait_seconds * 1000 + kBudgets * errand.budget_ms) * kMs;
}

void Fleet::claim(Errand errand, Serves serves, Claimed claimed) {
  ask_for({std::move(errand), std::move(serves), std::move(claimed)});
}

void Fleet::ask_for(Claiming claiming) {
  if (!up() || claiming.tries >= kTries)
    return hooks_.post([claimed = std::move(claiming.claimed)] { claimed({}); });
  const std::string value = value_of(claiming.errand), lease = lease_of(claiming.errand);
  const std::string useless = seen(lease);
  link_->ask({"EVAL", kClaimScript, "2", value, lease, useless.empty() ? seen(value) : useless, node_,
              std::to_string(kLeaseMs), kLastValueByte, kLastHeadByte},
             [this, claiming](const Result<RedisLink::Reply>& reply) {
               if (reply.ok()) return asked_for(claiming, *reply);
               ++counts_.failures;
               complain("claim_failed", reply.status().message());
               claiming.claimed({});
             });
}

void Fleet::asked_for(Claiming claiming, const RedisLink::Reply& reply) {
  const std::string lease = lease_of(claiming.errand);
  if (!reply.text.empty()) {
    const auto answered = [this, claiming, lease, value = reply.text](Result<FleetPlan> plan) mutable {
      if (plan.ok() && claiming.serves(*plan, claiming.until_ns > 0)) {
        ++counts_.hits;
        return claiming.claimed({Turn::mine, std::move(*plan)});
      }
      if (plan.ok()) saw(lease, value);
      ++claiming.tries;
      ask_for(std::move(claiming));
    };
    return read(claiming.errand.material, value_of(claiming.errand), reply.text, answered);
  }
  if (reply.number != 1) return wait(std::move(claiming));
  const uint64_t now = hooks_.now_ns();
  ++counts_.leases;
  if (leases_.empty()) next_renew_ns_ = now + kRenewNs;
  leases_[lease] = now + (claiming.errand.budget_ms > 0 ? limit_ns(claiming.errand) : kCompileNs);
  claiming.claimed({});
}

// From the first time on, that is: one that claims again keeps its place.
void Fleet::wait(Claiming claiming) {
  const uint64_t now = hooks_.now_ns();
  if (waiting_.empty()) next_look_ns_ = now + (look_every_ns_ = kFirstLookNs);
  const bool first = claiming.until_ns == 0;
  claiming.tries = 0;
  if (first) claiming.until_ns = now + limit_ns(claiming.errand);
  const Claimed claimed = claiming.claimed;
  waiting_[lease_of(claiming.errand)] = std::move(claiming);
  if (!first) return;
  ++counts_.waits;
  claimed({Turn::others, {}});
}

void Fleet::look_at_waiting() {
  const uint64_t now = hooks_.now_ns();
  std::vector<std::string> leases;
  std::vector<Claimed> late;
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    if (now >= each->second.until_ns) {
      late.push_back(std::move(each->second.claimed));
      each = waiting_.erase(each);
      continue;
    }
    leases.push_back(each->first);
    ++each;
  }
  // Where more wait than one question is for, all have their turn.
  if (leases.size() > kWatchedAtOnce) {
    watched_ = (watched_ + kWatchedAtOnce) % leases.size();
    std::rotate(leases.begin(), leases.begin() + static_cast<ptrdiff_t>(watched_), leases.end());
    leases.resize(kWatchedAtOnce);
  }
  if (!late.empty()) complain("waited_in_vain", "another node did not come to an end within its time");
  for (const Claimed& claimed : late) claimed({});
  if (leases.empty() || !up()) return;
  std::vector<std::string> words = {"EVAL", kWatchScript, std::to_string(2 * leases.size())};
  std::vector<std::string> heads;
  for (const std::string& lease : leases) {
    const std::string value = value_of(waiting_.at(lease).errand), useless = seen(lease);
    words.insert(words.end(), {value, lease});
    heads.push_back(useless.empty() ? seen(value) : useless);
  }
  words.insert(words.end(), heads.begin(), heads.end());
  words.push_back(kLastHeadByte);
  looking_at_waiting_ = true;
  link_->ask(words, [this, leases](const Result<RedisLink::Reply>& reply) {
    looking_at_waiting_ = false;
    bool any = false;
    for (size_t i = 0; reply.ok() && i < std::min(leases.size(), reply->numbers.size()); ++i) {
      if (reply->numbers[i] != 1) continue;
      any = true;
      if (auto waits = waiting_.extract(leases[i])) ask_for(std::move(waits.mapped()));
    }
    look_every_ns_ = any ? kFirstLookNs : std::min(2 * look_every_ns_, kLastLookNs);
    next_look_ns_ = hooks_.now_ns() + look_every_ns_;
  });
}

void Fleet::release(const Errand& errand) {
  const std::string lease = lease_of(errand), value = value_of(errand);
  if (!leases_.contains(lease)) return;
  if (listed_.contains(value) || writing_.contains(value))
    release_after_.emplace(value, lease);
  else
    send_release(lease);
}

void Fleet::send_release(const std::string& lease) {
  if (!leases_.erase(lease) || !up()) return;
  link_->ask({"EVAL", kReleaseScript, "1", lease, node_}, [](const auto&) {});
}

void Fleet::renew() {
  const uint64_t now = hooks_.now_ns();
  next_renew_ns_ = now + kRenewNs;
  std::erase_if(leases_, [&](const auto& lease) { return now >= lease.second; });
  for (const auto& [lease, until_ns] : leases_)
    link_->ask({"EVAL", kRenewScript, "1", lease, node_, std::to_string(kLeaseMs)}, [](const auto&) {});
}

}  // namespace quern
