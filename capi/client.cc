#include "capi/client.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "capi/fork.h"
#include "capi/wire/paths.h"

namespace quern {

namespace {

using std::chrono::steady_clock;

constexpr size_t kMaxUnsentBytes = 16 * wire::kMaxRequestBytes;
constexpr size_t kDefaultMaxOpen = 64;  // when Welcome does not say
constexpr auto kGreetingRetry = std::chrono::milliseconds(10);
// A wait looks this often whether it was cancelled: a signal handler can raise a number, but not wake
// threads.
constexpr auto kCancelSlice = std::chrono::milliseconds(20);
constexpr auto kQuietRetry = std::chrono::seconds(1);                 // when nobody listens
constexpr auto kQuietRetryAfterLoss = std::chrono::milliseconds(10);  // when a daemon accepts and hangs up

Status timed_out() {
  return Status(ErrorCode::TIMEOUT, "the daemon did not answer in time; it goes on with its work: ask again");
}

Status cancelled() {
  return Status(ErrorCode::CANCELLED, "the wait was cancelled; the daemon goes on with its work: ask again");
}

}  // namespace

Client::Client(ClientOptions options) : options_(std::move(options)), made_in_(fork_count()) {}

Client::~Client() {
  const std::lock_guard lock(mutex_);
  lose(Status(ErrorCode::CANCELLED, "the client was closed"));
}

Result<std::unique_ptr<Client>> Client::open(ClientOptions options) {
  if (options.daemon.socket.empty()) options.daemon.socket = default_socket_path();
  std::unique_ptr<Client> client(new Client(std::move(options)));
  client->epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!client->epoll_.valid())
    return Status(ErrorCode::IO, std::string("cannot make an epoll descriptor: ") + std::strerror(errno));
  Lock lock(client->mutex_);
  Status status = client->ensure_connected(
      lock, client->wait_until(steady_clock::now() + client->options_.connect_timeout));
  lock.unlock();
  if (!status.ok()) return status;
  return client;
}

wire::Welcome Client::welcome() const {
  const std::lock_guard lock(mutex_);
  return welcome_;
}

Status Client::check_process() const {
  if (made_in_ == fork_count()) return {};
  return Status(ErrorCode::FORKED, "the client was opened before a fork; open a new one in the child");
}

void Client::leave_to_parent() {
  if (const int fd = socket_fd_.exchange(-1); fd >= 0) close(fd);
  close(epoll_.get());
}

// ---- requests
// ----------------------------------------------------------------------------------------------

std::vector<Result<Answer>> Client::exchange_frames(std::vector<Call> calls, TimePoint deadline) {
  const Wait wait = wait_until(deadline);
  Status status = check_process();
  for (Call& call : calls)
    if (!wire::fits(call.frame, wire::kMaxRequestBytes))
      call.result =
          Status(ErrorCode::LIMIT, "the request is too big: " + std::to_string(call.frame.size()) + " bytes");
  if (status.ok()) {
    Lock lock(mutex_);
    // Once more after a lost connection: the daemon may have been restarted between two requests.
    for (int attempt = 0; attempt < 2; ++attempt) {
      status = ensure_connected(lock, wait);
      if (status.ok()) status = run_calls(lock, calls, wait);
      if (status.code() != ErrorCode::DISCONNECTED) break;
    }
  }
  std::vector<Result<Answer>> results;
  for (Call& call : calls) results.push_back(call.result ? std::move(*call.result) : Result<Answer>(status));
  return results;
}

