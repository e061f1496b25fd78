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
constexpr size_t kLooksAtOnce = 64, kMaxSeen = 4096;
constexpr uint64_t kComplainNs = 60'000 * kMs;

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

std::string Fleet::value_of(const Hash128& key, const std::string& device) const {
  return settings_.prefix + to_hex(key) + (device.empty() ? "" : ":" + to_hex(hash128(device)));
}

std::string Fleet::seen(const std::string& name) const {
  const auto found = seen_.find(name);
  return found == seen_.end() ? "" : found->second;
}

void Fleet::saw(const std::string& name, const std::string& value) {
  if (seen_.size() >= kMaxSeen) seen_.clear();
  seen_[name] = value.substr(0, kFleetHead);
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
    next_news_ns_ = hooks_.now_ns();
    pump_looks();
    return pump_outbox();
  }
  if (std::exchange(why_down_, why) != why)
    hooks_.log->warning("event=fleet_down server=\"" + settings_.address + "\" reason=\"" + why + "\"");
  // What was seen may be gone with the server. Leases are renewed when it is back: what they are for goes on.
  for (const auto& [value, lease] : release_after_) leases_.erase(lease);
  release_after_.clear();
  seen_.clear();
  for (auto& [lease, waits] : std::exchange(waiting_, {})) waits.claimed({Turn::again, {}});
  for (Look& one : std::exchange(looks_, {})) {
    ++counts_.failures;
    one.found({});
  }
}

// ---- reading ----

void Fleet::read(const KeyMaterial& material, const std::string& name, std::string value, Read done) {
  struct Work {
    std::string value;
    KeyMaterial material;
    Result<FleetPlan> plan = Status(ErrorCode::INTERNAL, "not read");
  };
  auto work = std::make_shared<Work>(Work{std::move(value), material});
  hooks_.aside(
      [work, trusted = trusted_] { work->plan = read_fleet_value(work->value, *trusted, work->material); },
      [this, work, name, done = std::move(done)] {
        if (!work->plan.ok()) {
          const Status& why = work->plan.status();
          ++counts_.refused;
          saw(name, work->value);
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
    const std::string name = value_of(one.material.key(), "");
    link_->ask({"GETRANGE", name, "0", kLastValueByte},
               [this, end, name, material = one.material](Result<RedisLink::Reply> reply) {
                 if (!reply.ok()) {
                   complain("read_failed", reply.status().message());
                   return end({}, counts_.failures);
                 }
                 if (reply->text.empty()) return end({}, counts_.misses);
                 read(material, name, std::move(reply->text), [this, end](Result<FleetPlan> plan) {
                   plan.ok() ? end(std::move(*plan), counts_.hits) : end({}, counts_.misses);
                 });
               });
  }
}

// ---- time and numbers ----

std::optional<uint64_t> Fleet::next_ns() const {
  if (!up()) return std::nullopt;
  uint64_t next = UINT64_MAX;
  if (!waiting_.empty() && !looking_at_waiting_) next = std::min(next, next_look_ns_);
  if (!leases_.empty()) next = std::min(next, next_renew_ns_);
  if (hooks_.store && !asking_for_news_) next = std::min(next, next_news_ns_);
  if (may_write()) next = std::min(next, write_after_ns_);
  return next == UINT64_MAX ? std::nullopt : std::optional(next);
}

void Fleet::expire() {
  if (!up()) return;
  const uint64_t now = hooks_.now_ns();
  if (!waiting_.empty() && !looking_at_waiting_ && now >= next_look_ns_) look_at_waiting();
  if (!leases_.empty() && now >= next_renew_ns_) renew();
  if (hooks_.store && !asking_for_news_ && now >= next_news_ns_) ask_for_news();
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
