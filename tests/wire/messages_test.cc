// Every message of messages.def: round trip, golden bytes, truncation, mutation, and the rules about fields.
#include "capi/wire/messages.h"

#include <cstdlib>
#include <random>

#include "core/base/bytes.h"
#include "tests/support/test.h"

namespace quern::wire {

namespace {

// A value that is not the default, for each type of field; `n` makes fields of one message differ.
void fill(uint8_t& value, int n) { value = static_cast<uint8_t>(n); }
void fill(uint32_t& value, int n) { value = 0x01020300u + static_cast<uint32_t>(n); }
void fill(uint64_t& value, int n) { value = 0x0102030405060700u + static_cast<uint64_t>(n); }
void fill(std::string& value, int n) { value = "text " + std::to_string(n); }
void fill(Hash128& value, int n) { value = {0x1111111111111100u + static_cast<uint64_t>(n), 0x22}; }
void fill(Tier& value, int) { value = Tier::measured; }
void fill(Origin& value, int) { value = Origin::shared; }
void fill(JobState& value, int) { value = JobState::running; }
void fill(JobKind& value, int) { value = JobKind::measure; }
template <class T>
void fill(std::vector<T>& value, int n);

#define QUERN_MESSAGE(name, number, kind, meaning) \
  void fill([[maybe_unused]] name& message, int n) { \
    (void)n;
#define QUERN_RECORD(name, meaning) QUERN_MESSAGE(name, 0, none, meaning)
#define QUERN_FIELD(type, name, tag, need, meaning) fill(message.name, n + tag);
#define QUERN_END(name) }
#include "capi/wire/messages.def"

template <class T>
void fill(std::vector<T>& value, int n) {
  value.resize(2);
  fill(value[0], n);
  fill(value[1], n + 1);
}

// Calls visit(message, name) with a default and then with a filled message of every type.
template <class Visit>
void for_each_message(Visit visit){
#define QUERN_MESSAGE(name, number, kind, meaning) \
  {                                                  \
    name message;                                    \
    visit(message, #name);                           \
    fill(message, 0);                                \
    visit(message, #name);                           \
  }
#include "capi/wire/messages.def"
}

std::string payload_of(const std::string& frame) {
  return frame.substr(kHeaderBytes);
}

// A default Tier or Origin is no valid value, so these five cannot be decoded unless they are filled.
template <class M>
bool decodable(const M& message) {
  if (!std::is_same_v<M, PlanReply> && !std::is_same_v<M, Better> && !std::is_same_v<M, ShowReply> &&
      !std::is_same_v<M, Import> && !std::is_same_v<M, Imported>)
    return true;
  return !(message == M{});
}

void messages_survive_the_wire(void**) {
  int count = 0;
  for_each_message([&](const auto& message, const char*) {
    using M = std::remove_cvref_t<decltype(message)>;
    if (!decodable(message)) return;
    FrameReader reader;
    reader.append(encode(42, message));
    auto frame = reader.next();
    assert_ok(frame);
    assert_int_equal((*frame)->request, 42);
    auto copy = decode_as<M>(**frame);
    assert_ok(copy);
    assert_true(*copy == message);
    ++count;
  });
  assert_true(count > 60);
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", c);
    out += two;
  }
  return out;
}

// One line a frame. QUERN_WRITE_GOLDEN=1 writes the file anew: for added messages, never to hide a changed
// one.
void frames_equal_the_golden_ones(void**) {
  std::string text;
  for_each_message([&](const auto& message, const char* name) {
    text += std::string(name) + " " + hex(encode(0x0807060504030201u, message)) + "\n";
  });
  const auto path = test_root() / "tests/golden/wire/version1.txt";
  if (std::getenv("QUERN_WRITE_GOLDEN")) write_test_file(path, text);
  assert_text_equal(text, read_test_file(path));
}

// A plan that is sent from where it lies makes a frame that says the same.
void a_plan_behind_its_frame_is_the_same_message(void**) {
  PlanReply reply;
  reply.key = {1, 2};
  reply.generation = 3;
  reply.tier = Tier::measured;
  reply.origin = Origin::hit;
  reply.warning = "warning";
  reply.total_ns = 4;
  for (const size_t size : {0, 100000}) {
    const OutFrame frame = encode(42, reply, std::make_shared<const std::string>(size, 'x'));
    PlanReply whole = reply;
    whole.plan.assign(size, 'x');
    assert_int_equal(frame.size(), encode(42, whole).size());
    FrameReader reader;
    reader.append(frame.head);
    reader.append(*frame.body);
    const auto read = reader.next();
    assert_true(read.ok() && read->has_value() && (*read)->request == 42);
    const auto copy = decode_as<PlanReply>(**read);
    assert_ok(copy);
    assert_true(*copy == whole);
  }
}

void every_truncation_is_refused_or_lacks_whole_fields(void**) {
  for_each_message([&](const auto& message, const char*) {
    using M = std::remove_cvref_t<decltype(message)>;
    const std::string payload = payload_of(encode(1, message));
    for (size_t size = 0; size < payload.size(); ++size) {
      M copy;
      const Status status = decode(std::string_view(payload).substr(0, size), copy);
      // Only a cut between two fields can pass, and then something is missing.
      if (status.ok())
        assert_false(copy == message);
      else
        assert_error(status, ErrorCode::PROTOCOL, "message ");
    }
  });
}

// Decoding what a mutated payload says gives a message that encodes and decodes to itself, or PROTOCOL; never
// anything else.
void mutations_are_refused_or_mean_something(void**) {
  std::mt19937 random(20240611);
  int refused = 0, taken = 0;
  for_each_message([&](const auto& message, const char*) {
    using M = std::remove_cvref_t<decltype(message)>;
    const std::string payload = payload_of(encode(1, message));
    if (payload.empty()) return;
    for (int round = 0; round < 400; ++round) {
      std::string bytes = payload;
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.insert(random() % bytes.size(), bytes.substr(random() % bytes.size()));
      M copy, again;
      const Status status = decode(bytes, copy);
      if (!status.ok()) {
        assert_error(status, ErrorCode::PROTOCOL);
        ++refused;
        continue;
      }
      ++taken;
      assert_ok(decode(payload_of(encode(1, copy)), again));
      assert_true(again == copy);
    }
  });
  assert_true(refused > 1000 && taken > 1000);
}

void noise_is_refused(void**) {
  std::mt19937 random(7);
  for_each_message([&](const auto& message, const char*) {
    std::remove_cvref_t<decltype(message)> copy;
    for (int round = 0; round < 200; ++round) {
      std::string bytes(6 + random() % 60, '\0');  // enough for a field's header, so never an empty message
      for (char& c : bytes) c = static_cast<char>(random());
      bytes[5] = '\x7f';  // a field of 2 GB
      assert_error(decode(bytes, copy), ErrorCode::PROTOCOL, "cut short");
    }
  });
}

std::string field(uint16_t tag, std::string_view bytes) {
  ByteWriter out;
  out.put(tag);
  out.string(bytes);
  return out.take();
}

void the_rules_about_fields_hold(void**) {
  Get get;
  const std::string graph = field(0x8001, "g"), target = field(0x8002, "sm_80");
  assert_ok(decode(graph + target, get));
  assert_ok(decode(target + graph, get));          // any order
  assert_ok(decode(field(1, "g") + target, get));  // the critical bit of a known field does not matter
  assert_ok(decode(graph + target + field(0x0033, "new"), get));
  assert_error(decode(graph + target + field(0x8033, "new"), get), ErrorCode::PROTOCOL,
               "message Get: has the critical field 51");
  assert_error(decode(graph, get), ErrorCode::PROTOCOL, "lacks the field target");
  assert_error(decode(graph + graph + target, get), ErrorCode::PROTOCOL, "field graph stands there twice");
  assert_error(decode(graph + target + field(0x8004, "abc"), get), ErrorCode::PROTOCOL,
               "field flags has 3 bytes");
  assert_error(decode(graph + target + "x", get), ErrorCode::PROTOCOL, "cut short");
  Pending pending;
  assert_error(decode(field(1, std::string(16, 'k')) + field(2, "\x09"), pending), ErrorCode::PROTOCOL,
               "unknown value 9");
}

void repeated_fields_have_a_limit(void**) {
  Remove remove;
  const std::string key = field(0x8001, std::string(16, 'k'));
  std::string payload;
  for (uint32_t i = 0; i < kMaxRepeated; ++i) payload += key;
  assert_ok(decode(payload, remove));
  assert_int_equal(remove.keys.size(), kMaxRepeated);
  assert_error(decode(payload + key, remove), ErrorCode::PROTOCOL, "more than 65536 times");
}

void a_failed_decode_says_nothing_of_an_earlier_message(void**) {
  List list;
  list.limit = 5;
  assert_ok(decode("", list));
  assert_int_equal(list.limit, 0);
}

void errors_travel(void**) {
  const Error error = to_error(Status(ErrorCode::COMPILE, "line 3"));
  assert_error(to_status(error), ErrorCode::COMPILE, "line 3");
  assert_error(to_status(Error{}), ErrorCode::PROTOCOL);
  assert_string_equal(message_name(16), "Get");
  assert_string_equal(message_name(999), "unknown");
  assert_error(decode_as<Ping>(Frame{16, 1, ""}), ErrorCode::PROTOCOL,
               "got message Get where Ping was expected");
}

}  // namespace

}  // namespace quern::wire

int main() {
  using namespace quern::wire;
  const CMUnitTest tests[] = {
      cmocka_unit_test(messages_survive_the_wire),
      cmocka_unit_test(frames_equal_the_golden_ones),
      cmocka_unit_test(a_plan_behind_its_frame_is_the_same_message),
      cmocka_unit_test(every_truncation_is_refused_or_lacks_whole_fields),
      cmocka_unit_test(mutations_are_refused_or_mean_something),
      cmocka_unit_test(noise_is_refused),
      cmocka_unit_test(the_rules_about_fields_hold),
      cmocka_unit_test(repeated_fields_have_a_limit),
      cmocka_unit_test(a_failed_decode_says_nothing_of_an_earlier_message),
      cmocka_unit_test(errors_travel),
  };
  return cmocka_run_group_tests_name("messages", tests, nullptr, nullptr);
}
