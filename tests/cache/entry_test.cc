// Records: what is written is read back, no flipped bit goes unseen, and the bytes are those of the golden
// files. QUERN_UPDATE_GOLDEN=1 writes the golden files instead; do that for a new kRecordVersion only, under
// new names.
#include "cache/entry.h"

#include <cstdlib>

#include "cache/key.h"
#include "tests/support/test.h"

namespace quern {

namespace {

const Hash128 kKey = {0x0123456789abcdef, 0xfedcba9876543210};

// One record of each kind; the golden files hold exactly these. Views point to literals and statics.
template <class T>
T sample();

template <>
PlanRecord sample() {
  static const std::string material = plan_key("in x: f16[4]\nout x\n", "sm_90a", 1, "nvrtc 13.0").bytes();
  return {material, 7, Tier::modelled, 1700000000123, std::string_view("plan\0bytes", 10)};
}
template <>
TimingRecord sample() {
  return {kKey,          "NVIDIA H200, driver 580.65.06",
          {0x33, 0x44},  12345.5,
          9876.25,       200,
          0.00125,       1700000000456,
          "wrong output"};
}
template <>
ProgramsRecord sample() {
  return {kKey, std::string_view("programs\0bytes", 14)};
}
template <>
TuningRecord sample() {
  return {kKey, 7, {0x33, 0x44}, 2};
}
template <>
RequestRecord sample() {
  static const std::string material = request_key("in x: f16[4]\nout x\n", "nvrtc 13.0").bytes();
  return {material, kKey};
}
template <>
UsageRecord sample() {
  return {kKey, 99, 7, 1700000000789};
}
template <>
QuarantineRecord sample() {
  return {kKey, 2, 1700000001000, "the worker was killed by signal 11"};
}
template <>
MetaRecord sample() {
  return {"toolchain", "nvrtc 13.0 build 36424714"};
}
template <>
CountersRecord sample() {
  return {1000, 12};
}
template <>
FindingsRecord sample() {
  return {kKey,        7,        "", "search: 12 candidates", "mugraph m", "kernel grid=[1, 1, 1, 1]",
          "void q0()", "piece 0"};
}

template <class T>
void comes_back(void**) {
  const std::string bytes = encode_record(sample<T>());
  const auto record = decode_record<T>(bytes);
  assert_ok(record);
  assert_true(*record == sample<T>());
}

template <class T>
void every_flipped_bit_is_seen(void**) {
  std::string bytes = encode_record(sample<T>());
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<char>(1 << bit);
      assert_error(decode_record<T>(bytes), ErrorCode::CORRUPT);
      bytes[i] ^= static_cast<char>(1 << bit);
    }
  assert_ok(decode_record<T>(bytes));
}

template <class T>
void every_other_length_is_seen(void**) {
  const std::string bytes = encode_record(sample<T>());
  for (size_t size = 0; size < bytes.size(); ++size)
    assert_error(decode_record<T>(std::string_view(bytes).substr(0, size)), ErrorCode::CORRUPT);
  assert_error(decode_record<T>(bytes + '\0'), ErrorCode::CORRUPT);
}

std::filesystem::path golden(const std::string& name) { return test_root() / "tests/golden/cache" / name; }

void compare_with_golden(const std::string& name, const std::string& bytes) {
  if (std::getenv("QUERN_UPDATE_GOLDEN")) write_test_file(golden(name), bytes);
  assert_true(read_test_file(golden(name)) == bytes);
}

template <class T>
void golden_file_holds(void**) {
  const std::string name = std::string("record-1-") + record_kind_name(T::kKind) + ".bin";
  compare_with_golden(name, encode_record(sample<T>()));
  const std::string bytes = read_test_file(golden(name));
  const auto record = decode_record<T>(bytes);
  assert_ok(record);
  assert_true(*record == sample<T>());
}

void golden_keys_hold(void**) {
  const KeyMaterial plan = plan_key("in x: f16[4]\nout x\n", "sm_90a", 1, "nvrtc 13.0");
  const KeyMaterial request = request_key("in x: f16[4]\nout x\n", "nvrtc 13.0");
  compare_with_golden("key-17-plan.bin", plan.bytes());
  compare_with_golden("key-17-request.bin", request.bytes());
  compare_with_golden("keys-4.txt", to_hex(plan.key()) + " plan\n" + to_hex(request.key()) + " request\n");
}

void another_kind_or_version_is_refused(void**) {
  assert_error(decode_record<MetaRecord>(encode_record(sample<UsageRecord>())), ErrorCode::CORRUPT,
               "is a usage record, not a meta record");
  // A record of a later format, whole in itself.
  std::string later = encode_record(sample<UsageRecord>());
  later[4] = 2;
  const Hash128 sum = hash128(std::string_view(later).substr(0, later.size() - 16));
  later.replace(later.size() - 16, 8, reinterpret_cast<const char*>(&sum.high), 8);
  later.replace(later.size() - 8, 8, reinterpret_cast<const char*>(&sum.low), 8);
  assert_error(decode_record<UsageRecord>(later), ErrorCode::CORRUPT, "format 2");
}

}  // namespace

}  // namespace quern

#define ALL_KINDS(test)                                                               \
  cmocka_unit_test(test<PlanRecord>), cmocka_unit_test(test<TimingRecord>),           \
      cmocka_unit_test(test<RequestRecord>), cmocka_unit_test(test<UsageRecord>),     \
      cmocka_unit_test(test<QuarantineRecord>), cmocka_unit_test(test<MetaRecord>),   \
      cmocka_unit_test(test<CountersRecord>), cmocka_unit_test(test<FindingsRecord>), \
      cmocka_unit_test(test<ProgramsRecord>), cmocka_unit_test(test<TuningRecord>)

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      ALL_KINDS(comes_back),
      ALL_KINDS(every_flipped_bit_is_seen),
      ALL_KINDS(every_other_length_is_seen),
      ALL_KINDS(golden_file_holds),
      cmocka_unit_test(golden_keys_hold),
      cmocka_unit_test(another_kind_or_version_is_refused),
  };
  return cmocka_run_group_tests_name("cache-entry", tests, nullptr, nullptr);
}
