// A client of the daemon: typed requests over one connection, which is made again when it is lost.
//
// Any number of threads may ask at once, and there are no hidden threads: of those that wait, one reads the
// connection and hands the others their answers. A request that times out is forgotten; its late answer is
// dropped by its id, so the connection stays in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capi/connection.h"
#include "capi/start.h"
#include "capi/wire/messages.h"

namespace quern {

struct ClientOptions {
  DaemonOptions daemon;
  std::chrono::milliseconds connect_timeout{10000};  // starting the daemon included
  // Called when the daemon says which generation of a subscribed key is stored. Must be quick and not call
  // the client.
  std::function<void(const Hash128& key, uint64_t generation)> on_generation;
  // The same when the job of a subscribed key has ended without a plan.
  std::function<void(const Hash128& key)> on_failed = {};
};

// The frame that answers a request; never an Error, which travels as Status.
struct Answer {
  uint16_t type = 0;
  std::string payload;

  template <class M>
  bool is() const {
    return type == static_cast<uint16_t>(M::kType);
  }
  template <class M>
  Result<M> as() const {
    return wire::decode_as<M>(wire::Frame{type, 0, payload});
  }
};

class Client {
 public:
  // Connects, or starts the daemon: see connect_daemon. Also TIMEOUT, PROTOCOL, BUSY, PERMISSION from the
  // greeting.
  static Result<std::unique_ptr<Client>> open(ClientOptions options);
  ~Client();

  // Sends `request` and waits for its answer, which must be a Reply. If the connection is lost, connects and
  // asks once more. The daemon's own errors; TIMEOUT, CANCELLED, DISCONNECTED, NO_DAEMON, PROTOCOL, BUSY,
  // FORKED, LIMIT for a request above the frame limit. `on_progress` gets the Progress messages that come
  // first, if the request asks for them; it must be quick and not call the client.
  using OnProgress = std::function<void(const wire::Progress&)>;
  template <class Reply, class Request>
  Result<Reply> ask(const Request& request, TimePoint deadline, OnProgress on_progress = {}) {
    Result<Answer> answer = exchange(request, deadline, std::move(on_progress));
    if (!answer) return answer.status();
    return answer->template as<Reply>();
  }
  // The same where the answer can be one of several messages.
  template <class Request>
  Result<Answer> exchange(const Request& request, TimePoint deadline, OnProgress on_progress = {}) {
    const uint64_t id = next_id();
    std::vector<Call> calls;
    calls.push_back({id, wire::encode(id, request), std::move(on_progress)});
    return std::move(exchange_frames(std::move(calls), deadline)[0]);
  }
  // Many requests at once, as many of them under way as the daemon allows; answers are in the order of the
  // requests.
  template <class Request>
  std::vector<Result<Answer>> exchange_all(const std::vector<Request>& requests, TimePoint deadline) {
    std::vector<Call> calls;
    for (const Request& request : requests) {
      const uint64_t id = next_id();
      calls.push_back({id, wire::encode(id, request), {}});
    }
    return exchange_frames(std::move(calls), deadline);
  }

  // Ends every call above that waits, in whatever thread, with CANCELLED, within some 20 ms; those that begin
  // later are not affected. Safe in a signal handler. What the daemon was asked for it goes on with.
  void cancel() { cancels_.fetch_add(1, std::memory_order_relaxed); }

  // Asks the daemon to tell on_generation about this key from now on, also after the connection was made
  // again. Does not wait. What is stored now is told too: the first time, and when asked for `again`.
  void subscribe(const Hash128& key, bool again = false);
  void unsubscribe(const Hash128& key);

  // Takes in what has arrived, without waiting. A lost connection is made again if that works at once, but
  // never starts a daemon. FORKED.
  Status process();
  // The same, unless another thread is busy with the client: that one takes it in.
  void look();
  // Pollable: readable when process() has something to do. The same for the life of the client.
  int fd() const { return epoll_.get(); }

  // What the daemon said when it was connected to last.
  wire::Welcome welcome() const;
  // FORKED in a child of the process that opened the client.
  Status check_process() const;
  // For a forked child, instead of the destructor: closes the descriptors and touches nothing that another
  // thread of the parent may have held. Leaks the rest.
  void leave_to_parent();

 private:
  struct Call {
    uint64_t id;
    std::string frame;
    OnProgress on_progress;
    std::optional<Result<Answer>> result = std::nullopt;
  };
  // A request that the daemon has not answered yet.
  struct Open {
    Call* call = nullptr;              // null: nobody waits for it any more
    std::optional<Hash128> subscribe;  // the key, of a Subscribe
  };
  using Lock = std::unique_lock<std::mutex>;

  explicit Client(ClientOptions options);
  uint64_t next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
  std::vector<Result<Answer>> exchange_frames(std::vector<Call> calls, TimePoint deadline);
  Status run_calls(Lock& lock, std::vector<Call>& calls, const Wait& wait);

  Status ensure_connected(Lock& lock, Wait wait);
  Status connect_once(Lock& lock, const Wait& wait);
  void adopt(Descriptor socket);
  void lose(Status why);
  void reconnect_quietly();
  void take_in();

  Wait wait_until(TimePoint deadline) const { return {deadline, &cancels_, cancels_.load()}; }
  Status step(Lock& lock, const Wait& wait);
  bool wait_for_change(Lock& lock, TimePoint until);
  void pump();
  Status receive();
  Status dispatch(const wire::Frame& frame);
  Status greet(const wire::Frame& frame);
  Status take_pushed(const wire::Frame& frame);
  void on(const wire::Better& better);
  void on(const wire::Failed& failed);
  void finish(const wire::Frame& frame, Open open);
  void post_subscriptions();
  bool may_send() const { return open_.size() < max_open_; }

  const ClientOptions options_;
  const uint64_t made_in_;  // fork_count()
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint64_t> cancels_{0};  // calls of cancel()
  Descriptor epoll_;                // holds the socket, whichever it is
  std::atomic<int> socket_fd_{-1};  // for leave_to_parent

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // answers, the connection, or who reads
  bool reading_ = false;             // a thread waits for the socket
  bool connecting_ = false;          // a thread is making the connection
  std::optional<Connection> connection_;
  bool welcomed_ = false;  // the greeting is done
  uint64_t serial_ = 0;    // of the connection; rises with each
  Status lost_;            // why there is no connection
  wire::Welcome welcome_;
  size_t max_open_ = 1;
  std::unordered_map<uint64_t, Open> open_;
  std::unordered_set<Hash128> subscribed_;
  std::deque<Hash128> to_subscribe_;
  TimePoint next_quiet_try_{};
};

}  // namespace quern
