// Frames: a fixed header and a payload. PROTOCOL.md, section 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/status.h"

namespace quern::wire {

inline constexpr size_t kHeaderBytes = 16;
inline constexpr size_t kMaxFrameBytes = 16 << 20;   // header and payload
inline constexpr size_t kMaxRequestBytes = 2 << 20;  // the same, of a frame that a client sends

struct Frame {
  uint16_t type = 0;
  uint64_t request = 0;      // chosen by who asks, repeated in the answer; 0 = about no request
  std::string_view payload;  // lies in the reader's buffer: valid until its next call
};

// A frame on its way out. What many are sent is its end, and is not copied into each.
struct OutFrame {
  std::string head;
  std::shared_ptr<const std::string> body;  // may be null: there is none

  OutFrame(std::string frame = {}, std::shared_ptr<const std::string> end = {})
      : head(std::move(frame)), body(std::move(end)) {}
  size_t size() const { return head.size() + (body ? body->size() : 0); }
};

std::string encode_frame(uint16_t type, uint64_t request, std::string_view payload);
// The same in one buffer: put_header(), then the payload, but for `more` bytes that follow, then
// finish_frame().
void put_header(ByteWriter& out, uint16_t type, uint64_t request);
std::string finish_frame(ByteWriter& out, size_t more = 0);
inline bool fits(std::string_view encoded_frame, size_t limit = kMaxFrameBytes) {
  return encoded_frame.size() <= limit;
}

// Cuts a byte stream into frames. Holds at most one incomplete frame and what was appended after it.
class FrameReader {
 public:
  explicit FrameReader(size_t max_frame_bytes = kMaxFrameBytes) : limit_(max_frame_bytes) {}

  void append(std::string_view bytes);
  // The same without a copy: room for at least `bytes`, where the caller puts some, and says then how many.
  std::span<char> room(size_t bytes);
  void filled(size_t bytes) { end_ += bytes; }
  // The next whole frame, nothing when more bytes are needed, or PROTOCOL when the stream is no good: it
  // stays so, and the connection must be closed.
  Result<std::optional<Frame>> next();
  // Bytes appended and not yet returned.
  size_t buffered() const { return end_ - start_; }
  // The size of the frame that next() could not return yet, as far as its header says; at least what is
  // there.
  size_t expected() const;

 private:
  std::string_view rest() const { return {buffer_.get() + start_, buffered()}; }

  size_t limit_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t start_ = 0, end_ = 0;  // of the bytes not yet returned
};

}  // namespace quern::wire
