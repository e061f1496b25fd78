#include "core/search/piece_memo.h"

#include <algorithm>

namespace quern {

std::string PieceMemo::key(const std::string& canonical, const Target& target, const SearchOptions& options) {
  std::string key = target.name;
  for (uint64_t number : {uint64_t(options.bound), uint64_t(options.kernels), uint64_t(options.results),
                          options.seed, uint64_t(options.max_dags), uint64_t(options.time_of ? 1 : 0)})
    key += " " + std::to_string(number);
  return key + "\n" + print_constraints(options.constraints) + "\n" + canonical;
}

const PieceResult* PieceMemo::find(const std::string& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return nullptr;
  entry->second.used = ++uses_;
  return &entry->second.result;
}

void PieceMemo::put(const std::string& key, const PieceResult& result) {
  if (!result.finished || result.report.timed_out || result.report.cancelled || result.report.out_of_memory)
    return;
  entries_[key] = {result, ++uses_};
  if (entries_.size() <= most_) return;
  entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

}  // namespace quern
