// Whether what lies in the tables holds, and taking away what does not.
#pragma once

#include <functional>

#include "cache/tables.h"

namespace quern {

// CORRUPT unless the record decodes and lies under its own key, as far as its bytes tell. `plan` becomes the
// key of the plan that it is of.
Status check_alone(Table table, std::string_view key, std::string_view value, Hash128* plan);
// CORRUPT unless, besides, what it points to is there.
Status check_record(Txn& txn, Table table, std::string_view key, std::string_view value);

// Looks at the place again and clears it if the record there does not hold: a plan goes with all that belongs
// to it, a usage record is written anew, anything else just goes.
Status remove_damaged(WriteTxn& write, Table table, std::string_view key);

// A key as it is printed: hexadecimal, or the name of a meta record.
std::string printed_key(Table table, std::string_view key);

// Every record of every table; `progress` is called now and then.
Result<VerifyReport> audit(Database& database,
                           const std::function<void(uint64_t done, uint64_t total)>& progress,
                           const std::function<void(Table table, std::string key)>& on_damage);

}  // namespace quern
