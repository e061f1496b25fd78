// The second level: a Redis or Valkey server that the daemons of a fleet share. Plans that this node lacks
// are looked for there, plans that it makes are sent there later, and what several nodes would do at once,
// one does: it holds a lease in the server, the others wait for its result. On the daemon's thread only;
// signatures are made and checked on others.
//
// On the server, under the prefix: KEY, a signed plan with what a search for a better one has found;
// KEY:DEVICE, the plan that is best on a device, with the times of its programs there (fleet_value.h). Leases
// say which node compiles (KEY:lease), searches (KEY:search) or measures (KEY:DEVICE:lease), for a few
// seconds that it renews, and no longer than such a job may take. `news` lists what became better, in order.
// Nothing that is read there is believed; without the server every node is on its own.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/store.h"
#include "capi/wire/messages.h"
#include "daemon/aside.h"
#include "daemon/fleet_value.h"
#include "daemon/log.h"
#include "daemon/redis_link.h"
#include "daemon/workers.h"

namespace quern {

struct FleetSettings {
  std::string address;              // empty: there is no fleet
  std::string user, password_file;  // empty: no password is sent
  std::string prefix = "quern:";
  std::string key_file, trust_file;            // of this node's signatures, and whose others it takes
  uint64_t limit_ms = 250, wait_seconds = 20;  // for an answer; for a plan that another node makes
};

class Fleet {
 public:
  struct Hooks {
    Store* store = nullptr;  // null: nothing is sent
    Post post;
    Aside::Run aside;
    Log* log = nullptr;
    std::function<uint64_t()> now_ns;
    std::function<void(FleetPlan)> found_better;  // on the server, when this node came with its own
  };
  // What one node does for all.
  struct Errand {
    wire::JobKind kind = wire::JobKind::baseline;
    KeyMaterial material;
    std::string device = {};  // of a measuring
    uint64_t budget_ms = 0;   // that it has; 0: it is a compile
  };
  enum class Turn {
    mine,    // do it, and release() it
    others,  // another node does it; the callback comes once more
    again,   // ask again: the server was lost meanwhile
  };
  struct Claim {
    Turn turn = Turn::mine;
    std::optional<FleetPlan> found;  // then there is nothing to do
  };
  using Found = std::function<void(std::optional<FleetPlan>)>;
  using Claimed = std::function<void(Claim)>;
  // Whether a plan on the server is what the errand would bring. `waited`: another node has brought it
  // meanwhile.
  using Serves = std::function<bool(const FleetPlan&, bool waited)>;

  // Reads keys and password. What is wrong with them, saying which setting.
  static Result<std::unique_ptr<Fleet>> open(uv_loop_t* loop, const FleetSettings& settings, Hooks hooks,
                                             std::function<void()> after);

  // Reads fleet-trust again; what is wrong with it, and then nothing has changed.
  Status reload();
  void start() { link_->start(); }
  void close() { link_->close(); }

  // Both call back later, never before they return.
  void look(const KeyMaterial& material, Found found);
  void claim(Errand errand, Serves serves, Claimed claimed);
  // The errand is over. Others may have the lease as soon as what was offered is on the server.
  void release(const Errand& errand);
  // The store has a plan, or knows of one, what the server may not have; with a device: its times there.
  void offer(const Hash128& key, const std::string& device = "");

  // Whether it is worth asking.
  bool usable() const { return up() || link_->starting(); }
  // Nothing is left to be sent, or there is nobody to send it to.
  bool settled() const { return !up() || (outbox_.empty() && writing_.empty()); }
  std::optional<uint64_t> next_ns() const;
  void expire();
  void add_stats(wire::StatsReply& stats) const;

 private:
  struct Look {
    KeyMaterial material;
    Found found;
    uint64_t asked_ns;
  };
  struct Claiming {
    Errand errand;
    Serves serves;
    Claimed claimed;
    uint64_t until_ns = 0;  // of waiting for others; 0: it has not waited
    int tries = 0;
  };
  struct Place {  // of a value
    Hash128 key;
    std::string device;
  };
  using Read = std::function<void(Result<FleetPlan>)>;
  struct Counts {
    uint64_t hits = 0, misses = 0, refused = 0, failures = 0, sent = 0, dropped = 0, leases = 0, waits = 0;
  };

  Fleet(FleetSettings settings, SigningKey signer, Hooks hooks);
  bool up() const { return link_->up(); }
  void changed(bool up, const std::string& why);
  std::string value_of(const Hash128& key, const std::string& device) const;
  std::string value_of(const Errand& errand) const;
  std::string lease_of(const Errand& errand) const;
  uint64_t limit_ns(const Errand& errand) const;
  std::string seen(const std::string& name) const;
  void saw(const std::string& name, const std::string& value);
  void read(const KeyMaterial& material, const std::string& name, std::string value, Read done);
  void pump_looks();
  void ask_for(Claiming claiming);
  void asked_for(Claiming claiming, const RedisLink::Reply& reply);
  void wait(Claiming claiming);
  void look_at_waiting();
  void send_release(const std::string& lease);
  void renew();
  bool may_write() const;
  void pump_outbox();
  void write(const Place& place, int tries);
  void wrote(const Place& place, const Rank& rank, int tries, const std::string& stands);
  void end_write(const Place& place);
  void put_off(const Place& place);
  std::string news_number() const { return settings_.prefix + "news-number"; }
  std::string news_list() const { return settings_.prefix + "news"; }
  std::string news_of(const Place& place, const Rank& rank) const;
  void ask_for_news();
  void heard(const std::string& line);
  void complain(const std::string& cause, const std::string& detail);

  const FleetSettings settings_;
  const SigningKey signer_;
  std::shared_ptr<const std::vector<std::string>> trusted_;  // read on other threads, so replaced as a whole
  const std::string node_;                                   // what its leases say
  const Hooks hooks_;
  std::unique_ptr<RedisLink> link_;
  Counts counts_;

  std::deque<Look> looks_;
  size_t looking_ = 0;
  std::unordered_map<std::string, std::string>
      seen_;  // heads of values that are no use here, by value or lease
  std::unordered_map<std::string, Claiming> waiting_;  // for other nodes, by lease
  uint64_t next_look_ns_ = 0, look_every_ns_ = 0;
  bool looking_at_waiting_ = false;
  size_t watched_ = 0;                                // where the next question begins
  std::unordered_map<std::string, uint64_t> leases_;  // and how long they are renewed
  uint64_t next_renew_ns_ = 0;
  std::deque<Place> outbox_;  // in order; `listed_` has the names of their values
  std::unordered_set<std::string> listed_, writing_, changed_;  // changed: while it was written
  std::unordered_multimap<std::string, std::string>
      release_after_;  // leases, by the value that is written first
  uint64_t write_after_ns_ = 0;
  uint64_t next_news_ns_ = 0;
  std::string last_news_ = "0";
  bool asking_for_news_ = false;
  std::unordered_map<std::string, uint64_t> complained_ns_;  // by cause
  std::string why_down_;                                     // as the log says it
};

}  // namespace quern
