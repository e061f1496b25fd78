// Records: what the store keeps under a key, each with magic, format version, kind, length and checksum
// (FORMAT.md). Decoded records are views into the bytes they were decoded from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/hash.h"
#include "core/base/plan.h"
#include "core/base/status.h"

namespace quern {

// Raise this when the layout of any record changes, and with it the store's file name (kStoreFile): an older
// version then starts a file of its own and never meets records that it cannot read.
inline constexpr uint16_t kRecordVersion = 1;

// Stored: never change or reuse a value.
enum class RecordKind : uint8_t {
  plan = 1,
  plan_timing = 2,  // of earlier versions; neither read nor written any more
  request = 3,
  usage = 4,
  quarantine = 5,
  meta = 6,
  counters = 7,
  findings = 8,
  programs = 9,
  program_timing = 10,
  tuning = 11
};
const char* record_kind_name(RecordKind kind);

// The code of a plan. Its key is hash128(material), so a record that lies under another key is known to be
// misplaced.
struct PlanRecord {
  static constexpr RecordKind kKind = RecordKind::plan;
  std::string_view material;  // compared on every hit: the hash is no proof
  uint64_t generation = 1;
  Tier tier = Tier::baseline;
  int64_t created_ms = 0;  // since 1970, for display only
  std::string_view plan;   // encode_plan()
  bool operator==(const PlanRecord&) const = default;
};

// The programs of a plan's graph that are worth measuring.
struct ProgramsRecord {
  static constexpr RecordKind kKind = RecordKind::programs;
  Hash128 key;
  std::string_view programs;  // encode_programs()
  bool operator==(const ProgramsRecord&) const = default;
};

// How fast one program of a plan's graph runs on one device and driver, or why it is refused there. A new
// driver adds timings; the code stays as it is.
struct TimingRecord {
  static constexpr RecordKind kKind = RecordKind::program_timing;
  Hash128 key;
  std::string_view
      device;       // all that a timing depends on: "NVIDIA H200, driver 580.65.06"; or a cost model's name
  Hash128 program;  // Program::name()
  double cold_ns = 0;        // median of one launch list, cold L2; this is what ranks
  double hot_ns = 0;         // the same with a hot L2; 0 when not measured
  uint32_t samples = 0;      // 0 for an estimate
  double error = 0;          // against the f64 reference, the largest over all inputs
  int64_t measured_ms = 0;   // since 1970, for display only
  std::string_view refusal;  // why it is not timed; empty if it is
  bool operator==(const TimingRecord&) const = default;
};

// How far the making of better plans has come for a key.
struct TuningRecord {
  static constexpr RecordKind kKind = RecordKind::tuning;
  Hash128 key;
  uint64_t generation = 0;  // of the plan that `program` is
  Hash128 program;          // Program::name()
  uint32_t timeouts = 0;    // searches in a row that ran out of time
  bool operator==(const TuningRecord&) const = default;
};

// The front index: exact request bytes (as request_key material, compared on a hit) to the key of the plan.
struct RequestRecord {
  static constexpr RecordKind kKind = RecordKind::request;
  std::string_view material;
  Hash128 key;
  bool operator==(const RequestRecord&) const = default;
};

// What changes with every hit, kept apart from the plan so that a hit never rewrites code.
struct UsageRecord {
  static constexpr RecordKind kKind = RecordKind::usage;
  Hash128 key;
  uint64_t sequence = 0;  // rises with every use in the store: the order of eviction, whatever the clock does
  uint64_t generation = 0;  // of the plan, so that a damaged plan's successor still gets a higher one
  int64_t used_ms = 0;      // since 1970, for display only
  bool operator==(const UsageRecord&) const = default;
};

// A key whose graph killed its worker.
struct QuarantineRecord {
  static constexpr RecordKind kKind = RecordKind::quarantine;
  Hash128 key;
  uint32_t count = 0;
  int64_t last_ms = 0;  // since 1970, for display only
  std::string_view reason;
  bool operator==(const QuarantineRecord&) const = default;
};

// A named fact about the store, such as the toolchain fingerprint last seen.
struct MetaRecord {
  static constexpr RecordKind kKind = RecordKind::meta;
  std::string_view name, value;
  bool operator==(const MetaRecord&) const = default;
};

// What the background search for a better plan came to.
struct FindingsRecord {
  static constexpr RecordKind kKind = RecordKind::findings;
  Hash128 key;
  uint64_t generation = 0;                   // of the plan that it made; 0: none
  std::string_view reason;                   // why it made none; empty if it did
  std::string_view report;                   // what became of the candidates
  std::string_view mugraph, schedule, cuda;  // what the plan was made from
  std::string_view state;                    // of an interrupted search, to continue from
  bool operator==(const FindingsRecord&) const = default;
};

// The store's own counters.
struct CountersRecord {
  static constexpr RecordKind kKind = RecordKind::counters;
  uint64_t sequence = 0;  // the last one given to a use
  uint64_t generation_floor =
      0;  // the highest generation of any removed plan: a key's generation never falls
  bool operator==(const CountersRecord&) const = default;
};

std::string encode_record(const PlanRecord& record);
std::string encode_record(const TimingRecord& record);
std::string encode_record(const RequestRecord& record);
std::string encode_record(const UsageRecord& record);
std::string encode_record(const QuarantineRecord& record);
std::string encode_record(const MetaRecord& record);
std::string encode_record(const CountersRecord& record);
std::string encode_record(const FindingsRecord& record);
std::string encode_record(const ProgramsRecord& record);
std::string encode_record(const TuningRecord& record);

// CORRUPT, saying what does not hold, unless `bytes` is exactly what encode_record writes for a record of
// type T.
template <class T>
Result<T> decode_record(std::string_view bytes);

}  // namespace quern
