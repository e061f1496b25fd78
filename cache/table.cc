#include "cache/table.h"

#include "core/base/status.h"

namespace quern {

const char* table_name(Table table) {
  switch (table) {
    case Table::plans:
      return "plans";
    case Table::timings:
      return "program_timings";
    case Table::requests:
      return "requests";
    case Table::request_lists:
      return "request_lists";
    case Table::usage:
      return "usage";
    case Table::quarantine:
      return "quarantine";
    case Table::meta:
      return "meta";
    case Table::findings:
      return "findings";
    case Table::programs:
      return "programs";
    case Table::tuning:
      return "tuning";
  }
  return "?";
}

std::string table_key(const Hash128& hash) {
  const uint64_t words[2] = {__builtin_bswap64(hash.high), __builtin_bswap64(hash.low)};
  return {reinterpret_cast<const char*>(words), sizeof words};
}

Hash128 hash_of_table_key(std::string_view key) {
  uint64_t words[2];
  check(key.size() >= sizeof words, "a table key holds a hash");
  key.copy(reinterpret_cast<char*>(words), sizeof words);
  return {__builtin_bswap64(words[0]), __builtin_bswap64(words[1])};
}

}  // namespace quern
