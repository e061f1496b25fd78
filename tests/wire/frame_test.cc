// Frames: what is cut out of a byte stream, in whatever pieces it comes.
#include "capi/wire/frame.h"

#include <random>

#include "tests/support/test.h"

namespace quern::wire {

namespace {

void frames_survive_any_cut(void**) {
  const std::string stream = encode_frame(1, 7, "one") + encode_frame(65535, ~uint64_t{0}, "") +
                             encode_frame(3, 9, std::string(5000, 'x'));
  for (size_t piece : {size_t{1}, size_t{3}, size_t{15}, size_t{16}, size_t{17}, stream.size()}) {
    FrameReader reader;
    std::vector<std::string> seen;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      for (;;) {
        auto frame = reader.next();
        assert_ok(frame);
        if (!*frame) break;
        seen.push_back(encode_frame((*frame)->type, (*frame)->request, (*frame)->payload));
      }
    }
    assert_int_equal(seen.size(), 3);
    assert_true(seen[0] + seen[1] + seen[2] == stream);
    assert_int_equal(reader.buffered(), 0);
  }
}

void what_is_missing_is_known_and_room_is_given_back(void**) {
  FrameReader reader;
  const std::string frame = encode_frame(1, 1, std::string(1 << 20, 'x'));
  assert_int_equal(reader.expected(), 0);
  reader.append(frame.substr(0, 10));
  assert_int_equal(reader.expected(), 10);
  reader.append(frame.substr(10, 10));
  assert_int_equal(reader.expected(), frame.size());
  reader.append(frame.substr(20));
  assert_true(reader.next().value().has_value());
  assert_int_equal(reader.expected(), 0);
}

void a_frame_above_the_limit_is_refused_before_its_payload_comes(void**) {
  const std::string payload(100, 'x');
  FrameReader exact(kHeaderBytes + 100);
  exact.append(encode_frame(1, 1, payload));
  assert_true(exact.next().value().has_value());

  FrameReader small(kHeaderBytes + 99);
  small.append(encode_frame(1, 1, payload).substr(0, kHeaderBytes));
  assert_error(small.next(), ErrorCode::PROTOCOL, "limit");
  assert_error(small.next(), ErrorCode::PROTOCOL);  // and it stays so

  FrameReader huge;
  huge.append(std::string(4, '\xff') + std::string(12, '\0'));  // a length that would wrap in 32 bits
  assert_error(huge.next(), ErrorCode::PROTOCOL, "4294967311 bytes");
}

void flags_are_refused(void**) {
  std::string frame = encode_frame(1, 1, "");
  frame[6] = 1;
  FrameReader reader;
  reader.append(frame);
  assert_error(reader.next(), ErrorCode::PROTOCOL, "flags 1");
}

}  // namespace

}  // namespace quern::wire

int main() {
  using namespace quern::wire;
  const CMUnitTest tests[] = {
      cmocka_unit_test(frames_survive_any_cut),
      cmocka_unit_test(what_is_missing_is_known_and_room_is_given_back),
      cmocka_unit_test(a_frame_above_the_limit_is_refused_before_its_payload_comes),
      cmocka_unit_test(flags_are_refused),
  };
  return cmocka_run_group_tests_name("frame", tests, nullptr, nullptr);
}
