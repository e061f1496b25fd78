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

void set_aside(const std::string& path, const std::string& aside, const Status& why,
               const std::function<void(const std::string&)>& report) {
  std::error_code error;
  fs::rename(path, aside, error);
  report(why.message() + (error ? "; it cannot be moved away: " + error.message()
                                : "; it is now " + aside + ", and an empty cache is started"));
}

Result<StoreHome> open_to_write(const std::string& directory, uint64_t map_bytes, int64_t now_ms,
                                const std::function<void(const std::string&)>& report) {
  if (Status made = make_directory(directory); !made.ok()) return made;
  StoreHome home;
  auto lock = LockFile::acquire(directory + "/" + kLockFile, true);
  if (!lock) return lock.status();
  home.lock = std::move(*lock);
  const std::string path = directory + "/" + kStoreFile;
  if (Status status = check_private_file(path); !status.ok()) return status;
  auto database = Database::open(path, map_bytes, false);
  if (database.status().code() == ErrorCode::CORRUPT) {
    set_aside(path, path + ".damaged-" + std::to_string(now_ms), database.status(), report);
    database = Database::open(path, map_bytes, false);
  }
  if (!database) return database.status();
  home.database = std::move(*database);
  if (Status synced = sync_directory(directory); !synced.ok()) return synced;
  return home;
}

Result<StoreHome> open_to_read(const std::string& directory, uint64_t map_bytes) {
  StoreHome home;
  home.read_only = true;
  if (Status status = check_private_directory(directory); !status.ok()) return status;
  auto lock = LockFile::acquire(directory + "/" + kLockFile, false);
  if (!lock) return lock.status();
  home.lock = std::move(*lock);
  const std::string path = directory + "/" + kStoreFile;
  if (Status status = check_private_file(path); !status.ok()) return status;
  std::error_code error;
  if (fs::file_size(path, error) == 0 || error) return home;
  auto database = Database::open(path, map_bytes, true);
  if (!database) return database.status();
  home.database = std::move(*database);
  return home;
}

}  // namespace

Result<StoreHome> open_home(const std::string& directory, uint64_t map_bytes,
                            const std::function<int64_t()>& now_ms,
                            const std::function<void(const std::string&)>& report) {
  auto home = open_to_write(directory, map_bytes, now_ms(), report);
  const ErrorCode code = home.status().code();
  if (code != ErrorCode::PERMISSION && code != ErrorCode::STORAGE_FULL) return home;
  report(home.status().message() + "; the cache is read-only for now");
  return open_to_read(directory, map_bytes);
}

}  // namespace quern
