// The protocol's messages as structs with encode and decode, made from messages.def. A field that is not on
// the wire has its default. Everything lives in quern::wire, because Job, Error or Plan mean something else
// elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capi/wire/frame.h"
#include "core/base/hash.h"
#include "core/base/plan.h"
#include "core/base/status.h"

namespace quern::wire {

// Raise this when an old peer could misread what a new one sends; fields and messages can be added without.
inline constexpr uint32_t kProtocolVersion = 1;

inline constexpr uint64_t kCapabilityBetter = 1 << 0;  // takes, or sends, pushed Better frames

// Get.flags
inline constexpr uint32_t kGetNoWait = 1 << 0;   // on a miss queue a background job and answer Pending
inline constexpr uint32_t kGetNoStart = 1 << 1;  // on a miss start nothing and answer Error NOT_FOUND
inline constexpr uint32_t kGetKnownFlags = kGetNoWait | kGetNoStart;

inline constexpr uint32_t kMaxGraphBytes = 1 << 20;  // far above what 4096 ops need
inline constexpr uint32_t kMaxConstraintBytes = 1 << 16;
inline constexpr uint32_t kMaxRepeated = 1 << 16;  // items of one repeated field
inline constexpr uint32_t kMaxProblems = 1000;     // lines in VerifyReply

// Sent: never change a value.
enum class Origin : uint8_t { hit = 1, compiled = 2, shared = 3 };
enum class JobState : uint8_t { none = 0, queued = 1, running = 2, failed = 3, quarantined = 4 };
// What a worker does: a baseline at once, a search for something better, or the timing of what it found.
enum class JobKind : uint8_t { baseline = 0, optimize = 1, measure = 2 };
const char* origin_name(Origin origin);
const char* job_state_name(JobState state);

enum class MessageType : uint16_t {
#define QUERN_MESSAGE(name, number, kind, meaning) name = number,
#include "capi/wire/messages.def"
};
// Who sends a message, and who takes it: messages.def says what they are.
enum class MessageKind : uint8_t { greeting, request, owner, answer, pushed, worker };

// "Get"; "unknown" for a number that is not in messages.def.
const char* message_name(uint16_t type);

#define QUERN_MESSAGE(name, number, kind, meaning)          \
  struct name {                                             \
    static constexpr MessageType kType = MessageType::name; \
    static constexpr MessageKind kKind = MessageKind::kind;
#define QUERN_RECORD(name, meaning) struct name {
#define QUERN_FIELD(type, name, tag, need, meaning) type name{};
#define QUERN_END(name)                         \
  bool operator==(const name&) const = default; \
  }                                             \
  ;
#include "capi/wire/messages.def"

// encode: a whole frame, header included. The caller keeps it below kMaxFrameBytes (fits() tells).
// decode: the payload of a frame of that type; PROTOCOL, naming message and field, when it does not follow
// the rules.
#define QUERN_MESSAGE(name, number, kind, meaning)           \
  std::string encode(uint64_t request, const name& message); \
  Status decode(std::string_view payload, name& message);
#include "capi/wire/messages.def"

// Calls `visit.operator()<M>()` for the message M that has this number; false if none has.
template <class Visit>
bool visit_message(uint16_t type, const Visit& visit) {
  switch (static_cast<MessageType>(type)) {
#define QUERN_MESSAGE(name, number, kind, meaning) \
  case MessageType::name:                          \
    visit.template operator()<name>();             \
    return true;
#include "capi/wire/messages.def"
  }
  return false;
}

// The frame of an answer with a plan that is not copied into it: `message.plan` is empty.
OutFrame encode(uint64_t request, const PlanReply& message, std::shared_ptr<const std::string> plan);

// The message in `frame`, which must be of type M: PROTOCOL if it is another one.
template <class M>
Result<M> decode_as(const Frame& frame) {
  if (frame.type != static_cast<uint16_t>(M::kType))
    return Status(ErrorCode::PROTOCOL, std::string("got message ") + message_name(frame.type) + " where " +
                                           message_name(static_cast<uint16_t>(M::kType)) + " was expected");
  M message;
  if (Status status = decode(frame.payload, message); !status.ok()) return status;
  return message;
}

// An Error message of a Status, and back.
Error to_error(const Status& status);
Status to_status(const Error& error);

}  // namespace quern::wire
