// How long answers took: counts in buckets, as a Prometheus histogram has them.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "capi/wire/messages.h"

namespace quern {

class Latency {
 public:
  // Upper ends of the buckets, in microseconds; what took longer is only in the total.
  static constexpr uint64_t kBucketsUs[] = {10,   20,     50,      100,       200,       500,
                                            1000, 10'000, 100'000, 1'000'000, 10'000'000};

  void add(uint64_t ns) {
    size_t bucket = 0;
    while (bucket < std::size(kBucketsUs) && ns > kBucketsUs[bucket] * 1000) ++bucket;
    ++counts_[bucket];
    sum_ns_ += ns;
  }
  // NAME_us_le_10 and so on: answers of up to 10 us; NAME_us_count: all; NAME_sum_ns: their times together.
  void report(const std::string& name, wire::StatsReply& stats) const {
    uint64_t total = 0;
    for (size_t i = 0; i < std::size(kBucketsUs); ++i)
      stats.counters.push_back({name + "_us_le_" + std::to_string(kBucketsUs[i]), total += counts_[i]});
    stats.counters.push_back({name + "_us_count", total + counts_[std::size(kBucketsUs)]});
    stats.counters.push_back({name + "_sum_ns", sum_ns_});
  }

 private:
  // Of answers by the first bucket that they are in; those in none stand last.
  uint64_t counts_[std::size(kBucketsUs) + 1] = {}, sum_ns_ = 0;
};

}  // namespace quern
