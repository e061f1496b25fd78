#include "daemon/fleet.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/private_file.h"
#include "daemon/workers.h"

namespace quern {

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kLooksAtOnce = 64, kWritesAtOnce = 8, kWatchedAtOnce = 256;
constexpr size_t kMaxOutbox = 1 << 16, kMaxSeen = 4096;
constexpr uint64_t kLeaseMs = 5000, kRenewNs = 1500 * kMs;
constexpr uint64_t kFirstLookNs = 20 * kMs, kLastLookNs = 320 * kMs;
constexpr uint64_t kWriteAgainNs = 1000 * kMs, kComplainNs = 60'000 * kMs;
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
constexpr const char* kRenewScript =
    "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0";
constexpr const char* kReleaseScript =
    "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
// Writes unless there is a value that the caller has not seen: then that is the answer.
constexpr const char* kWriteScript =
    "if redis.call('GETRANGE',KEYS[1],0,ARGV[4]) == ARGV[1] then redis.call('SET',KEYS[1],ARGV[2]) return '' "
    "end "
    "return redis.call('GETRANGE',KEYS[1],0,ARGV[3])";

const std::string kLastHeadByte = std::to_string(kFleetHead - 1);
// One byte more than may be: so that what is too large is seen to be.
const std::string kLastValueByte = std::to_string(kMaxFleetValue);

std::string random_name() {
  unsigned char bytes[16] = {};
  // No two nodes may have one name; the process and the time are the last resort.
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return std::to_string(getpid()) + "-" + std::to_string(uv_hrtime());
  return hex_of({reinterpret_cast<const char*>(bytes), sizeof bytes});
}

Result<std::string> read_password(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & 077))
    return Status(ErrorCode::PERMISSION, path + " can be read by others; chmod 600 " + path);
  if (Status status = check_private_file(path); !status.ok()) return status;
  std::ifstream file(path);
  std::string password;
  if (!std::getline(file, password) || password.empty())
    return Status(ErrorCode::INVALID_ARGUMENT, path + " cannot be read, or its first line is empty");
  return password;
}

}  // namespace

Result<std::unique_ptr<Fleet>> Fleet::open(uv_loop_t* loop, const FleetSettings& settings, Hooks hooks,
                                           std::function<void()> after) {
  RedisLink::Settings link;
  link.address = settings.address;
  link.user = settings.user;
  link.limit_ms = settings.limit_ms;
  link.max_answer_bytes = 2 * kMaxFleetValue;
  if (!settings.password_file.empty()) {
    auto password = read_password(settings.password_file);
    if (!password) return password.status().with_context("fleet-password-file");
    link.password = std::move(*password);
  }
  auto signer = read_or_make_key(settings.key_file);
  if (!signer) return signer.status().with_context("fleet-key");
  std::unique_ptr<Fleet> fleet(new Fleet(settings, std::move(*signer), std::move(hooks)));
  if (Status status = fleet->reload(); !status.ok()) return status;
  Fleet* const self = fleet.get();
  fleet->link_ = std::make_unique<RedisLink>(
      loop, link,
      RedisLink::Hooks{[self](bool up, const std::string& why) { self->changed(up, why); },
                       std::move(after)});
  return fleet;
}

Fleet::Fleet(FleetSettings settings, SigningKey signer, Hooks hooks)
    : settings_(std::move(settings)),
      signer_(std::move(signer)),
      node_(random_name()),
      hooks_(std::move(hooks)) {}

Status Fleet::reload() {
  std::vector<std::string> trusted;
  std::error_code error;
  if (std::filesystem::exists(settings_.trust_file, error)) {
    auto keys = read_public_keys(settings_.trust_file);
    if (!keys) return keys.status().with_context("fleet-trust");
    trusted = std::move(*keys);
  }
  trusted.push_back(signer_.public_key);
  trusted_ = std::make_shared<const std::vector<std::string>>(std::move(trusted));
  seen_.clear();  // what was refused may be trusted now
  return {};
}

std::string Fleet::name_of(const Hash128& key, const char* what) const {
  return settings_.prefix + to_hex(key) + what;
}

std::string Fleet::seen(const Hash128& key) const {
  const auto found = seen_.find(key);
  return found == seen_.end() ? "" : found->second;
}

void Fleet::saw(const Hash128& key, const std::string& value) {
  if (seen_.size() >= kMaxSeen) seen_.clear();
  seen_[key] = value.substr(0, kFleetHead);
}

