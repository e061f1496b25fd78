// The connections of clients: who may come in, what all of them hold, and who has to go. On the daemon's
// thread.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/service.h"
#include "daemon/session.h"

namespace quern {

struct AdmissionLimits {
  uint64_t max_clients = 1;
  std::vector<uid_t> allow_uids;  // besides the daemon's own and root
};

class Sessions {
 public:
  // `changed`: next_ns() may be another.
  Sessions(uv_loop_t* loop, Log* log, std::function<void()> changed);

  // Of those who are connected, too: users who may no longer connect are disconnected.
  void set_limits(const SessionLimits& limits, AdmissionLimits admission);
  // From here on clients are taken in, and their frames are the service's.
  Status listen(Listener* listener, Service* service);
  void stop_listening();
  void send(ClientId client, wire::OutFrame frame);

  // When somebody must have greeted, or gone; and what is done then.
  std::optional<uint64_t> next_ns() const;
  void expire(uint64_t now_ns);

  bool empty() const { return sessions_.empty(); }
  bool all_sent() const;
  void add_stats(wire::StatsReply& stats) const;
  // For good; the loop runs until what belongs to it is closed.
  void close();

 private:
  static constexpr uint64_t kGreetingLimitNs = 10'000'000'000, kFarewellLimitNs = 2'000'000'000;
  static constexpr size_t kTogether = 64;    // that are written to at once
  static constexpr int kAcceptsAtOnce = 16;  // then whoever is connected has its turn

  void accept();
  void take_in(int socket);
  Status admit(const Peer& peer) const;
  void watch();
  void make_ready(Session& session);
  void before_waiting();
  void flush_ready();
  bool make_room(Session& session);
  void on_frame(Session& session, const wire::Frame& frame);

  uv_loop_t* const loop_;
  Log* const log_;
  const std::function<void()> changed_;
  Listener* listener_ = nullptr;
  Service* service_ = nullptr;
  uv_poll_t listening_;
  uv_prepare_t prepare_;
  uv_idle_t more_;  // active: the loop looks for more requests, and does not wait
  size_t ready_before_ = 0;
  uv_timer_t watch_;
  AdmissionLimits admission_;
  SessionLimits limits_;
  Session::Hooks hooks_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  Session* asking_ = nullptr;                    // whose frame is being handled
  std::vector<Session*> ready_;                  // that have something to send
  std::unordered_map<uint64_t, uid_t> users_;    // of sessions, as long as they are open
  std::multimap<uint64_t, uint64_t> deadlines_;  // time -> session that must have greeted, or gone, by then
  uint64_t next_session_ = 1, total_ = 0, refused_ = 0, dropped_ = 0;
};

}  // namespace quern
