#include "cache/entry.h"

#include "core/base/bytes.h"

namespace quern {

namespace {

constexpr std::string_view kMagic = "QRNR";
constexpr size_t kHeaderBytes = 16;    // magic, version, kind, zero, payload length
constexpr size_t kChecksumBytes = 16;  // hash128 of everything before it

void put_hash(ByteWriter& out, const Hash128& hash) {
  out.put(hash.high);
  out.put(hash.low);
}

Hash128 get_hash(ByteReader& in) {
  Hash128 hash;
  hash.high = in.get<uint64_t>();
  hash.low = in.get<uint64_t>();
  return hash;
}

// One overload of write and read a kind: the payload's fields in their stored order (FORMAT.md).
void write(ByteWriter& out, const PlanRecord& record) {
  out.string(record.material);
  out.put(record.generation);
  out.put(record.tier);
  out.put(record.created_ms);
  out.string(record.plan);
}
void read(ByteReader& in, PlanRecord& record) {
  record.material = in.string();
  record.generation = in.get<uint64_t>();
  record.tier = in.get<Tier>();
  record.created_ms = in.get<int64_t>();
  record.plan = in.string();
  if (record.tier < Tier::baseline || record.tier > Tier::measured || record.generation == 0) in.fail();
}

void write(ByteWriter& out, const TimingRecord& record) {
  put_hash(out, record.key);
  out.string(record.device);
  put_hash(out, record.program);
  out.put(record.cold_ns);
  out.put(record.hot_ns);
  out.put(record.samples);
  out.put(record.error);
  out.put(record.measured_ms);
  out.string(record.refusal);
}
void read(ByteReader& in, TimingRecord& record) {
  record.key = get_hash(in);
  record.device = in.string();
  record.program = get_hash(in);
  record.cold_ns = in.get<double>();
  record.hot_ns = in.get<double>();
  record.samples = in.get<uint32_t>();
  record.error = in.get<double>();
  record.measured_ms = in.get<int64_t>();
  record.refusal = in.string();
}

void write(ByteWriter& out, const ProgramsRecord& record) {
  put_hash(out, record.key);
  out.string(record.programs);
}
void read(ByteReader& in, ProgramsRecord& record) {
  record.key = get_hash(in);
  record.programs = in.string();
}

void write(ByteWriter& out, const TuningRecord& record) {
  put_hash(out, record.key);
  out.put(record.generation);
  put_hash(out, record.program);
  out.put(record.timeouts);
}
void read(ByteReader& in, TuningRecord& record) {
  record.key = get_hash(in);
  record.generation = in.get<uint64_t>();
  record.program = get_hash(in);
  record.timeouts = in.get<uint32_t>();
}

void write(ByteWriter& out, const RequestRecord& record) {
  out.string(record.material);
  put_hash(out, record.key);
}
void read(ByteReader& in, RequestRecord& record) {
  record.material = in.string();
  record.key = get_hash(in);
}

void write(ByteWriter& out, const UsageRecord& record) {
  put_hash(out, record.key);
  out.put(record.sequence);
  out.put(record.generation);
  out.put(record.used_ms);
}
void read(ByteReader& in, UsageRecord& record) {
  record.key = get_hash(in);
  record.sequence = in.get<uint64_t>();
  record.generation = in.get<uint64_t>();
  record.used_ms = in.get<int64_t>();
}

void write(ByteWriter& out, const QuarantineRecord& record) {
  put_hash(out, record.key);
  out.put(record.count);
  out.put(record.last_ms);
  out.string(record.reason);
}
void read(ByteReader& in, QuarantineRecord& record) {
  record.key = get_hash(in);
  record.count = in.get<uint32_t>();
  record.last_ms = in.get<int64_t>();
  record.reason = in.string();
}

void write(ByteWriter& out, const MetaRecord& record) {
  out.string(record.name);
  out.string(record.value);
}
void read(ByteReader& in, MetaRecord& record) {
  record.name = in.string();
  record.value = in.string();
}

void write(ByteWriter& out, const CountersRecord& record) {
  out.put(record.sequence);
  out.put(record.generation_floor);
}
void read(ByteReader& in, CountersRecord& record) {
  record.sequence = in.get<uint64_t>();
  record.generation_floor = in.get<uint64_t>();
}

void write(ByteWriter& out, const FindingsRecord& record) {
  put_hash(out, record.key);
  out.put(record.generation);
  for (std::string_view text :
       {record.reason, record.report, record.mugraph, record.schedule, record.cuda, record.state})
    out.string(text);
}
void read(ByteReader& in, FindingsRecord& record) {
  record.key = get_hash(in);
  record.generation = in.get<uint64_t>();
  for (std::string_view* text :
       {&record.reason, &record.report, &record.mugraph, &record.schedule, &record.cuda, &record.state})
    *text = in.string();
}

Status corrupt(std::string what) { return Status(ErrorCode::CORRUPT, std::move(what)); }

// Checks everything around the payload and returns it.
Result<std::string_view> open_frame(std::string_view bytes, RecordKind kind) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes)
    return corrupt("the record has only " + std::to_string(bytes.size()) + " bytes");
  ByteReader in(bytes);
  const bool magic = in.raw(kMagic.size()) == kMagic;
  const uint16_t version = in.get<uint16_t>();
  const RecordKind found = in.get<RecordKind>();
  const uint8_t zero = in.get<uint8_t>();
  const uint64_t length = in.get<uint64_t>();
  if (!magic) return corrupt("the record does not start with its magic");
  if (length != bytes.size() - kHeaderBytes - kChecksumBytes)
    return corrupt("the record says " + std::to_string(length) + " bytes, but " +
                   std::to_string(bytes.size() - kHeaderBytes - kChecksumBytes) + " are there");
  const std::string_view payload = in.raw(length);
  if (get_hash(in) != hash128(bytes.substr(0, bytes.size() - kChecksumBytes)))
    return corrupt("the record's checksum does not match its bytes");
  if (version != kRecordVersion)
    return corrupt("the record has format " + std::to_string(version) + "; this version reads format " +
                   std::to_string(kRecordVersion));
  if (found != kind || zero != 0)
    return corrupt(std::string("the record is a ") + record_kind_name(found) + " record, not a " +
                   record_kind_name(kind) + " record");
  return payload;
}