// One line a minute for each cause.
void Fleet::complain(const std::string& cause, const std::string& detail) {
  const uint64_t now = hooks_.now_ns();
  const auto [last, first] = complained_ns_.try_emplace(cause, now);
  if (!first && now - last->second < kComplainNs) return;
  last->second = now;
  hooks_.log->warning("event=fleet_" + cause + " reason=\"" + detail + "\"");
}

// ---- the connection ----

void Fleet::changed(bool up, const std::string& why) {
  if (up) {
    hooks_.log->info("event=fleet_up server=\"" + settings_.address + "\"");
    why_down_.clear();
    pump_looks();
    return pump_outbox();
  }
  if (std::exchange(why_down_, why) != why)
    hooks_.log->warning("event=fleet_down server=\"" + settings_.address + "\" reason=\"" + why + "\"");
  // Leases and what was seen may be gone with the server.
  leases_.clear();
  release_after_.clear();
  seen_.clear();
  for (auto& [key, waits] : std::exchange(waiting_, {})) waits.claimed({Turn::again, {}});
  for (Look& one : std::exchange(looks_, {})) {
    ++counts_.failures;
    one.found({});
  }
}

// ---- reading ----

void Fleet::read(const KeyMaterial& material, std::string value, Read done) {
  struct Work {
    std::string value;
    KeyMaterial material;
    Result<FleetPlan> plan = Status(ErrorCode::INTERNAL, "not read");
  };
  auto work = std::make_shared<Work>(Work{std::move(value), material});
  hooks_.aside(
      [work, trusted = trusted_] { work->plan = read_fleet_value(work->value, *trusted, work->material); },
      [this, work, done = std::move(done)] {
        if (!work->plan.ok()) {
          const Status& why = work->plan.status();
          ++counts_.refused;
          saw(work->material.key(), work->value);
          complain(std::string("refused_") + error_name(why.code()),
                   "plan " + to_hex(work->material.key()) + ": " + why.message());
        }
        done(std::move(work->plan));
      });
}

void Fleet::look(const KeyMaterial& material, Found found) {
  looks_.push_back({material, std::move(found), hooks_.now_ns()});
  hooks_.post([this] { pump_looks(); });
}

void Fleet::pump_looks() {
  if (link_->starting()) return;
  while (looking_ < kLooksAtOnce && !looks_.empty()) {
    Look one = std::move(looks_.front());
    looks_.pop_front();
    // Behind a slow server a compile is quicker.
    if (!up() || hooks_.now_ns() - one.asked_ns > 4 * settings_.limit_ms * kMs) {
      ++counts_.failures;
      one.found({});
      continue;
    }
    ++looking_;
    const auto end = [this, found = std::move(one.found)](std::optional<FleetPlan> plan, uint64_t& count) {
      --looking_;
      ++count;
      found(std::move(plan));
      pump_looks();
    };
    link_->ask({"GETRANGE", name_of(one.material.key()), "0", kLastValueByte},
               [this, end, material = one.material](Result<RedisLink::Reply> reply) {
                 if (!reply.ok()) {
                   complain("read_failed", reply.status().message());
                   return end({}, counts_.failures);
                 }
                 if (reply->text.empty()) return end({}, counts_.misses);
                 read(material, std::move(reply->text), [this, end](Result<FleetPlan> plan) {
                   plan.ok() ? end(std::move(*plan), counts_.hits) : end({}, counts_.misses);
                 });
               });
  }
}

// ---- leases ----

void Fleet::claim(const KeyMaterial& material, Claimed claimed, int tries) {
  if (!up() || tries >= kTries) return hooks_.post([claimed = std::move(claimed)] { claimed({}); });
  const Hash128 key = material.key();
  link_->ask({"EVAL", kClaimScript, "2", name_of(key), name_of(key, ":lease"), seen(key), node_,
              std::to_string(kLeaseMs), kLastValueByte, kLastHeadByte},
             [this, material, claimed = std::move(claimed), tries](const Result<RedisLink::Reply>& reply) {
               if (reply.ok()) return asked_for(material, claimed, *reply, tries);
               ++counts_.failures;
               complain("claim_failed", reply.status().message());
               claimed({});
             });
}

void Fleet::asked_for(const KeyMaterial& material, const Claimed& claimed, const RedisLink::Reply& reply,
                      int tries) {
  if (!reply.text.empty())
    return read(material, reply.text, [this, material, claimed, tries](Result<FleetPlan> plan) {
      if (!plan.ok()) return claim(material, claimed, tries + 1);  // it was seen now
      ++counts_.hits;
      claimed({Turn::mine, std::move(*plan)});
    });
  if (reply.number != 1) return wait(material, claimed);
  ++counts_.leases;
  if (leases_.empty()) next_renew_ns_ = hooks_.now_ns() + kRenewNs;
  leases_.insert(material.key());
  claimed({});
}

