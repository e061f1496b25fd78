// The second level: a Redis or Valkey server that the daemons of a fleet share. Plans that this node lacks are looked for there, plans that
// it makes are sent there later, and of nodes that miss together one compiles: it holds a lease in the server, the others wait for its plan.
// On the daemon's thread only; signatures are made and checked on others.
//
// On the server, under the prefix: KEY, a signed plan (fleet_value.h), and KEY:lease, the name of the node that makes it, for a few seconds
// that it renews. Nothing that is read there is believed; without the server every node is on its own.
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
  enum class Turn {
    mine,    // make it, and release() it
    others,  // another node makes it; the callback comes once more
    again,   // ask again: the server was lost meanwhile
  };
  struct Claim {
    Turn turn = Turn::mine;
    std::optional<FleetPlan> found;  // then there is nothing to make
  };
  using Found = std::function<void(std::optional<FleetPlan>)>;
  using Claimed = std::function<void(Claim)>;

  // Reads keys and password. What is wrong with them, saying which setting.
  static Result<std::unique_ptr<Fleet>> open(uv_loop_t* loop, const FleetSettings& settings, Hooks hooks,
                                             std::function<void()> after);

  // Reads fleet-trust again; what is wrong with it, and then nothing has changed.
  Status reload();
  void start() { link_->start(); }
  void close() { link_->close(); }

  // Both call back later, never before they return.
  void look(const KeyMaterial& material, Found found);
  void claim(const KeyMaterial& material, Claimed claimed, int tries = 0);
  // The job is over. Others may have the lease as soon as the plan, if there is one, is on the server.
  void release(const Hash128& key);
  // The store has a plan that the server may not have.
  void offer(const Hash128& key);

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
  struct Waiting {
    KeyMaterial material;
    Claimed claimed;
    uint64_t until_ns;
  };
  using Read = std::function<void(Result<FleetPlan>)>;
  struct Counts {
    uint64_t hits = 0, misses = 0, refused = 0, failures = 0, sent = 0, dropped = 0, leases = 0, waits = 0;
  };

  Fleet(FleetSettings settings, SigningKey signer, Hooks hooks);
  bool up() const { return link_->up(); }
  void changed(bool up, const std::string& why);
  std::string name_of(const Hash128& key, const char* what = "") const;
  std::string seen(const Hash128& key) const;
  void saw(const Hash128& key, const std::string& value);
  void read(const KeyMaterial& material, std::string value, Read done);
  void pump_looks();
  void asked_for(const KeyMaterial& material, const Claimed& claimed, const RedisLink::Reply& reply,
                 int tries);
  void wait(const KeyMaterial& material, Claimed claimed);
  void look_at_waiting();
  void claim_again(const Hash128& key);
  void renew();
  void send_release(const Hash128& key);
  void pump_outbox();
  void write(const Hash128& key, int tries);
  void wrote(const Hash128& key, const Rank& rank, int tries, const std::string& stands);
  void end_write(const Hash128& key);
  void put_off(const Hash128& key);
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
  std::unordered_map<Hash128, std::string> seen_;  // heads of values that are no use here
  std::unordered_map<Hash128, Waiting> waiting_;   // for other nodes
  uint64_t next_look_ns_ = 0, look_every_ns_ = 0;
  bool looking_at_waiting_ = false;
  size_t watched_ = 0;  // where the next question begins
  std::unordered_set<Hash128> leases_;
  uint64_t next_renew_ns_ = 0;
  std::deque<Hash128> outbox_;  // in order; `listed_` has the same
  std::unordered_set<Hash128> listed_, writing_, release_after_;
  uint64_t write_after_ns_ = 0;
  std::unordered_map<std::string, uint64_t> complained_ns_;  // by cause
  std::string why_down_;                                     // as the log says it
};

}  // namespace quern
