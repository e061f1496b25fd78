// The cache directory as it is found: locked, its file opened, to write if at all possible, else to read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/database.h"
#include "cache/lock_file.h"
#include "cache/store.h"

namespace quern {

struct StoreHome {
  std::shared_ptr<std::optional<LockFile>> lock = std::make_shared<std::optional<LockFile>>();
  std::unique_ptr<Database>
      database;  // closed before the lock; none when there is nothing to read and nowhere to write
  bool read_only = false;
};

// Makes the directory (0700) when it is missing. A directory that cannot be written gives a read-only home, a
// file that is no database is rebuilt; both are told to the report of the options. BUSY when another process
// is in the way.
Result<StoreHome> open_home(const StoreOptions& options);

}  // namespace quern
