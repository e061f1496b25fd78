#include "capi/wire/frame.h"

#include <algorithm>
#include <cstring>

namespace quern::wire {

namespace {

constexpr size_t kLeastBytes = 4 << 10, kKeptBytes = 256 << 10;

}  // namespace

void put_header(ByteWriter& out, uint16_t type, uint64_t request) {
  out.put(uint32_t{0});
  out.put(type);
  out.put(uint16_t{0});
  out.put(request);
}

std::string finish_frame(ByteWriter& out, size_t more) {
  std::string frame = out.take();
  const auto length = static_cast<uint32_t>(frame.size() - kHeaderBytes + more);
  std::memcpy(frame.data(), &length, sizeof length);
  return frame;
}

std::string encode_frame(uint16_t type, uint64_t request, std::string_view payload) {
  ByteWriter out;
  out.reserve(kHeaderBytes + payload.size());
  put_header(out, type, request);
  out.raw(payload);
  return finish_frame(out);
}

// What was returned is dropped here and not in next(), whose last payload must stay where it is.
std::span<char> FrameReader::room(size_t bytes) {
  // A frame that has begun is given all of its room at once; what a large one had is given back after it.
  const size_t frame = expected() <= limit_ ? expected() : 0;
  const size_t wanted = std::max(frame, buffered() + bytes);
  const bool too_large = capacity_ > kKeptBytes && wanted <= kKeptBytes / 2;
  if (wanted > capacity_ || too_large) {
    const size_t capacity = std::max(wanted, kLeastBytes);
    auto buffer = std::make_unique_for_overwrite<char[]>(capacity);
    if (buffered() > 0) std::memcpy(buffer.get(), buffer_.get() + start_, buffered());
    buffer_ = std::move(buffer);
    capacity_ = capacity;
    end_ = buffered();
    start_ = 0;
  } else if (start_ > 0 && end_ + std::max(bytes, wanted - buffered()) > capacity_) {
    std::memmove(buffer_.get(), buffer_.get() + start_, buffered());
    end_ = buffered();
    start_ = 0;
  }
  return {buffer_.get() + end_, capacity_ - end_};
}

void FrameReader::append(std::string_view bytes) {
  if (start_ == end_) start_ = end_ = 0;
  if (bytes.empty()) return;
  std::memcpy(room(bytes.size()).data(), bytes.data(), bytes.size());
  filled(bytes.size());
}

size_t FrameReader::expected() const {
  if (buffered() < kHeaderBytes) return buffered();
  ByteReader in(rest());
  return std::max(buffered(), in.get<uint32_t>() + kHeaderBytes);
}

Result<std::optional<Frame>> FrameReader::next() {
  if (buffered() < kHeaderBytes) return std::optional<Frame>();
  ByteReader in(rest());
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
