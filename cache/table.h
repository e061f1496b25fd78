// The tables of the store's file (FORMAT.md).
#pragma once

#include <string>
#include <string_view>

#include "core/base/hash.h"

namespace quern {

// The order is not stored; the names are.
enum class Table {
  plans,
  timings,
  requests,
  request_lists,
  usage,
  quarantine,
  meta,
  findings,
  programs,
  tuning
};
inline constexpr Table kAllTables[] = {
    Table::plans,      Table::timings, Table::requests, Table::request_lists, Table::usage,
    Table::quarantine, Table::meta,    Table::findings, Table::programs,      Table::tuning};
inline constexpr int kTableCount = 10;
const char* table_name(Table table);

// 16 bytes whose order is that of to_hex().
std::string table_key(const Hash128& hash);
// The first 16 bytes of `key`, which must be there.
Hash128 hash_of_table_key(std::string_view key);

}  // namespace quern
