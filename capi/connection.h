// Frames over one socket to the daemon, without ever blocking. Not thread-safe: Client guards it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "capi/socket.h"
#include "capi/wire/frame.h"

namespace quern {

class Connection {
 public:
  explicit Connection(Descriptor socket);

  // Shared, so that a thread can wait on it while another one gives the connection up.
  std::shared_ptr<const Descriptor> socket() const { return socket_; }

  // Puts a frame behind those that wait to be sent.
  void post(std::string frame) { outbox_ += frame; }
  // Sends as much as the kernel takes now. DISCONNECTED when the daemon is gone.
  Status flush();
  // Bytes that flush has not sent yet. A frame that was begun is always finished first, whoever calls flush.
  size_t unsent() const { return outbox_.size(); }

  // Reads what is there now. DISCONNECTED at the end of the stream; what was read before can still be taken.
  Status fill();
  // The next whole frame, valid until the next fill; nothing when there is none; PROTOCOL.
  Result<std::optional<wire::Frame>> next() { return frames_.next(); }

 private:
  std::shared_ptr<const Descriptor> socket_;
  std::string outbox_;
  wire::FrameReader frames_;
};

}  // namespace quern
