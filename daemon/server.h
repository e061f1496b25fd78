// The daemon itself: its rooms put together, the signals, and the order of start and end.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/store.h"
#include "daemon/fleet.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/metrics_port.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "daemon/sessions.h"
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
  Status open_store();
  Status open_fleet();
  Status start_loop();
  Status listen_for_metrics();
  Status open_request_log();
  void allow_files();
  void start_workers();
  ServiceOptions service_options() const;
  void start_service();
  std::vector<std::string> worker_command() const;
  void post(std::function<void()> work);
  void run_posted();
  void run_aside(Aside::Task work, Aside::Task done);
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
  uv_async_t async_;
  uv_timer_t timer_, idle_;
  uv_signal_t signals_[3];

  std::mutex posted_mutex_;
  bool take_posts_ = false;
  std::vector<std::function<void()>> posted_;

  std::unique_ptr<Sessions> sessions_;
  uint64_t max_clients_ = 1;
  uint64_t armed_ns_ = 0;  // for when the timer is set; 0: it is not
  uint64_t busy_ns_ = 0;   // when there was something to do last; 0: nobody has looked yet
  bool draining_ = false;
  uint64_t drain_limit_ns_ = 0;
  uint64_t drain_poll_ns_ = 0;  // when to look again whether all is done
};

}  // namespace quern
