// What searches have found for pieces, for searches of other graphs in which the same pieces occur. A piece
// is known by its canonical text and whatever else its result depends on.
#pragma once

#include <map>
#include <string>

#include "core/search/piece_search.h"

namespace quern {

// For one thread at a time. Beyond `most` results the least recently used one is dropped.
class PieceMemo {
 public:
  explicit PieceMemo(size_t most = 256) : most_(most) {}

  static std::string key(const std::string& canonical, const Target& target, const SearchOptions& options);

  // Null when there is none; lives until the next put().
  const PieceResult* find(const std::string& key);
  // Only results that more time would not change are kept.
  void put(const std::string& key, const PieceResult& result);

 private:
  struct Entry {
    PieceResult result;
    uint64_t used = 0;
  };
  const size_t most_;
  uint64_t uses_ = 0;
  std::map<std::string, Entry> entries_;
};

}  // namespace quern
