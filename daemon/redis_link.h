// One connection to a Redis or Valkey server, on the daemon's loop. It connects and greets, asks, and after a
// failure tries again, later each time. Nothing here blocks, and what the server sends is bounded in bytes
// and in time: a server that is down, slow or mad costs whoever asks one time limit and then nothing.
//
// hiredis writes and reads the protocol. Its own connections are not used: they abort the process when a
// server sends what nobody has asked for.
#pragma once

#include <uv.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"

struct redisReply;

namespace quern {

class RedisLink {
 public:
  struct Settings {
    std::string address;         // "unix:PATH" or "HOST:PORT"
    std::string user, password;  // without a password none is sent
    uint64_t limit_ms = 250;     // without a byte from a server that owes an answer
    size_t max_answer_bytes = 16 << 20;
  };
  struct Reply {
    std::string text;
    int64_t number = 0;
    std::vector<int64_t> numbers;  // of a list
  };
  // IO when the connection is lost or the server says that it cannot; TIMEOUT.
  using Done = std::function<void(Result<Reply>)>;
  struct Hooks {
    std::function<void(bool up, const std::string& why)> changed;
    std::function<void()> after;  // whatever has happened on the connection
  };

  RedisLink(uv_loop_t* loop, Settings settings, Hooks hooks);

  void start();
  // For good; the loop runs until what belongs to it is closed.
  void close();
  bool up() const { return state_ == State::up; }
  // Neither up nor down so far: the first connection is on its way, for `limit_ms` at most.
  bool starting() const { return first_ && state_ == State::connecting; }
  // Why it is not up; empty while it is.
  const std::string& why() const { return why_; }
  // Answered in the order of questions, never before the call returns. Only while up().
  void ask(const std::vector<std::string>& words, Done done);

 private:
  enum class State { down, connecting, up, closed };
  struct Connection;
  struct Question {
    Done done;
    uint64_t asked_ns;
  };

  void connect();
  void resolve();
  void greet();
  void greeted();
  void lost(const std::string& why);
  void watch();
  void look();
  void send(const std::vector<std::string>& words, Done done);
  void take(const char* bytes, size_t size);
  void answered(const redisReply& reply);

  uv_loop_t* const loop_;
  const Settings settings_;
  const Hooks hooks_;
  State state_ = State::down;
  std::string why_ = "not connected yet";
  Connection* connection_ = nullptr;  // frees itself when the loop has closed it
  uv_timer_t retry_, watch_;
  uv_getaddrinfo_t resolve_;
  bool resolving_ = false, open_ = false;
  uint64_t retry_ms_, up_since_ns_ = 0, connecting_since_ns_ = 0, progress_ns_ = 0;
  bool first_ = true;
  bool late_ = false;               // at the last look, before what lay in the socket was read
  std::deque<Question> questions_;  // without an answer
};

}  // namespace quern
