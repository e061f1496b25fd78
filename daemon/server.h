// The daemon itself: the loop that carries bytes between sessions and the service, the signals, and the order
// of start and end.
#pragma once

#include <uv.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/store.h"
#include "daemon/fleet.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/metrics_port.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "daemon/session.h"
#include "daemon/worker_pool.h"

namespace quern {

class Server {
 public:
  Server(Options options, Log* log);
  ~Server();

  // BUSY when another daemon serves the socket or has the cache open.
  Status start();
  // Returns when a signal or a client has told the daemon to stop, and it has.
  void run();

 private:
  static constexpr uint64_t kGreetingLimitNs = 10'000'000'000, kFarewellLimitNs = 2'000'000'000;
  static constexpr size_t kTogether = 64;    // sessions that are written to at the end of an iteration
  static constexpr int kAcceptsAtOnce = 16;  // then whoever is connected has its turn

  Status open_store();
  Status open_fleet();
  Status start_loop();
  Status listen();
  Status listen_for_metrics();
  Status open_request_log();
  void allow_files();
  void start_workers();
  std::vector<std::string> worker_command() const;
  void post(std::function<void()> work);
  void run_posted();
  void run_aside(Aside::Task work, Aside::Task done);
  void accept();
  void take_in(int socket);
  Status admit(const Peer& peer) const;
  void watch();
  void make_ready(Session& session);
  void flush_ready();
  bool make_room(Session& session);
  void on_frame(Session& session, const wire::Frame& frame);
  void on_signal(int number);
  Result<wire::Reloaded> reload();
  void limit_sessions();
  void apply(const std::vector<std::string>& changed);
  void on_timer();
  void arm_timer();
  void look_whether_idle();
  void drain();
  bool finished() const;
  void stop();
  void add_stats(wire::StatsReply& stats) const;

  Options options_;
  Log* const log_;
  Log request_log_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Store> store_;
  Status no_store_;
  std::unique_ptr<Fleet> fleet_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<MetricsPort> metrics_;

  uv_loop_t loop_;
  bool loop_open_ = false;
  uv_poll_t listening_;
  uv_async_t async_;
  uv_prepare_t prepare_;
  uv_timer_t timer_, watch_, idle_;
  uv_signal_t signals_[3];

  std::mutex posted_mutex_;
  bool take_posts_ = false;
  std::vector<std::function<void()>> posted_;

  SessionLimits session_limits_;
  Session::Hooks session_hooks_;
  std::unordered_map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<Session*> ready_;                // that have something to send
  std::unordered_map<uint64_t, uid_t> users_;  // of sessions, as long as they are open
  std::multimap<uint64_t, uint64_t> limits_;   // time -> session that must have greeted, or gone, by then
  uint64_t max_clients_ = 1, next_session_ = 1, total_ = 0, refused_ = 0, dropped_ = 0;
  uint64_t armed_ns_ = 0;  // for when the timer is set; 0: it is not
  uint64_t busy_ns_ = 0;   // when there was something to do last; 0: nobody has looked yet
  bool draining_ = false;
  uint64_t drain_limit_ns_ = 0;
  uint64_t drain_poll_ns_ = 0;  // when to look again whether all is done
};

}  // namespace quern
