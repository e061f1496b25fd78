// How nodes that have a plan learn of a better one: the server numbers what is published, and each node asks
// now and then what came after the last that it has seen.
#include <sstream>

#include "daemon/fleet.h"

namespace quern {

namespace {

constexpr uint64_t kNewsNs = 2'000'000'000, kMoreNewsNs = 20'000'000;
constexpr size_t kNewsAtOnce = 256, kNumberBytes = 24;

// The number of the last one, then a line each. A server that was started again counts from 1.
constexpr const char* kNewsScript =
    "local from = tonumber(ARGV[1]) "
    "if tonumber(redis.call('GET',KEYS[1]) or '0') < from then from = 0 end "
    "local r = redis.call('ZRANGEBYSCORE',KEYS[2],'('..from,'+inf','WITHSCORES','LIMIT',0,ARGV[2]) "
    "local lines = {from} for i = 1, #r, 2 do lines[1] = r[i + 1] lines[#lines + 1] = r[i] end "
    "return table.concat(lines,'\\n')";

}  // namespace

std::string Fleet::news_of(const Place& place, const Rank& rank) const {
  if (!place.device.empty() || rank.tier == Tier::baseline) return "";
  return to_hex(place.key) + " " + std::to_string(static_cast<int>(rank.tier)) + " " + node_;
}

void Fleet::ask_for_news() {
  asking_for_news_ = true;
  link_->ask({"EVAL", kNewsScript, "2", news_number(), news_list(), last_news_, std::to_string(kNewsAtOnce)},
             [this](const Result<RedisLink::Reply>& reply) {
               asking_for_news_ = false;
               const uint64_t now = hooks_.now_ns();
               next_news_ns_ = now + kNewsNs;
               if (!reply.ok()) return complain("news_failed", reply.status().message());
               std::istringstream lines(reply->text);
               std::string line;
               if (std::getline(lines, line) && line.size() < kNumberBytes) last_news_ = line;
               size_t count = 0;
               for (; count < kNewsAtOnce && std::getline(lines, line); ++count) heard(line);
               if (count >= kNewsAtOnce) next_news_ns_ = now + kMoreNewsNs;
             });
}

void Fleet::heard(const std::string& line) {
  std::istringstream words(line);
  std::string hex, node;
  int tier = 0;
  const auto key = words >> hex >> tier >> node ? parse_hash(hex) : std::nullopt;
  if (!key || node == node_) return;
  const auto own = hooks_.store->peek(*key);
  if (!own.ok() || tier <= static_cast<int>(own->tier)) return;
  const auto spec = job_for(wire::JobKind::baseline, *key, own->material);
  if (!spec) return;
  look(spec->material, [this](std::optional<FleetPlan> found) {
    if (found) hooks_.found_better(std::move(*found));
  });
}

}  // namespace quern
