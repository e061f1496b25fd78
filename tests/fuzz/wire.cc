// Frames in whatever pieces they come, and every message: what is decoded encodes and decodes to itself.
#include "capi/wire/messages.h"
#include "tests/fuzz/fuzz.h"

namespace quern {

namespace {

template <class M>
void try_message(std::string_view payload) {
  M message, again;
  if (!wire::decode(payload, message).ok()) return;
  const std::string frame = wire::encode(1, message);
  must(wire::decode(std::string_view(frame).substr(wire::kHeaderBytes), again).ok() && again == message,
       "a message encodes and decodes to itself");
}

void try_frame(const wire::Frame& frame) {
  switch (static_cast<wire::MessageType>(frame.type)) {
#define QUERN_MESSAGE(name, number, kind, meaning) \
  case wire::MessageType::name:                      \
    return try_message<wire::name>(frame.payload);
#include "capi/wire/messages.def"
  }
}

void try_stream(size_t cut, std::string_view bytes) {
  wire::FrameReader reader(1 << 16);
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size(); at += cut) {
    reader.append(bytes.substr(at, cut));
    for (;;) {
      const auto frame = reader.next();
      if (!frame) return;
      if (!*frame) break;
      try_frame(**frame);
      taken += wire::kHeaderBytes + (*frame)->payload.size();
    }
    must(reader.expected() >= reader.buffered(), "a frame has at least what is there");
  }
  must(taken + reader.buffered() == bytes.size(), "no byte is lost");
}

}  // namespace

}  // namespace quern

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quern;
  const std::string_view bytes = text_of(data, size);
  try_stream(1 + size % 61, bytes);
  // A length that does not fit would hide the rest: the payload by itself.
  if (size < wire::kHeaderBytes) return 0;
  wire::Frame frame;
  frame.type = static_cast<uint16_t>(data[4] | data[5] << 8);
  frame.payload = bytes.substr(wire::kHeaderBytes);
  try_frame(frame);
  return 0;
}
