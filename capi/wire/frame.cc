#include "capi/wire/frame.h"

#include <algorithm>

#include "core/base/bytes.h"

namespace quern::wire {

namespace {

constexpr size_t kKeptBytes = 256 << 10;

}  // namespace

std::string encode_frame(uint16_t type, uint64_t request, std::string_view payload) {
  ByteWriter out;
  out.put(static_cast<uint32_t>(payload.size()));
  out.put(type);
  out.put(uint16_t{0});
  out.put(request);
  out.raw(payload);
  return out.take();
}

void FrameReader::append(std::string_view bytes) {
  // What was returned is dropped here and not in next(), whose last payload must stay where it is.
  if (start_ > 0) {
    buffer_.erase(0, start_);
    start_ = 0;
    // A connection does not keep the room of the largest frame that it ever carried.
    if (buffer_.capacity() > kKeptBytes && buffer_.size() <= kKeptBytes / 2) buffer_.shrink_to_fit();
  }
  const size_t frame = expected();
  if (frame <= limit_ && frame > buffer_.capacity()) buffer_.reserve(frame);
  buffer_.append(bytes);
}

size_t FrameReader::expected() const {
  if (buffered() < kHeaderBytes) return buffered();
  ByteReader in(std::string_view(buffer_).substr(start_));
  return std::max(buffered(), in.get<uint32_t>() + kHeaderBytes);
}

Result<std::optional<Frame>> FrameReader::next() {
  if (buffered() < kHeaderBytes) return std::optional<Frame>();
  ByteReader in(std::string_view(buffer_).substr(start_));
  const uint32_t length = in.get<uint32_t>();
  Frame frame;
  frame.type = in.get<uint16_t>();
  const uint16_t flags = in.get<uint16_t>();
  frame.request = in.get<uint64_t>();
  if (flags != 0)
    return Status(ErrorCode::PROTOCOL,
                  "frame with flags " + std::to_string(flags) + ", which version 1 does not have");
  if (length + kHeaderBytes > limit_)
    return Status(ErrorCode::PROTOCOL, "frame of " + std::to_string(length + kHeaderBytes) +
                                           " bytes, above the limit of " + std::to_string(limit_));
  if (in.remaining() < length) return std::optional<Frame>();
  frame.payload = in.raw(length);
  start_ += kHeaderBytes + length;
  return std::optional<Frame>(frame);
}

}  // namespace quern::wire
