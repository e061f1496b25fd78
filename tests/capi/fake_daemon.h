// A daemon without a compiler or a store, for tests of the client: it speaks the protocol over a real socket,
// makes plans that the fake libcuda can launch, and misbehaves on demand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "capi/socket.h"
#include "capi/wire/messages.h"

namespace quern {

// A plan of one kernel "fake" that takes every buffer, 512 bytes of workspace, and the integer 7. Its
// certificate names the generation.
Plan fake_plan(const std::string& graph_text, const std::string& target, uint64_t generation);

// Listens from the constructor to the destructor, on a thread of its own. Safe to steer from any thread.
//   Get        a plan; a target that starts with "sm_none" is UNSUPPORTED, constraints that start with
//              "nonsense" are INVALID_ARGUMENT; a graph named "killer" is QUARANTINED
//   the rest   what PROTOCOL.md says, as far as the client needs it; Verify sends two Progress frames
class FakeDaemon {
 public:
  explicit FakeDaemon(std::string socket_path);
  ~FakeDaemon();

  struct Counts {
    int connections = 0, gets = 0, compiles = 0, subscribes = 0, unsubscribes = 0;
  };
  Counts counts();

  // Answers to Get are kept back, until release() sends them.
  void hold();
  void release();
  // Every plan gets a generation more, and subscribers are told.
  void improve_all();
  // Closes every connection, without answering what is under way.
  void drop_connections();
  // The next frame that is not a Hello is answered by these bytes.
  void answer_next_with(std::string bytes);
  // What is sent goes out in pieces of this many bytes; 0 = as it is.
  void send_in_pieces(size_t bytes);
  // While true nothing is read from any connection.
  void stop_reading(bool stop);
  // The Welcome says that a connection may have this many open requests; a client that has more gets BUSY.
  void allow_open_requests(uint32_t count);

 private:
  struct Peer {
    Descriptor socket;
    wire::FrameReader frames;
    std::string outbox;
    std::set<Hash128> subscriptions;
    std::vector<std::pair<uint64_t, wire::Get>> held;
    bool closing = false;
  };
  void run();
  void change(const std::function<void()>& what);
  void accept_peer();
  void read_from(Peer& peer);
  void write_to(Peer& peer);
  void answer(Peer& peer, const wire::Frame& frame);
  void answer_get(Peer& peer, uint64_t request, const wire::Get& get);
  void answer_rest(Peer& peer, const wire::Frame& frame);

  const std::string path_;
  Descriptor listener_, wake_[2];
  std::mutex mutex_;
  bool stopping_ = false, holding_ = false, not_reading_ = false;
  size_t piece_ = 0;
  uint32_t max_open_ = 0;
  std::string raw_answer_;
  Counts counts_;
  std::map<Hash128, uint64_t> generations_;  // of the plans it has
  std::vector<std::unique_ptr<Peer>> peers_;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace quern