template <class T>
std::string encode(const T& record) {
  ByteWriter payload;
  write(payload, record);
  ByteWriter out;
  out.raw(kMagic);
  out.put(kRecordVersion);
  out.put(T::kKind);
  out.put(uint8_t{0});
  out.put(static_cast<uint64_t>(payload.size()));
  out.raw(payload.view());
  put_hash(out, hash128(out.view()));
  return out.take();
}

}  // namespace

const char* record_kind_name(RecordKind kind) {
  switch (kind) {
    case RecordKind::plan:
      return "plan";
    case RecordKind::plan_timing:
      return "plan_timing";
    case RecordKind::request:
      return "request";
    case RecordKind::usage:
      return "usage";
    case RecordKind::quarantine:
      return "quarantine";
    case RecordKind::meta:
      return "meta";
    case RecordKind::counters:
      return "counters";
    case RecordKind::findings:
      return "findings";
    case RecordKind::programs:
      return "programs";
    case RecordKind::program_timing:
      return "program_timing";
    case RecordKind::tuning:
      return "tuning";
  }
  return "nameless";
}

std::string encode_record(const PlanRecord& record) { return encode(record); }
std::string encode_record(const TimingRecord& record) { return encode(record); }
std::string encode_record(const RequestRecord& record) { return encode(record); }
std::string encode_record(const UsageRecord& record) { return encode(record); }
std::string encode_record(const QuarantineRecord& record) { return encode(record); }
std::string encode_record(const MetaRecord& record) { return encode(record); }
std::string encode_record(const CountersRecord& record) { return encode(record); }
std::string encode_record(const FindingsRecord& record) { return encode(record); }
std::string encode_record(const ProgramsRecord& record) { return encode(record); }
std::string encode_record(const TuningRecord& record) { return encode(record); }

template <class T>
Result<T> decode_record(std::string_view bytes) {
  auto payload = open_frame(bytes, T::kKind);
  if (!payload) return payload.status();
  ByteReader in(*payload);
  T record;
  read(in, record);
  if (!in.ok() || !in.at_end())
    return corrupt(std::string("the fields of the ") + record_kind_name(T::kKind) +
                   " record do not fit its length");
  return record;
}

template Result<PlanRecord> decode_record(std::string_view bytes);
template Result<TimingRecord> decode_record(std::string_view bytes);
template Result<RequestRecord> decode_record(std::string_view bytes);
template Result<UsageRecord> decode_record(std::string_view bytes);
template Result<QuarantineRecord> decode_record(std::string_view bytes);
template Result<MetaRecord> decode_record(std::string_view bytes);
template Result<CountersRecord> decode_record(std::string_view bytes);
template Result<FindingsRecord> decode_record(std::string_view bytes);
template Result<ProgramsRecord> decode_record(std::string_view bytes);
template Result<TuningRecord> decode_record(std::string_view bytes);

}  // namespace quern
