#include "cache/home.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cache/store.h"
#include "core/base/private_file.h"

namespace quern {

namespace {

namespace fs = std::filesystem;

// The entry of a new file in its directory must be on disk too before anything in it can be called durable.
Status sync_directory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int code = fd < 0 || fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) close(fd);
  // Some file systems cannot sync a directory and say so with EINVAL.
  return code == 0 || code == EINVAL ? Status()
                                     : storage_error(code, "cannot sync the directory " + directory);
}

Status make_directory(const std::string& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return check_private_directory(directory);
  if (fs::path(directory).has_parent_path()) fs::create_directories(fs::path(directory).parent_path(), error);
  if (mkdir(directory.c_str(), 0700) == 0) return {};
  return storage_error(errno, "cannot make the cache directory " + directory);
}

DatabaseOptions database_options(const StoreOptions& options, bool read_only) {
  return {options.directory + "/" + kStoreFile,
          options.map_bytes,
          read_only,
          options.engine,
          options.now_ms,
          options.report};
}

// The lock of before is let go first: it may be of a file that is gone, or of this one.
Status claim(const std::string& directory, std::optional<LockFile>& lock) {
  if (Status made = make_directory(directory); !made.ok()) return made;
  lock.reset();
  auto taken = LockFile::acquire(directory + "/" + kLockFile, true);
  if (!taken) return taken.status();
  lock.emplace(std::move(*taken));
  return {};
}

Result<StoreHome> open_to_write(const StoreOptions& options) {
  StoreHome home;
  if (Status claimed = claim(options.directory, *home.lock); !claimed.ok()) return claimed;
  DatabaseOptions how = database_options(options, false);
  if (Status status = check_private_file(how.path); !status.ok()) return status;
  how.claim = [directory = options.directory, lock = home.lock] { return claim(directory, *lock); };
  auto database = Database::open(std::move(how));
  if (!database) return database.status();
  home.database = std::move(*database);
  if (Status synced = sync_directory(options.directory); !synced.ok()) return synced;
  return home;
}

Result<StoreHome> open_to_read(const StoreOptions& options) {
  const std::string& directory = options.directory;
  StoreHome home;
  home.read_only = true;
  if (Status status = check_private_directory(directory);
      !status.ok() && status.code() != ErrorCode::NOT_FOUND)
    return status;
  // Only looked at, not kept: who may write must never have to wait for those who may only read. What the
  // owner changes under a reader shows as records that are misses.
  if (auto lock = LockFile::acquire(directory + "/" + kLockFile, false); !lock) return lock.status();
  const std::string path = directory + "/" + kStoreFile;
  if (Status status = check_private_file(path); !status.ok()) return status;
  std::error_code error;
  if (fs::file_size(path, error) == 0 || error) return home;
  auto database = Database::open(database_options(options, true));
  if (!database) return database.status();
  home.database = std::move(*database);
  return home;
}

}  // namespace

Result<StoreHome> open_home(const StoreOptions& options) {
  auto home = open_to_write(options);
  if (home.ok() || home.status().code() == ErrorCode::BUSY) return home;
  options.report(home.status().message() + "; the cache is read-only for now");
  return open_to_read(options);
}

}  // namespace quern
