// One connection: bytes to frames and back, and limits to what it may make the daemon hold, and for how long.
// With sessions.h, server.h and redis_link.h the only user of libuv.
#pragma once

#include <uv.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/wire/frame.h"
#include "core/base/status.h"
#include "daemon/budget.h"

namespace quern {

struct SessionLimits {
  size_t output_bytes = 32 << 20;       // unread answers; more, and the client is dropped
  uint64_t frame_ns = 10'000'000'000;   // from the first byte of a frame to its last one
  uint64_t output_ns = 10'000'000'000;  // from an answer to its last byte being read
};

class Session {
 public:
  struct Hooks {
    std::function<void(Session&, const wire::Frame&)> frame;
    std::function<void(Session&, const std::string& why, bool client_fault)>
        closing;                           // once, when it is decided
    std::function<void(Session&)> closed;  // libuv has let go of it: delete it now
    std::function<void(Session&)> ready;   // something is to be sent: call flush() before the loop waits
    std::function<void()> watch;           // look() is to be called now and then from here on
    // No memory is left for an answer: drop somebody who makes the daemon hold more than this one. False when
    // there is nobody.
    std::function<bool(Session&)> make_room;
  };

  Session(uv_loop_t* loop, uint64_t id, const SessionLimits* limits, const Hooks* hooks);

  // Takes over a connected socket. What the client makes the daemon hold here is charged to `account`.
  Status start(int socket, std::shared_ptr<Account> account);
  uint64_t id() const { return id_; }

  // Never blocks. A client that has left too much unread is dropped. What is sent in one iteration of the
  // loop goes out together at its end: a client that waits is woken once, and not in the midst of others'
  // answers.
  void send(wire::OutFrame frame);
  void flush();
  // Sends an error about the connection, then closes it. The caller closes it for good if the client does not
  // read.
  void refuse(const Status& status);
  void close(const std::string& why, bool client_fault = false);
  // Closes what took too long, and goes on with what waited for memory. False when there is nothing to look
  // after.
  bool look();

  bool greeted = false;
  bool refused() const { return refused_; }
  size_t output() const;  // bytes that are not in the client's socket yet

 private:
  struct Write;

  static void on_alloc(uv_handle_t* handle, size_t suggested, uv_buf_t* buffer);
  static void on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer);
  static void on_written(uv_write_t* request, int status);
  void read(std::string_view bytes);
  void take_frames(bool first_part);
  void hold_frame(bool first_part);
  void pause_or_resume();
  void queue(std::vector<wire::OutFrame> frames, size_t sent, size_t size);
  Charge charge_output(size_t bytes);
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&pipe_); }

  const uint64_t id_;
  const SessionLimits* const limits_;
  const Hooks* const hooks_;
  uv_pipe_t pipe_;
  std::shared_ptr<Account> account_;
  wire::FrameReader reader_{wire::kMaxRequestBytes};
  Charge input_;                        // for a large frame that is not complete
  uint64_t incomplete_since_ = 0;       // the first byte of the frame that is not complete; 0: there is none
  std::vector<wire::OutFrame> outbox_;  // until flush()
  size_t outbox_bytes_ = 0;
  std::deque<Write*> writes_;  // what the socket did not take; libuv goes on with it
  bool reading_ = false;
  bool filled_ = false;   // the last read took as much as one may
  bool starved_ = false;  // there is no memory for the frame that the client has begun
  bool closing_ = false, refused_ = false;
};

}  // namespace quern
