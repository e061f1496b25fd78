// A client of an earlier release with this daemon, and this release's reading of what an earlier daemon has
// said: a recorded conversation. With QUERN_WRITE_GOLDEN in the environment it is recorded anew.
#include <cstdlib>
#include <sstream>
#include <vector>

#include "tests/daemon/fake_plan.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

struct Line {
  std::string from, message, bytes;  // "client" or "daemon", its name, the whole frame
};

const char* const kGolden = "tests/golden/wire/conversation-1.txt";

std::string to_text(const std::string& bytes) {
  std::string text;
  for (const unsigned char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", c);
    text += digits;
  }
  return text;
}

std::string from_text(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::strtol(text.substr(i, 2).c_str(), nullptr, 16));
  return bytes;
}

wire::Frame frame_of(const std::string& bytes, wire::FrameReader& reader) {
  reader.append(bytes);
  const auto frame = reader.next();
  assert_ok(frame);
  assert_true(frame->has_value());
  return **frame;
}

// What a client of this release says.
std::vector<std::string> questions() {
  wire::Hello hello;
  hello.version_low = hello.version_high = wire::kProtocolVersion;
  hello.capabilities = wire::kCapabilityBetter;
  hello.software = "libquern 0.1.0";
  wire::Get waits = test_get(1);
  waits.timeout_ms = 20000;
  wire::Get absent = test_get(2, wire::kGetNoStart);
  wire::Explain explain;
  explain.graph = test_graph(1);
  explain.target = "sm_90a";
  return {wire::encode(1, hello),
          wire::encode(2, waits),
          wire::encode(3, waits),
          wire::encode(4, absent),
          wire::encode(5, explain),
          wire::encode(6, wire::List{}),
          wire::encode(7, wire::Subscribe{Hash128{1, 2}}),
          wire::encode(8, wire::Unsubscribe{Hash128{1, 2}}),
          wire::encode(9, wire::JobStatus{Hash128{1, 2}}),
          wire::encode(10, wire::Stats{}),
          wire::encode(11, wire::Ping{"hello"})};
}

void record() {
  TestDaemon daemon;
  daemon.arguments = {"--searchers=0"};
  daemon.start();
  TestClient client(daemon.socket(), false);
  std::string text;
  for (const std::string& question : questions()) {
    wire::FrameReader reader;
    text += std::string("client ") + wire::message_name(frame_of(question, reader).type) + " " +
            to_text(question) + "\n";
    client.send_raw(question);
    const auto answer = client.receive();
    text += std::string("daemon ") + wire::message_name(answer->type) + " " +
            to_text(wire::encode_frame(answer->type, answer->request, answer->payload)) + "\n";
  }
  write_test_file(test_root() / kGolden, text);
}

std::vector<Line> golden() {
  if (std::getenv("QUERN_WRITE_GOLDEN")) record();
  std::istringstream in(read_test_file(test_root() / kGolden));
  std::vector<Line> lines;
  for (Line line; in >> line.from >> line.message >> line.bytes;) {
    line.bytes = from_text(line.bytes);
    lines.push_back(line);
  }
  assert_true(lines.size() >= 20);
  return lines;
}

void assert_can_be_read(const wire::Frame& frame) {
  switch (static_cast<wire::MessageType>(frame.type)) {
#define QUERN_MESSAGE(name, number, kind, meaning) \
  case wire::MessageType::name:                      \
    return assert_ok(wire::decode_as<wire::name>(frame));
#include "capi/wire/messages.def"
  }
  fail_test("no message has this number");
}

void an_old_client_gets_the_same_answers(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--searchers=0"};
  daemon.start();
  TestClient client(daemon.socket(), false);
  uint64_t request = 0;
  for (const Line& line : golden()) {
    if (line.from == "client") {
      client.send_raw(line.bytes);
      ++request;
      continue;
    }
    const auto answer = client.receive();
    assert_true(answer.has_value());
    assert_text_equal(wire::message_name(answer->type), line.message);
    assert_int_equal(answer->request, request);
  }
}

void what_an_old_daemon_said_can_be_read(void**) {
  for (const Line& line : golden()) {
    wire::FrameReader reader;
    const wire::Frame frame = frame_of(line.bytes, reader);
    assert_text_equal(wire::message_name(frame.type), line.message);
    assert_can_be_read(frame);
    if (line.message == "PlanReply") assert_ok(decode_plan(wire::decode_as<wire::PlanReply>(frame)->plan));
  }
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(an_old_client_gets_the_same_answers),
                              cmocka_unit_test(what_an_old_daemon_said_can_be_read)};
  return cmocka_run_group_tests_name("versions", tests, nullptr, nullptr);
}
