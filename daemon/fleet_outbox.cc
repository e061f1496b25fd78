// Plans of this node on their way to the fleet's server.
#include "daemon/fleet.h"

namespace quern {

namespace {

constexpr uint64_t kWriteAgainNs = 1'000'000'000;
constexpr size_t kWritesAtOnce = 8, kMaxOutbox = 1 << 16;
constexpr int kTries = 3;

// Writes unless there is a value that the caller has not seen: then that is the answer. What is written may
// be news.
constexpr const char* kWriteScript =
    "if redis.call('GETRANGE',KEYS[1],0,ARGV[4]) ~= ARGV[1] then "
    "return redis.call('GETRANGE',KEYS[1],0,ARGV[3]) end "
    "redis.call('SET',KEYS[1],ARGV[2]) "
    "if ARGV[5] ~= '' then redis.call('ZADD',KEYS[3],redis.call('INCR',KEYS[2]),ARGV[5]) "
    "redis.call('ZREMRANGEBYRANK',KEYS[3],0,-65537) end "  // enough for a node that was away for a while
    "return ''";

}  // namespace

void Fleet::offer(const Hash128& key, const std::string& device) {
  const std::string value = value_of(key, device);
  if (!hooks_.store || listed_.contains(value)) return;
  if (outbox_.size() >= kMaxOutbox) {
    ++counts_.dropped;
    return complain("outbox_full",
                    std::to_string(outbox_.size()) + " plans wait to be sent; this one stays here");
  }
  // First what others wait for.
  const bool leased = leases_.contains(value + ":lease") || leases_.contains(value + ":search");
  outbox_.insert(leased ? outbox_.begin() : outbox_.end(), {key, device});
  listed_.insert(value);
  pump_outbox();
}

bool Fleet::may_write() const { return !outbox_.empty() && writing_.size() < kWritesAtOnce; }

void Fleet::pump_outbox() {
  while (up() && may_write() && hooks_.now_ns() >= write_after_ns_) {
    const Place place = outbox_.front();
    const std::string value = value_of(place.key, place.device);
    outbox_.pop_front();
    listed_.erase(value);
    if (writing_.insert(value).second)
      write(place, 0);
    else
      changed_.insert(value);
  }
}

void Fleet::put_off(const Place& place) {
  write_after_ns_ = hooks_.now_ns() + kWriteAgainNs;
  if (listed_.insert(value_of(place.key, place.device)).second) outbox_.push_back(place);
}

void Fleet::write(const Place& place, int tries) {
  auto made = std::make_shared<Result<FleetValue>>(Status(ErrorCode::INTERNAL, "not made"));
  hooks_.aside(
      [this, place, made] { *made = make_fleet_value(*hooks_.store, place.key, place.device, signer_); },
      [this, place, tries, made] {
        if (!made->ok()) {
          if (made->status().code() != ErrorCode::NOT_FOUND) {
            ++counts_.dropped;
            complain("not_sent", "plan " + to_hex(place.key) + ": " + made->status().message());
          }
          return end_write(place);
        }
        if (!up()) {
          end_write(place);
          return put_off(place);
        }
        const std::string value = value_of(place.key, place.device);
        link_->ask({"EVAL", kWriteScript, "3", value, news_number(), news_list(), seen(value),
                    made->value().bytes, kLastValueByte, kLastHeadByte, news_of(place, made->value().rank)},
                   [this, place, tries, rank = made->value().rank](const Result<RedisLink::Reply>& reply) {
                     if (reply.ok()) return wrote(place, rank, tries, reply->text);
                     ++counts_.failures;
                     complain("write_failed", reply.status().message());
                     end_write(place);
                     put_off(place);
                   });
      });
}

// `stands` is on the server instead, if it is not empty: what is better stays, here and there.
void Fleet::wrote(const Place& place, const Rank& rank, int tries, const std::string& stands) {
  const std::string value = value_of(place.key, place.device);
  if (stands.empty()) {
    ++counts_.sent;
    seen_.erase(value);
    return end_write(place);
  }
  const auto own = hooks_.store->peek(place.key);
  const auto spec = own.ok() ? job_for(wire::JobKind::baseline, place.key, own->material) : std::nullopt;
  if (!spec || tries + 1 >= kTries) return end_write(place);
  read(spec->material, value, stands, [this, place, rank, tries, stands, value](Result<FleetPlan> plan) {
    if (plan.ok() && !rank.beats(plan->rank)) {
      if (plan->rank.beats(rank)) hooks_.found_better(std::move(*plan));
      return end_write(place);
    }
    saw(value, stands);
    write(place, tries + 1);
  });
}

void Fleet::end_write(const Place& place) {
  const std::string value = value_of(place.key, place.device);
  writing_.erase(value);
  if (changed_.erase(value)) offer(place.key, place.device);
  if (!listed_.contains(value) && !writing_.contains(value)) {
    const auto [first, last] = release_after_.equal_range(value);
    for (auto each = first; each != last; ++each) send_release(each->second);
    release_after_.erase(value);
  }
  pump_outbox();
}

}  // namespace quern
