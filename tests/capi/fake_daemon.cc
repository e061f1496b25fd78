#include "tests/capi/fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/graph/text.h"

namespace quern {

namespace {

Hash128 fake_key(const wire::Get& get) {
  return hash128(get.graph + "\n" + get.target + "\n" + std::to_string(get.numerics) + "\n" +
                 get.constraints);
}

template <class M>
M decoded(const wire::Frame& frame) {
  Result<M> message = wire::decode_as<M>(frame);
  check(message.ok(), "the client sent a message that does not decode: " + message.status().message());
  return *message;
}

}  // namespace

Plan fake_plan(const std::string& graph_text, const std::string& target, uint64_t generation) {
  Result<Graph> graph = parse_graph(graph_text);
  check(graph.ok(), "the client sent a graph that does not parse: " + graph.status().message());
  Plan plan;
  plan.tier = generation > 1 ? Tier::modelled : Tier::baseline;
  plan.target = target;
  plan.inputs = graph->input_descs();
  plan.outputs = graph->output_descs();
  plan.workspace_bytes = 512;
  plan.certificate = "generation: " + std::to_string(generation) + "\n";
  Launch launch;
  launch.kernel = "fake";
  launch.grid = {3, 2, 1};
  launch.block = {128, 1, 1};
  launch.shared_bytes = 1024;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    launch.args.push_back({LaunchArg::Kind::input, static_cast<int64_t>(i)});
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    launch.args.push_back({LaunchArg::Kind::output, static_cast<int64_t>(i)});
  launch.args.push_back({LaunchArg::Kind::workspace, 256});
  launch.args.push_back({LaunchArg::Kind::integer, 7});
  plan.cubin = "FAKE fake:" + std::to_string(launch.args.size()) + " ";
  plan.launches.push_back(std::move(launch));
  return plan;
}

FakeDaemon::FakeDaemon(std::string socket_path) : path_(std::move(socket_path)) {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe2");
  wake_[0] = Descriptor(ends[0]);
  wake_[1] = Descriptor(ends[1]);
  listener_ = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  check(path_.size() < sizeof address.sun_path, "the socket's path is too long");
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  unlink(path_.c_str());
  check(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind " + path_);
  check(listen(listener_.get(), 128) == 0, "listen");
  thread_ = std::thread([this] { run(); });
}

FakeDaemon::~FakeDaemon() {
  change([&] { stopping_ = true; });
  thread_.join();
  unlink(path_.c_str());
}

void FakeDaemon::change(const std::function<void()>& what) {
  const std::lock_guard lock(mutex_);
  what();
  check(write(wake_[1].get(), "", 1) == 1, "waking the fake daemon");
}

FakeDaemon::Counts FakeDaemon::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void FakeDaemon::hold() {
  change([&] { holding_ = true; });
}

void FakeDaemon::release() {
  change([&] {
    holding_ = false;
    for (auto& peer : peers_)
      for (const auto& [request, get] : std::exchange(peer->held, {})) answer_get(*peer, request, get);
  });
}

void FakeDaemon::improve_all() {
  change([&] {
    for (auto& [key, generation] : generations_) {
      ++generation;
      for (auto& peer : peers_)
        if (peer->subscriptions.count(key))
          peer->outbox += wire::encode(0, wire::Better{key, generation, Tier::modelled});
    }
  });
}

void FakeDaemon::drop_connections() {
  change([&] {
    for (auto& peer : peers_) peer->closing = true;
  });
}

void FakeDaemon::answer_next_with(std::string bytes) {
  change([&] { raw_answer_ = std::move(bytes); });
}

void FakeDaemon::send_in_pieces(size_t bytes) {
  change([&] { piece_ = bytes; });
}

void FakeDaemon::stop_reading(bool stop) {
  change([&] { not_reading_ = stop; });
}

void FakeDaemon::allow_open_requests(uint32_t count) {
  change([&] { max_open_ = count; });
}

void FakeDaemon::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<pollfd> fds{{wake_[0].get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& peer : peers_)
      fds.push_back({peer->socket.get(),
                     static_cast<short>((not_reading_ ? 0 : POLLIN) | (peer->outbox.empty() ? 0 : POLLOUT)),
                     0});
    lock.unlock();
    poll(fds.data(), fds.size(), -1);
    lock.lock();
    char drained[64];
    while (read(wake_[0].get(), drained, sizeof drained) > 0) {
    }
    for (size_t i = 0; i + 2 < fds.size(); ++i) {
      if (fds[i + 2].revents & (POLLIN | POLLHUP)) read_from(*peers_[i]);
      if (!peers_[i]->closing) write_to(*peers_[i]);
    }
    if (fds[1].revents) accept_peer();
    std::erase_if(peers_, [](const auto& peer) { return peer->closing; });
  }
}

void FakeDaemon::accept_peer() {
  const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  ++counts_.connections;
  auto peer = std::make_unique<Peer>();
  peer->socket = Descriptor(fd);
  peers_.push_back(std::move(peer));
}

void FakeDaemon::read_from(Peer& peer) {
  char buffer[65536];
  const ssize_t n = recv(peer.socket.get(), buffer, sizeof buffer, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    peer.closing = true;
    return;
  }
  peer.frames.append(std::string_view(buffer, static_cast<size_t>(n)));
  for (;;) {
    const Result<std::optional<wire::Frame>> frame = peer.frames.next();
    check(frame.ok(), "the client sent a bad frame: " + frame.status().message());
    if (!frame->has_value()) return;
    answer(peer, **frame);
  }
}

void FakeDaemon::write_to(Peer& peer) {
  while (!peer.outbox.empty()) {
    const size_t size = piece_ ? std::min(piece_, peer.outbox.size()) : peer.outbox.size();
    const ssize_t n = send(peer.socket.get(), peer.outbox.data(), size, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {
      peer.closing = true;
      return;
    }
    peer.outbox.erase(0, static_cast<size_t>(n));
    if (piece_) usleep(200);
  }
}

void FakeDaemon::answer(Peer& peer, const wire::Frame& frame) {
  if (frame.type == static_cast<uint16_t>(wire::MessageType::Hello)) {
    wire::Welcome welcome;
    welcome.version = wire::kProtocolVersion;
    welcome.capabilities = wire::kCapabilityBetter;
    welcome.software = "fake quernd";
    welcome.max_open_requests = max_open_;
    peer.outbox += wire::encode(frame.request, welcome);
  } else if (!raw_answer_.empty()) {
    peer.outbox += std::exchange(raw_answer_, "");
  } else if (frame.type != static_cast<uint16_t>(wire::MessageType::Get)) {
    answer_rest(peer, frame);
  } else {
    ++counts_.gets;
    const wire::Get get = decoded<wire::Get>(frame);
    if (max_open_ && peer.held.size() >= max_open_)
      peer.outbox +=
          wire::encode(frame.request, wire::to_error(Status(ErrorCode::BUSY, "too many open requests")));
    else if (holding_)
      peer.held.push_back({frame.request, get});
    else
      answer_get(peer, frame.request, get);
  }
}

void FakeDaemon::answer_get(Peer& peer, uint64_t request, const wire::Get& get) {
  auto fail = [&](ErrorCode code, const std::string& message) {
    peer.outbox += wire::encode(request, wire::to_error(Status(code, message)));
  };
  if (get.constraints.starts_with("nonsense"))
    return fail(ErrorCode::INVALID_ARGUMENT, "there is no constraint \"nonsense\"");
  if (get.target.starts_with("sm_none")) return fail(ErrorCode::UNSUPPORTED, "no target " + get.target);
  if (get.graph.starts_with("graph killer")) return fail(ErrorCode::QUARANTINED, "killed its worker twice");
  const Hash128 key = fake_key(get);
  const bool hit = generations_.count(key);
  if (!hit && (get.flags & wire::kGetNoStart)) return fail(ErrorCode::NOT_FOUND, "no plan is stored");
  uint64_t& generation = generations_[key];
  if (!hit) {
    ++counts_.compiles;
    generation = 1;
  }
  if (!hit && (get.flags & wire::kGetNoWait)) {
    peer.outbox += wire::encode(request, wire::Pending{key, wire::JobState::queued});
    return;
  }
  wire::PlanReply reply;
  const Plan plan = fake_plan(get.graph, get.target, generation);
  reply.key = key;
  reply.generation = generation;
  reply.tier = plan.tier;
  reply.origin = hit ? wire::Origin::hit : wire::Origin::compiled;
  reply.plan = encode_plan(plan);
  reply.total_ns = 1000;
  peer.outbox += wire::encode(request, reply);
}

void FakeDaemon::answer_rest(Peer& peer, const wire::Frame& frame) {
  switch (static_cast<wire::MessageType>(frame.type)) {
    case wire::MessageType::Subscribe: {
      const Hash128 key = decoded<wire::Subscribe>(frame).key;
      ++counts_.subscribes;
      peer.subscriptions.insert(key);
      peer.outbox +=
          wire::encode(frame.request, wire::Subscribed{generations_.count(key) ? generations_[key] : 0});
      break;
    }
    case wire::MessageType::Unsubscribe:
      ++counts_.unsubscribes;
      peer.subscriptions.erase(decoded<wire::Unsubscribe>(frame).key);
      peer.outbox += wire::encode(frame.request, wire::Ack{});
      break;
    case wire::MessageType::Stats: {
      wire::StatsReply stats;
      stats.counters = {{"hits", 3}, {"misses", 1}};
      stats.facts = {{"software", "fake quernd"}};
      peer.outbox += wire::encode(frame.request, stats);
      break;
    }
    case wire::MessageType::Verify:
      for (uint64_t done : {1, 2}) peer.outbox += wire::encode(frame.request, wire::Progress{done, 2});
      peer.outbox += wire::encode(frame.request, wire::VerifyReply{2, 0, {}});
      break;
    case wire::MessageType::Ping:
      peer.outbox += wire::encode(frame.request, wire::Pong{decoded<wire::Ping>(frame).echo});
      break;
    default:
      peer.outbox +=
          wire::encode(frame.request, wire::to_error(Status(ErrorCode::PROTOCOL, "unknown message")));
  }
}

}  // namespace quern