void Fleet::wait(const KeyMaterial& material, Claimed claimed) {
  const uint64_t now = hooks_.now_ns();
  ++counts_.waits;
  if (waiting_.empty()) next_look_ns_ = now + (look_every_ns_ = kFirstLookNs);
  waiting_[material.key()] = {material, claimed, now + settings_.wait_seconds * 1000 * kMs};
  claimed({Turn::others, {}});
}

void Fleet::look_at_waiting() {
  const uint64_t now = hooks_.now_ns();
  std::vector<Hash128> keys;
  std::vector<Claimed> late;
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    if (now >= each->second.until_ns) {
      late.push_back(std::move(each->second.claimed));
      each = waiting_.erase(each);
      continue;
    }
    keys.push_back(each->first);
    ++each;
  }
  // Where more wait than one question is for, all have their turn.
  if (keys.size() > kWatchedAtOnce) {
    watched_ = (watched_ + kWatchedAtOnce) % keys.size();
    std::rotate(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(watched_), keys.end());
    keys.resize(kWatchedAtOnce);
  }
  if (!late.empty()) complain("waited_in_vain", "another node did not make a plan within fleet-wait-seconds");
  for (const Claimed& claimed : late) claimed({});
  if (keys.empty() || !up()) return;
  std::vector<std::string> words = {"EVAL", kWatchScript, std::to_string(2 * keys.size())};
  for (const Hash128& key : keys) words.insert(words.end(), {name_of(key), name_of(key, ":lease")});
  for (const Hash128& key : keys) words.push_back(seen(key));
  words.push_back(kLastHeadByte);
  looking_at_waiting_ = true;
  link_->ask(words, [this, keys](const Result<RedisLink::Reply>& reply) {
    looking_at_waiting_ = false;
    bool any = false;
    for (size_t i = 0; reply.ok() && i < std::min(keys.size(), reply->numbers.size()); ++i)
      if (reply->numbers[i] == 1) {
        any = true;
        claim_again(keys[i]);
      }
    look_every_ns_ = any ? kFirstLookNs : std::min(2 * look_every_ns_, kLastLookNs);
    next_look_ns_ = hooks_.now_ns() + look_every_ns_;
  });
}

// It keeps the place in time of the first claim.
void Fleet::claim_again(const Hash128& key) {
  auto waits = waiting_.extract(key);
  if (!waits) return;
  const uint64_t until = waits.mapped().until_ns;
  const Claimed claimed = std::move(waits.mapped().claimed);
  claim(waits.mapped().material, [this, key, until, claimed](Claim result) {
    if (result.turn != Turn::others) return claimed(std::move(result));
    --counts_.waits;
    waiting_[key].until_ns = until;
    waiting_[key].claimed = claimed;
  });
}

void Fleet::release(const Hash128& key) {
  if (!leases_.contains(key)) return;
  if (listed_.contains(key) || writing_.contains(key))
    release_after_.insert(key);
  else
    send_release(key);
}

void Fleet::send_release(const Hash128& key) {
  if (!leases_.erase(key) || !up()) return;
  link_->ask({"EVAL", kReleaseScript, "1", name_of(key, ":lease"), node_}, [](const auto&) {});
}

void Fleet::renew() {
  for (const Hash128& key : leases_)
    link_->ask({"EVAL", kRenewScript, "1", name_of(key, ":lease"), node_, std::to_string(kLeaseMs)},
               [](const auto&) {});
}

// ---- writing behind ----

void Fleet::offer(const Hash128& key) {
  if (!hooks_.store || listed_.contains(key)) return;
  if (outbox_.size() >= kMaxOutbox) {
    ++counts_.dropped;
    return complain("outbox_full",
                    std::to_string(outbox_.size()) + " plans wait to be sent; this one stays here");
  }
  // First what others wait for.
  leases_.contains(key) ? outbox_.push_front(key) : outbox_.push_back(key);
  listed_.insert(key);
  pump_outbox();
}

void Fleet::pump_outbox() {
  while (up() && writing_.size() < kWritesAtOnce && !outbox_.empty() && hooks_.now_ns() >= write_after_ns_) {
    const Hash128 key = outbox_.front();
    outbox_.pop_front();
    listed_.erase(key);
    if (writing_.insert(key).second)
      write(key, 0);
    else
      return put_off(key);  // it became better while it was written
  }
}

