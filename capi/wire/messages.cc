#include "capi/wire/messages.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "core/base/bytes.h"

namespace quern::wire {

namespace {

constexpr uint16_t kCriticalBit = 0x8000;

enum class Need { required, critical, optional };

// Calls visit(field, tag, need, name) for every field of a message or record, in the order of messages.def.
#define QUERN_MESSAGE(name, number, kind, meaning)      \
  template <class M, class Visit>                       \
  requires std::is_same_v<std::remove_const_t<M>, name> \
  constexpr void for_each_field([[maybe_unused]] M& message, [[maybe_unused]] Visit&& visit) {
#define QUERN_RECORD(name, meaning) QUERN_MESSAGE(name, 0, none, meaning)
#define QUERN_FIELD(type, name, tag, need, meaning) visit(message.name, uint16_t{tag}, Need::need, #name);
#define QUERN_END(name) }
#include "capi/wire/messages.def"

template <class T>
constexpr bool is_repeated = false;
template <class T>
constexpr bool is_repeated<std::vector<T>> = true;

// Numbers, and hashes: the high half, then the low one.
template <class T>
constexpr bool lies_as_sent = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Hash128>;
static_assert(sizeof(Hash128) == 16 && offsetof(Hash128, high) == 0);

bool is_known(Tier tier) { return tier >= Tier::baseline && tier <= Tier::measured; }
bool is_known(Origin origin) { return origin >= Origin::hit && origin <= Origin::shared; }
bool is_known(JobKind kind) { return kind <= JobKind::measure; }
bool is_known(JobState state) { return state <= JobState::quarantined; }

template <class M>
void put_fields(ByteWriter& out, const M& message, const std::string* left_out = nullptr);
template <class M>
Status get_fields(std::string_view payload, M& message);

// A tag, the size of a value, then its bytes.
template <class T>
void put_field(ByteWriter& out, uint16_t tag, const T& value) {
  if constexpr (lies_as_sent<T>) {
    char bytes[sizeof tag + sizeof(uint32_t) + sizeof value];
    const uint32_t size = sizeof value;
    std::memcpy(bytes, &tag, sizeof tag);
    std::memcpy(bytes + sizeof tag, &size, sizeof size);
    std::memcpy(bytes + sizeof tag + sizeof size, &value, sizeof value);
    out.raw({bytes, sizeof bytes});
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.put(tag);
    out.string(value);
  } else {
    ByteWriter record;
    put_fields(record, value);
    out.put(tag);
    out.string(record.view());
  }
}

// About what the long texts of a message take, so that they are copied once.
template <class M>
size_t text_bytes(const M& message) {
  size_t bytes = 256;
  for_each_field(message, [&](const auto& value, uint16_t, Need, const char*) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>)
      bytes += 6 + value.size();
  });
  return bytes;
}

template <class M>
void put_fields(ByteWriter& out, const M& message, const std::string* left_out) {
  for_each_field(message, [&](const auto& value, uint16_t tag, Need need, const char*) {
    using T = std::remove_cvref_t<decltype(value)>;
    if (need != Need::optional) tag |= kCriticalBit;
    if (static_cast<const void*>(&value) == left_out) return;
    if constexpr (is_repeated<T>) {
      for (const auto& item : value) put_field(out, tag, item);
    } else {
      if (need == Need::required || !(value == T{})) put_field(out, tag, value);
    }
  });
}

// Whether `bytes` is a value of T; else `problem` says what is wrong with it.
template <class T>
bool read_value(std::string_view bytes, T& value, std::string& problem) {
  if constexpr (lies_as_sent<T>) {
    if (bytes.size() == sizeof value)
      std::memcpy(&value, bytes.data(), sizeof value);
    else
      problem = "has " + std::to_string(bytes.size()) + " bytes, which its type does not have";
    if constexpr (std::is_enum_v<T>)
      if (problem.empty() && !is_known(value))
        problem = "has the unknown value " + std::to_string(static_cast<unsigned>(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = bytes;
  } else if (Status status = get_fields(bytes, value); !status.ok()) {
    problem = status.message();
  }
  return problem.empty();
}

// Stores `bytes` as the field of this tag, of which `seen` has the bit.
template <class T>
bool read_field(std::string_view bytes, T& field, bool seen, const char* name, std::string& problem) {
  bool fits = true;
  if constexpr (is_repeated<T>) {
    if (field.size() >= kMaxRepeated)
      problem = "stands there more than " + std::to_string(kMaxRepeated) + " times";
    fits = field.size() < kMaxRepeated && read_value(bytes, field.emplace_back(), problem);
  } else {
    if (seen) problem = "stands there twice";
    fits = !seen && read_value(bytes, field, problem);
  }
  if (!fits) problem = std::string("field ") + name + " " + problem;
  return fits;
}

// Stores `bytes` as field `tag` of `message`. Says in `known` whether there is such a field; `seen` has one
// bit a field.
template <class M>
bool set_field(M& message, uint16_t tag, std::string_view bytes, uint64_t& seen, bool& known,
               std::string& problem) {
  bool fits = true;
  for_each_field(message, [&](auto& value, uint16_t field_tag, Need, const char* name) {
    if (field_tag != tag) return;
    known = true;
    const uint64_t bit = uint64_t{1} << tag;
    fits = read_field(bytes, value, seen & bit, name, problem);
    seen |= bit;
  });
  return fits;
}

template <class M>
Status get_fields(std::string_view payload, M& message) {
  ByteReader in(payload);
  uint64_t seen = 0;
  std::string problem;
  while (!in.at_end()) {
    const uint16_t tag = in.get<uint16_t>();
    const std::string_view bytes = in.string();
    if (!in.ok()) return Status(ErrorCode::PROTOCOL, "is cut short");
    bool known = false;
    if (!set_field(message, tag & ~kCriticalBit, bytes, seen, known, problem))
      return Status(ErrorCode::PROTOCOL, std::move(problem));
    if (!known && (tag & kCriticalBit))
      return Status(ErrorCode::PROTOCOL, "has the critical field " + std::to_string(tag & ~kCriticalBit) +
                                             ", which this version does not know");
  }
  const char* missing = nullptr;
  for_each_field(message, [&](auto&, uint16_t tag, Need need, const char* name) {
    if (need == Need::required && !(seen & uint64_t{1} << tag)) missing = name;
  });
  if (missing) return Status(ErrorCode::PROTOCOL, std::string("lacks the field ") + missing);
  return {};
}

// Tags index bits of a u64 in get_fields, and two fields of one message never share one. A 0 ends the list.
constexpr bool tags_hold(std::span<const uint16_t> tags) {
  uint64_t seen = 0;
  for (const uint16_t tag : tags.first(tags.size() - 1)) {
    if (tag == 0 || tag >= 64 || seen & uint64_t{1} << tag) return false;
    seen |= uint64_t{1} << tag;
  }
  return tags.back() == 0;
}

}  // namespace

#define QUERN_MESSAGE(name, number, kind, meaning)                       \
  std::string encode(uint64_t request, const name& message) {            \
    ByteWriter out;                                                      \
    out.reserve(text_bytes(message));                                    \
    put_header(out, number, request);                                    \
    put_fields(out, message);                                            \
    return finish_frame(out);                                            \
  }                                                                      \
  Status decode(std::string_view payload, name& message) {               \
    message = {};                                                        \
    Status status = get_fields(payload, message);                        \
    return status.ok() ? status : status.with_context("message " #name); \
  }
#include "capi/wire/messages.def"

#define QUERN_MESSAGE(name, number, kind, meaning) static_assert(tags_hold(std::array{
#define QUERN_RECORD(name, meaning) QUERN_MESSAGE(name, 0, none, meaning)
#define QUERN_FIELD(type, name, tag, need, meaning) uint16_t{tag},
#define QUERN_END(name) \
  uint16_t { 0 }        \
  }));