// Sends what has no result yet and waits until everything has one. DISCONNECTED when the connection is lost
// before; TIMEOUT, CANCELLED, BUSY.
Status Client::run_calls(Lock& lock, std::vector<Call>& calls, const Wait& wait) {
  const uint64_t serial = serial_;
  size_t next = 0;
  Status status;
  auto done = [&] {
    return std::all_of(calls.begin(), calls.end(), [](const Call& call) { return call.result.has_value(); });
  };
  while (status.ok() && !done()) {
    for (; next < calls.size() && may_send(); ++next) {
      Call& call = calls[next];
      if (call.result) continue;
      if (connection_->unsent() + call.frame.size() > kMaxUnsentBytes) {
        call.result = Status(ErrorCode::BUSY, "the daemon does not take what is sent to it");
        continue;
      }
      open_[call.id].call = &call;
      connection_->post(call.frame);
    }
    if (Status sent = connection_->flush(); !sent.ok()) lose(sent);
    if (serial_ == serial && connection_ && !done()) status = step(lock, wait);
    if (serial_ != serial || !connection_) status = lost_;
  }
  if (done()) status = {};
  // The calls are about to go: their answers, should they come, are dropped.
  for (Call& call : calls)
    if (auto found = open_.find(call.id); found != open_.end() && found->second.call == &call)
      found->second.call = nullptr;
  return status;
}

// ---- waiting
// -----------------------------------------------------------------------------------------------

// Waits until something may have changed: TIMEOUT when the deadline came first, CANCELLED. One thread waits
// for the socket, the others for that one. What a slow daemon has not taken yet is sent by whoever waits.
Status Client::step(Lock& lock, const Wait& wait) {
  const TimePoint until = std::min(wait.deadline, steady_clock::now() + kCancelSlice);
  const bool changed = wait_for_change(lock, until);
  if (wait.cancelled()) return cancelled();
  return changed || until < wait.deadline ? Status() : timed_out();
}

bool Client::wait_for_change(Lock& lock, TimePoint until) {
  const bool writes = connection_ && connection_->unsent() > 0;
  if (!connection_ || (reading_ && !writes))
    return changed_.wait_until(lock, until) == std::cv_status::no_timeout;
  const bool reads = !reading_;
  const auto socket = connection_->socket();
  const uint64_t serial = serial_;
  if (reads) reading_ = true;
  lock.unlock();
  const bool ready =
      wait_for(socket->get(), static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), until);
  lock.lock();
  if (reads) reading_ = false;
  if (ready && connection_ && serial_ == serial) {
    if (reads)
      pump();
    else if (Status sent = connection_->flush(); !sent.ok())
      lose(std::move(sent));
  }
  changed_.notify_all();
  return ready;
}

// Sends and takes in what is possible without waiting. Not while another thread waits for the socket: it
// would find nothing there any more, and not learn that its answer has come.
void Client::pump() {
  if (!connection_) return;
  // What the daemon said last is taken in even when it is gone: it says why. The second flush is for what the
  // answers gave rise to.
  const Status sent = connection_->flush();
  Status status = receive();
  if (status.ok()) status = sent.ok() ? connection_->flush() : sent;
  if (!status.ok()) lose(std::move(status));
}

Status Client::receive() {
  const Status filled = connection_->fill();
  for (;;) {
    const Result<std::optional<wire::Frame>> frame = connection_->next();
    if (!frame) return frame.status();
    if (!frame->has_value()) return filled;
    if (Status status = dispatch(**frame); !status.ok()) return status;
  }
}

// An error means that the connection is no good any more.
Status Client::dispatch(const wire::Frame& frame) {
  if (frame.request == 0 && frame.type == static_cast<uint16_t>(wire::MessageType::Error)) {
    const Result<wire::Error> error = wire::decode_as<wire::Error>(frame);
    return error ? wire::to_status(*error) : error.status();
  }
  if (!welcomed_) return greet(frame);
  if (frame.request == 0) return take_pushed(frame);
  const auto found = open_.find(frame.request);
  if (frame.type == static_cast<uint16_t>(wire::MessageType::Progress)) {
    const Result<wire::Progress> progress = wire::decode_as<wire::Progress>(frame);
    if (!progress) return progress.status();
    if (found != open_.end() && found->second.call && found->second.call->on_progress)
      found->second.call->on_progress(*progress);
    return {};
  }
  if (found != open_.end()) {
    const Open open = found->second;
    open_.erase(found);
    finish(frame, open);
    post_subscriptions();
  }
  return {};
}

