// Records of the store: as they are, and with a header and a checksum that fit what they carry, since no
// mutation would get past these. The same for the plans, programs and keys that records carry.
#include "cache/entry.h"
#include "cache/key.h"
#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/plan.h"
#include "core/optimize/program.h"
#include "core/verify/certificate.h"
#include "tests/fuzz/fuzz.h"

namespace quern {

namespace {

constexpr size_t kHeaderBytes = 16, kChecksumBytes = 16;  // cache/FORMAT.md

template <class T>
void try_record(std::string_view bytes) {
  const auto record = decode_record<T>(bytes);
  if (record.ok()) must(encode_record(*record) == bytes, "a record encodes to what it was read from");
}

void try_all(std::string_view bytes) {
  try_record<PlanRecord>(bytes);
  try_record<TimingRecord>(bytes);
  try_record<RequestRecord>(bytes);
  try_record<UsageRecord>(bytes);
  try_record<QuarantineRecord>(bytes);
  try_record<MetaRecord>(bytes);
  try_record<CountersRecord>(bytes);
  try_record<FindingsRecord>(bytes);
  try_record<ProgramsRecord>(bytes);
  try_record<TuningRecord>(bytes);
}

// The same payload, whole as far as length and checksum go.
std::string mended(std::string_view bytes) {
  std::string record(bytes.substr(0, bytes.size() - kChecksumBytes));
  const auto length = static_cast<uint32_t>(record.size() - kHeaderBytes);
  record.replace(kHeaderBytes - sizeof length, sizeof length, reinterpret_cast<const char*>(&length),
                 sizeof length);
  const Hash128 hash = hash128(record);
  ByteWriter out;
  out.raw(record);
  out.put(hash.high);
  out.put(hash.low);
  return out.take();
}

}  // namespace

}  // namespace quern

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quern;
  const std::string_view bytes = text_of(data, size);
  try_all(bytes);
  if (size >= kHeaderBytes + kChecksumBytes) try_all(mended(bytes));
  if (const auto plan = decode_plan(bytes); plan.ok()) {
    const auto again = decode_plan(encode_plan(*plan));
    must(again.ok() && *again == *plan, "a plan encodes and decodes to itself");
  }
  if (const auto programs = decode_programs(bytes); programs.ok())
    must(decode_programs(encode_programs(*programs)).ok(), "encoded programs can be decoded");
  if (parse_key_material(bytes).ok()) must(print_key_material(bytes).ok(), "a key can be printed");
  static_cast<void>(parse_certificate(bytes));
  return 0;
}
