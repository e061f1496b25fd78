// One connection: bytes to frames and back, the greeting, and a limit to what it may leave unread. With
// server.h the only user of libuv.
#pragma once

#include <uv.h>

#include <functional>
#include <string>

#include "capi/wire/frame.h"
#include "core/base/status.h"

namespace quern {

class Session {
 public:
  struct Hooks {
    std::function<void(Session&, const wire::Frame&)> frame;
    std::function<void(Session&, const std::string& why, bool client_fault)>
        closing;                           // once, when it is decided
    std::function<void(Session&)> closed;  // libuv has let go of it: delete it now
  };

  Session(uv_loop_t* loop, uint64_t id, size_t max_output_bytes, const Hooks* hooks);

  // Takes the next connection of `listener`.
  Status accept(uv_stream_t* listener);
  Status start();
  int fd() const;
  uint64_t id() const { return id_; }

  // Never blocks. A client that has left too much unread is dropped.
  void send(std::string bytes);
  // Sends an error about the connection, then closes it. The caller closes it for good if the client does not
  // read.
  void refuse(const Status& status);
  void close(const std::string& why, bool client_fault = false);

  bool greeted = false;
  bool refused() const { return refused_; }
  bool has_output() const;

 private:
  static void on_alloc(uv_handle_t* handle, size_t suggested, uv_buf_t* buffer);
  static void on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer);
  void read(std::string_view bytes);
  void write(std::string bytes);

  const uint64_t id_;
  const size_t max_output_bytes_;
  const Hooks* const hooks_;
  uv_pipe_t pipe_;
  wire::FrameReader reader_;
  bool closing_ = false, refused_ = false;
};

}  // namespace quern