// Pushed messages that this version does not know are skipped.
Status Client::take_pushed(const wire::Frame& frame) {
  Status status;
  wire::visit_message(frame.type, [&]<class M>() {
    if constexpr (M::kKind == wire::MessageKind::pushed) {
      M message;
      status = wire::decode(frame.payload, message);
      if (status.ok()) on(message);
    }
  });
  return status;
}

void Client::on(const wire::Better& better) {
  if (options_.on_generation && subscribed_.count(better.key))
    options_.on_generation(better.key, better.generation);
}

void Client::on(const wire::Failed& failed) {
  if (options_.on_failed && subscribed_.count(failed.key)) options_.on_failed(failed.key);
}

void Client::finish(const wire::Frame& frame, Open open) {
  if (open.subscribe) {
    const Result<wire::Subscribed> reply = wire::decode_as<wire::Subscribed>(frame);
    if (reply && reply->ended)
      on(wire::Failed{*open.subscribe});
    else if (reply)
      on(wire::Better{*open.subscribe, reply->generation, {}});
  }
  if (!open.call) return;
  if (frame.type == static_cast<uint16_t>(wire::MessageType::Error)) {
    const Result<wire::Error> error = wire::decode_as<wire::Error>(frame);
    open.call->result = error ? wire::to_status(*error) : error.status();
  } else {
    open.call->result = Answer{frame.type, std::string(frame.payload)};
  }
}

Status Client::process() {
  if (Status status = check_process(); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  take_in();
  return {};
}

void Client::look() {
  if (!check_process().ok()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) take_in();
}

void Client::take_in() {
  if (!connection_) reconnect_quietly();
  if (!reading_) pump();
  changed_.notify_all();
}

// ---- the connection
// ----------------------------------------------------------------------------------------

Status Client::ensure_connected(Lock& lock, Wait wait) {
  if (connection_ && welcomed_) return {};
  wait.deadline = std::min(wait.deadline, steady_clock::now() + options_.connect_timeout);
  for (;;) {
    if (!connection_ && !connecting_) {
      if (Status status = connect_once(lock, wait); !status.ok()) return status;
    }
    const uint64_t serial = serial_;
    while (connecting_ || (connection_ && !welcomed_ && serial_ == serial))
      if (const Status waited = step(lock, wait); !waited.ok())
        return waited.code() == ErrorCode::TIMEOUT
                   ? Status(ErrorCode::TIMEOUT, "the daemon was reached but does not answer")
                   : waited;
    if (connection_ && welcomed_) return {};
    // A daemon on its way out may accept and hang up; the next one is not far. Whoever was connecting may
    // have been cancelled: that is not meant for this call.
    const bool try_again = lost_.code() == ErrorCode::DISCONNECTED || lost_.code() == ErrorCode::CANCELLED;
    if (connection_ || !try_again) {
      if (!connection_) return lost_;
      continue;
    }
    if (wait.cancelled()) return cancelled();
    if (steady_clock::now() + kGreetingRetry >= wait.deadline) return lost_;
    lock.unlock();
    std::this_thread::sleep_for(kGreetingRetry);
    lock.lock();
  }
}

Status Client::connect_once(Lock& lock, const Wait& wait) {
  connecting_ = true;
  lock.unlock();
  Result<Descriptor> socket = connect_daemon(options_.daemon, wait);
  lock.lock();
  connecting_ = false;
  if (socket)
    adopt(std::move(*socket));
  else
    lost_ = socket.status();
  changed_.notify_all();
  return socket ? Status() : socket.status();
}

// Makes `socket` the connection and greets the daemon.
void Client::adopt(Descriptor socket) {
  socket_fd_ = socket.get();
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event);
  connection_.emplace(std::move(socket));
  ++serial_;
  welcomed_ = false;
  wire::Hello hello;
  hello.version_low = hello.version_high = wire::kProtocolVersion;
  hello.capabilities = wire::kCapabilityBetter;
  hello.software = "libquern " QUERN_PACKAGE_VERSION;
  connection_->post(wire::encode(next_id(), hello));
  const Status sent = connection_->flush();
  if (sent.ok()) return;
  // A daemon that refuses this user, or has too many clients, says so and hangs up at once.
  const Status said = receive();
  lose(said.ok() ? sent : said);
}