void Fleet::put_off(const Hash128& key) {
  write_after_ns_ = hooks_.now_ns() + kWriteAgainNs;
  if (listed_.insert(key).second) outbox_.push_back(key);
}

void Fleet::write(const Hash128& key, int tries) {
  auto value = std::make_shared<Result<FleetValue>>(Status(ErrorCode::INTERNAL, "not made"));
  hooks_.aside([this, key, value] { *value = make_fleet_value(*hooks_.store, key, signer_); },
               [this, key, tries, value] {
                 if (!value->ok()) {
                   if (value->status().code() != ErrorCode::NOT_FOUND) {
                     ++counts_.dropped;
                     complain("not_sent", "plan " + to_hex(key) + ": " + value->status().message());
                   }
                   return end_write(key);
                 }
                 if (!up()) {
                   end_write(key);
                   return put_off(key);
                 }
                 link_->ask(
                     {"EVAL", kWriteScript, "1", name_of(key), seen(key), value->value().bytes,
                      kLastValueByte, kLastHeadByte},
                     [this, key, tries, rank = value->value().rank](const Result<RedisLink::Reply>& reply) {
                       if (reply.ok()) return wrote(key, rank, tries, reply->text);
                       ++counts_.failures;
                       complain("write_failed", reply.status().message());
                       end_write(key);
                       put_off(key);
                     });
               });
}

// `stands` is on the server instead, if it is not empty: what is better stays, here and there.
void Fleet::wrote(const Hash128& key, const Rank& rank, int tries, const std::string& stands) {
  if (stands.empty()) {
    ++counts_.sent;
    seen_.erase(key);
    return end_write(key);
  }
  const auto own = hooks_.store->peek(key);
  const auto spec = own.ok() ? job_for(wire::JobKind::baseline, key, own->material) : std::nullopt;
  if (!spec || tries + 1 >= kTries) return end_write(key);
  read(spec->material, stands, [this, key, rank, tries, stands](Result<FleetPlan> plan) {
    if (plan.ok() && !rank.beats(plan->rank)) {
      if (plan->rank.beats(rank)) hooks_.found_better(std::move(*plan));
      return end_write(key);
    }
    saw(key, stands);
    write(key, tries + 1);
  });
}

void Fleet::end_write(const Hash128& key) {
  writing_.erase(key);
  if (!listed_.contains(key) && release_after_.erase(key)) send_release(key);
  pump_outbox();
}

// ---- time and numbers ----

std::optional<uint64_t> Fleet::next_ns() const {
  if (!up()) return std::nullopt;
  uint64_t next = UINT64_MAX;
  if (!waiting_.empty() && !looking_at_waiting_) next = std::min(next, next_look_ns_);
  if (!leases_.empty()) next = std::min(next, next_renew_ns_);
  if (!outbox_.empty() && writing_.size() < kWritesAtOnce) next = std::min(next, write_after_ns_);
  return next == UINT64_MAX ? std::nullopt : std::optional(next);
}

void Fleet::expire() {
  if (!up()) return;
  const uint64_t now = hooks_.now_ns();
  if (!waiting_.empty() && !looking_at_waiting_ && now >= next_look_ns_) look_at_waiting();
  if (!leases_.empty() && now >= next_renew_ns_) {
    next_renew_ns_ = now + kRenewNs;
    renew();
  }
  pump_outbox();
}

void Fleet::add_stats(wire::StatsReply& stats) const {
  const auto count = [&](const char* name, uint64_t value) { stats.counters.push_back({name, value}); };
  count("fleet_up", up());
  count("fleet_hits", counts_.hits);
  count("fleet_misses", counts_.misses);
  count("fleet_refused", counts_.refused);
  count("fleet_failures", counts_.failures);
  count("fleet_sent", counts_.sent);
  count("fleet_queued", outbox_.size() + writing_.size());
  count("fleet_dropped", counts_.dropped);
  count("fleet_leases", counts_.leases);
  count("fleet_waits", counts_.waits);
  count("fleet_waiting", waiting_.size());
  stats.facts.push_back({"fleet", settings_.address + (up()                ? ": up"
                                                       : link_->starting() ? ": connecting"
                                                                           : ": down: " + link_->why())});
  stats.facts.push_back({"fleet_key", hex_of(signer_.public_key)});
}

}  // namespace quern