#include "capi/wire/messages.def"

OutFrame encode(uint64_t request, const PlanReply& message, std::shared_ptr<const std::string> plan) {
  ByteWriter out;
  out.reserve(text_bytes(message));
  put_header(out, static_cast<uint16_t>(PlanReply::kType), request);
  put_fields(out, message, &message.plan);
  for_each_field(message, [&](const auto& value, uint16_t tag, Need, const char*) {
    if (static_cast<const void*>(&value) == &message.plan) out.put(static_cast<uint16_t>(tag | kCriticalBit));
  });
  out.put(static_cast<uint32_t>(plan->size()));
  return {finish_frame(out, plan->size()), std::move(plan)};
}

const char* message_name(uint16_t type) {
  switch (static_cast<MessageType>(type)) {
#define QUERN_MESSAGE(name, number, kind, meaning) \
  case MessageType::name:                          \
    return #name;
#include "capi/wire/messages.def"
  }
  return "unknown";
}

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::hit:
      return "hit";
    case Origin::compiled:
      return "compiled";
    case Origin::shared:
      return "shared";
  }
  return "?";
}

const char* job_state_name(JobState state) {
  switch (state) {
    case JobState::none:
      return "none";
    case JobState::queued:
      return "queued";
    case JobState::running:
      return "running";
    case JobState::failed:
      return "failed";
    case JobState::quarantined:
      return "quarantined";
  }
  return "?";
}

Error to_error(const Status& status) {
  Error error;
  error.code = static_cast<uint32_t>(status.code());
  error.message = status.message();
  return error;
}

Status to_status(const Error& error) {
  // OK is no error: a peer that says so is not to be believed.
  if (error.code == 0)
    return Status(ErrorCode::PROTOCOL, "the peer sent an error with code OK: " + error.message);
  return Status(static_cast<ErrorCode>(error.code), error.message);
}

}  // namespace quern::wire