Status Client::greet(const wire::Frame& frame) {
  if (frame.type == static_cast<uint16_t>(wire::MessageType::Error)) {
    const Result<wire::Error> error = wire::decode_as<wire::Error>(frame);
    return error ? wire::to_status(*error) : error.status();
  }
  Result<wire::Welcome> welcome = wire::decode_as<wire::Welcome>(frame);
  if (!welcome) return welcome.status().with_context("greeting the daemon");
  if (welcome->version != wire::kProtocolVersion)
    return Status(ErrorCode::PROTOCOL, "the daemon speaks protocol version " +
                                           std::to_string(welcome->version) + ", this library " +
                                           std::to_string(wire::kProtocolVersion));
  welcome_ = std::move(*welcome);
  max_open_ = welcome_.max_open_requests ? welcome_.max_open_requests : kDefaultMaxOpen;
  welcomed_ = true;
  // Subscriptions ended with the connection before this one.
  to_subscribe_.assign(subscribed_.begin(), subscribed_.end());
  post_subscriptions();
  return {};
}

// Gives the connection up. Requests under way find that serial_ or connection_ has changed, and lost_ says
// why.
void Client::lose(Status why) {
  lost_ = std::move(why);
  welcomed_ = false;
  open_.clear();
  to_subscribe_.clear();
  if (connection_) {
    const int fd = connection_->socket()->get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    shutdown(fd, SHUT_RDWR);  // wakes the thread that waits for it and holds it open
    socket_fd_ = -1;
    connection_.reset();
  }
  changed_.notify_all();
}

void Client::reconnect_quietly() {
  const TimePoint now = steady_clock::now();
  if (connecting_ || now < next_quiet_try_) return;
  Result<Descriptor> socket = connect_socket(options_.daemon.socket);
  next_quiet_try_ = now + (socket ? kQuietRetryAfterLoss : kQuietRetry);
  if (socket) adopt(std::move(*socket));
}

// ---- subscriptions
// -----------------------------------------------------------------------------------------

void Client::subscribe(const Hash128& key, bool again) {
  if (!check_process().ok()) return;
  const std::lock_guard lock(mutex_);
  const bool first = subscribed_.insert(key).second;
  if ((!first && !again) || !welcomed_) return;
  to_subscribe_.push_back(key);
  post_subscriptions();
  if (Status status = connection_->flush(); !status.ok()) lose(status);
}

void Client::unsubscribe(const Hash128& key) {
  if (!check_process().ok()) return;
  const std::lock_guard lock(mutex_);
  if (subscribed_.erase(key) == 0 || !welcomed_ || !may_send()) return;
  const uint64_t id = next_id();
  open_[id];
  connection_->post(wire::encode(id, wire::Unsubscribe{key}));
  if (Status status = connection_->flush(); !status.ok()) lose(status);
}

// As many as may be under way; the rest follows as answers come.
void Client::post_subscriptions() {
  if (!(welcome_.capabilities & wire::kCapabilityBetter)) to_subscribe_.clear();
  for (; !to_subscribe_.empty() && may_send(); to_subscribe_.pop_front()) {
    const uint64_t id = next_id();
    open_[id].subscribe = to_subscribe_.front();
    connection_->post(wire::encode(id, wire::Subscribe{to_subscribe_.front()}));
  }
}

}  // namespace quern
