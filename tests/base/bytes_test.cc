// ByteWriter and ByteReader: what is written reads back, and no cut or lying length is read past.
#include "core/base/bytes.h"

#include "core/base/hash.h"
#include "tests/support/test.h"

using namespace quern;

static std::string sample() {
  ByteWriter out;
  out.put<uint8_t>(7);
  out.put<int64_t>(-5);
  out.string("hello");
  out.put(2.5);
  return out.take();
}

static void reads_what_was_written(void**) {
  const std::string bytes = sample();
  ByteReader in(bytes);
  assert_int_equal(in.get<uint8_t>(), 7);
  assert_true(in.get<int64_t>() == -5);
  assert_text_equal(in.string(), "hello");
  assert_true(in.get<double>() == 2.5);
  assert_true(in.ok() && in.at_end());
}

static void every_cut_is_noticed(void**) {
  const std::string bytes = sample();
  for (size_t length = 0; length < bytes.size(); ++length) {
    ByteReader in(std::string_view(bytes).substr(0, length));
    in.get<uint8_t>();
    in.get<int64_t>();
    in.string();
    in.get<double>();
    assert_false(in.ok());
  }
}

static void a_lying_length_reads_nothing(void**) {
  ByteWriter out;
  out.put<uint32_t>(0xffffffff);
  const std::string bytes = out.take();
  ByteReader in(bytes);
  assert_true(in.string().empty());
  assert_false(in.ok());
  assert_int_equal(in.get<uint32_t>(), 0);
}

static void hashes_print_and_parse(void**) {
  const Hash128 hash = hash128("quern");
  assert_int_equal(to_hex(hash).size(), 32);
  assert_true(parse_hash(to_hex(hash)) == hash);
  assert_false(parse_hash("xyz").has_value());
  assert_false(parse_hash(std::string(32, 'g')).has_value());
  assert_false(hash == hash128("querm"));
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(reads_what_was_written),
      cmocka_unit_test(every_cut_is_noticed),
      cmocka_unit_test(a_lying_length_reads_nothing),
      cmocka_unit_test(hashes_print_and_parse),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
