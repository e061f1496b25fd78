#include "core/profile/bench_call.h"

namespace quern {

void encode(const DeviceBenchOptions& options, ByteWriter& out) {
  out.put(options.memory_share);
  out.put(options.threads);
  out.put(options.tf32);
  out.string(options.reference);
  out.put(static_cast<int64_t>(options.reference_limit.count()));
}

DeviceBenchOptions decode_options(ByteReader& in) {
  DeviceBenchOptions options;
  options.memory_share = in.get<double>();
  options.threads = in.get<unsigned>();
  options.tf32 = in.get<bool>();
  options.reference = in.string();
  options.reference_limit = std::chrono::milliseconds(in.get<int64_t>());
  return options;
}

void encode(const Bench::Check& check, ByteWriter& out) {
  out.put(check.error);
  out.put(check.largest);
  out.put(check.compared);
  out.put(check.elements);
  out.string(check.inputs);
  out.string(check.wrong);
}

Bench::Check decode_check(ByteReader& in) {
  Bench::Check check;
  check.error = in.get<double>();
  check.largest = in.get<double>();
  check.compared = in.get<uint64_t>();
  check.elements = in.get<uint64_t>();
  check.inputs = in.string();
  check.wrong = in.string();
  return check;
}

void encode(const std::vector<Bench::Time>& times, ByteWriter& out) {
  out.put(static_cast<uint32_t>(times.size()));
  for (const Bench::Time& time : times)
    for (const std::vector<double>* list : {&time.cold, &time.hot}) {
      out.put(static_cast<uint32_t>(list->size()));
      for (const double us : *list) out.put(us);
    }
}

std::vector<Bench::Time> decode_times(ByteReader& in) {
  std::vector<Bench::Time> times;
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    Bench::Time& time = times.emplace_back();
    for (std::vector<double>* list : {&time.cold, &time.hot})
      for (uint32_t rounds = in.get<uint32_t>(); rounds > 0 && in.ok(); --rounds)
        list->push_back(in.get<double>());
  }
  return times;
}

}  // namespace quern
