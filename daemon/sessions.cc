#include "daemon/sessions.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace quern {

namespace {

constexpr uint64_t kWatchMs = 100;

template <class T>
Sessions* sessions_of(T* any) {
  return static_cast<Sessions*>(any->data);
}

}  // namespace

Sessions::Sessions(uv_loop_t* loop, Log* log, std::function<void()> changed)
    : loop_(loop), log_(log), changed_(std::move(changed)) {
  uv_prepare_init(loop_, &prepare_);
  uv_timer_init(loop_, &watch_);
  prepare_.data = watch_.data = listening_.data = this;
  uv_idle_init(loop_, &more_);
  uv_prepare_start(&prepare_, [](uv_prepare_t* any) { sessions_of(any)->before_waiting(); });
  hooks_.frame = [this](Session& session, const wire::Frame& frame) { on_frame(session, frame); };
  hooks_.closing = [this](Session& session, const std::string& why, bool client_fault) {
    dropped_ += client_fault;
    log_->write(client_fault ? LogLevel::warning : LogLevel::debug,
                "event=client_closed client=" + std::to_string(session.id()) + " reason=\"" + why + "\"");
  };
  hooks_.ready = [this](Session& session) { make_ready(session); };
  hooks_.watch = [this] { watch(); };
  hooks_.make_room = [this](Session& session) { return make_room(session); };
  hooks_.closed = [this](Session& session) {
    const uint64_t id = session.id();
    service_->disconnect(id);
    users_.erase(id);
    std::erase(ready_, &session);
    sessions_.erase(id);
  };
}

// ---- who comes in ----

void Sessions::set_limits(const SessionLimits& limits, AdmissionLimits admission) {
  limits_ = limits;
  admission_ = std::move(admission);
  for (auto& [id, session] : sessions_)
    if (const auto user = users_.find(id);
        user != users_.end() && !may_connect({user->second, 0}, admission_.allow_uids))
      session->close("its user may not connect any more");
}

Status Sessions::listen(Listener* listener, Service* service) {
  listener_ = listener;
  service_ = service;
  if (Status status = listener_->listen(!admission_.allow_uids.empty()); !status.ok()) return status;
  int code = uv_poll_init(loop_, &listening_, listener_->socket());
  if (code == 0)
    code =
        uv_poll_start(&listening_, UV_READABLE, [](uv_poll_t* any, int, int) { sessions_of(any)->accept(); });
  return code == 0 ? Status()
                   : Status(ErrorCode::IO, std::string("cannot listen on the socket: ") + uv_strerror(code));
}

void Sessions::stop_listening() { uv_poll_stop(&listening_); }

Status Sessions::admit(const Peer& peer) const {
  if (!may_connect(peer, admission_.allow_uids))
    return Status(ErrorCode::PERMISSION, "user " + std::to_string(peer.user) +
                                             " may not use the daemon of user " + std::to_string(geteuid()) +
                                             "; start one of your own, or see allow-uids");
  if (sessions_.size() >= admission_.max_clients)
    return Status(ErrorCode::BUSY, std::to_string(admission_.max_clients) + " clients are connected already");
  if (peer.user == geteuid() || peer.user == 0) return {};
  const auto same = std::count_if(users_.begin(), users_.end(),
                                  [&](const auto& entry) { return entry.second == peer.user; });
  if (static_cast<uint64_t>(same) < std::max<uint64_t>(admission_.max_clients / 2, 1)) return {};
  return Status(ErrorCode::BUSY, std::to_string(same) + " clients of user " + std::to_string(peer.user) +
                                     " are connected already");
}

void Sessions::accept() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    const std::optional<int> socket = listener_->accept();
    if (!socket) return;
    take_in(*socket);
  }
}

// Whoever is refused costs no more than the sentence that says why.
void Sessions::take_in(int socket) {
  const uint64_t id = next_session_++;
  ++total_;
  const auto peer = peer_of(socket);
  if (Status status = peer.ok() ? admit(*peer) : peer.status(); !status.ok()) {
    ++refused_;
    log_->warning("event=client_refused client=" + std::to_string(id) + " reason=\"" + status.message() +
                  "\"");
    const std::string words = wire::encode(0, wire::to_error(status));
    [[maybe_unused]] const ssize_t said =
        ::send(socket, words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ::close(socket);
    return;
  }
  Session& session = *(sessions_[id] = std::make_unique<Session>(loop_, id, &limits_, &hooks_));
  users_[id] = peer->user;
  log_->debug("event=client client=" + std::to_string(id) + " uid=" + std::to_string(peer->user) +
              " pid=" + std::to_string(peer->process));
  if (Status status = session.start(socket, service_->connect(id, peer->user)); !status.ok())
    return session.close(status.message());
  deadlines_.emplace(uv_hrtime() + kGreetingLimitNs, id);
  changed_();
}

// ---- what they hold, and say ----

// While any of them holds something that it may not hold for long.
void Sessions::watch() {
  if (uv_is_active(reinterpret_cast<uv_handle_t*>(&watch_))) return;
  uv_timer_start(
      &watch_,
      [](uv_timer_t* any) {
        bool more = false;
        for (auto& [id, session] : sessions_of(any)->sessions_) more = session->look() || more;
        if (!more) uv_timer_stop(any);
      },
      kWatchMs, kWatchMs);
}

// Not all of them at once, so that what they hold until then stays little.
void Sessions::make_ready(Session& session) {
  if (ready_.size() >= kTogether) flush_ready();
  ready_.push_back(&session);
}

// Answers wait for those to requests that have come in meanwhile: a client that waits for several is woken
// once, and waking it is what costs most.
void Sessions::before_waiting() {
  if (ready_.size() > 1 && ready_.size() > ready_before_) {
    ready_before_ = ready_.size();
    uv_idle_start(&more_, [](uv_idle_t*) {});
    return;
  }
  ready_before_ = 0;
  uv_idle_stop(&more_);
  flush_ready();
}

void Sessions::flush_ready() {
  std::vector<Session*> ready;
  ready.swap(ready_);
  for (Session* session : ready) session->flush();
  ready.clear();
  if (ready_.empty()) ready_.swap(ready);  // its memory serves again
}

bool Sessions::make_room(Session& session) {
  Session* most = &session;
  for (auto& [id, other] : sessions_)
    if (other->output() > most->output()) most = other.get();
  if (most == &session) return false;
  most->close("left " + std::to_string(most->output()) + " bytes of answers unread, and memory is short",
              true);
  return true;
}

void Sessions::on_frame(Session& session, const wire::Frame& frame) {
  if (session.greeted) {
    asking_ = &session;
    service_->handle(session.id(), frame);
    asking_ = nullptr;
    return changed_();
  }
  auto welcome = service_->greet(frame);
  if (welcome.ok()) {
    session.greeted = true;
    return session.send(std::move(*welcome));
  }
  ++refused_;
  log_->warning("event=greeting_refused client=" + std::to_string(session.id()) + " reason=\"" +
                welcome.status().message() + "\"");
  session.refuse(welcome.status());
  deadlines_.emplace(uv_hrtime() + kFarewellLimitNs, session.id());
  changed_();
}

void Sessions::send(ClientId client, wire::OutFrame frame) {
  if (asking_ && asking_->id() == client) return asking_->send(std::move(frame));
  if (const auto found = sessions_.find(client); found != sessions_.end())
    found->second->send(std::move(frame));
}

// ---- who has to go ----

std::optional<uint64_t> Sessions::next_ns() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

void Sessions::expire(uint64_t now_ns) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns) {
    const auto found = sessions_.find(deadlines_.begin()->second);
    deadlines_.erase(deadlines_.begin());
    if (found == sessions_.end()) continue;
    if (found->second->refused())
      found->second->close("refused");
    else if (!found->second->greeted)
      found->second->close("did not greet in time", true);
  }
}

bool Sessions::all_sent() const {
  return std::none_of(sessions_.begin(), sessions_.end(),
                      [](const auto& entry) { return entry.second->output() > 0; });
}

void Sessions::add_stats(wire::StatsReply& stats) const {
  stats.counters.push_back({"clients", sessions_.size()});
  stats.counters.push_back({"clients_total", total_});
  stats.counters.push_back({"clients_refused", refused_});
  stats.counters.push_back({"clients_dropped", dropped_});
}

void Sessions::close() {
  for (auto& [id, session] : sessions_) session->close("the daemon exits");
  for (uv_handle_t* any :
       {reinterpret_cast<uv_handle_t*>(&listening_), reinterpret_cast<uv_handle_t*>(&prepare_),
        reinterpret_cast<uv_handle_t*>(&more_), reinterpret_cast<uv_handle_t*>(&watch_)})
    uv_close(any, nullptr);
}

}  // namespace quern
