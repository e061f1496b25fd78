#include "cache/database.h"

#include <lmdb.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

namespace quern {

namespace {

constexpr uint64_t kSmallestMap = uint64_t{16} << 20;
constexpr uint64_t kFullDisk = uint64_t{1} << 20;  // less free space than this explains a failed write
constexpr int kWalkChunk = 128;                    // records a transaction
constexpr unsigned kMaxReaders = 256;              // threads that read at the same instant

MDB_val val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }
std::string_view view(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

bool disk_is_full(const std::string& path) {
  struct statvfs disk;
  return statvfs(path.c_str(), &disk) == 0 && uint64_t{disk.f_bavail} * disk.f_frsize < kFullDisk;
}

struct Advice {
  ErrorCode code;
  const char* what;  // to do about it
};

Advice advice(int code) {
  switch (code) {
    case MDB_MAP_FULL:
      return {ErrorCode::STORAGE_FULL, "raise the cache's map size or lower its size limit"};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return {ErrorCode::STORAGE_FULL, "free some space on the disk of the cache"};
    case MDB_NOTFOUND:
    case ENOENT:
      return {ErrorCode::NOT_FOUND, nullptr};
    case EACCES:
    case EPERM:
    case EROFS:
      return {ErrorCode::PERMISSION, "make the cache directory writable or choose another"};
    case EMFILE:
    case ENFILE:
      return {ErrorCode::LIMIT, "raise the limit of open files (ulimit -n)"};
    case ENOMEM:
      return {ErrorCode::OUT_OF_MEMORY, nullptr};
    case MDB_READERS_FULL:
      return {ErrorCode::BUSY, "too many threads read at once"};
    case MDB_TXN_FULL:
    case MDB_BAD_VALSIZE:
      return {ErrorCode::LIMIT, "what is written is too large"};
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
      return {ErrorCode::CORRUPT, "stop the daemon and move the file away"};
    default:
      return {ErrorCode::IO, nullptr};
  }
}

}  // namespace

Status storage_error(int code, std::string_view doing) {
  const Advice found = advice(code);
  std::string message = std::string(doing) + ": " + mdb_strerror(code);
  if (found.what) message += std::string("; ") + found.what;
  return Status(found.code, std::move(message));
}

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

Result<std::unique_ptr<Database>> Database::open(const std::string& path, uint64_t map_bytes,
                                                 bool read_only) {
  std::unique_ptr<Database> database(new Database(path, map_bytes, read_only));
  if (Status status = database->open_env(); !status.ok()) return status;
  return database;
}

Database::~Database() { close_env(); }

Status Database::mend() {
  (void)Txn::begin(*this, Txn::Mode::read);  // sets panicked_ if that is how things are
  if (!panicked_) return {};
  std::unique_lock lock(env_mutex_);
  close_env();
  panicked_ = false;
  Status status = open_env();
  if (!status.ok()) panicked_ = true;
  return status;
}

Status Database::open_env() {
  int code = ENOMEM;
  Status status;
  for (uint64_t size = wanted_map_bytes_; code == ENOMEM && size >= kSmallestMap; size /= 2)
    status = try_map(size, &code);
  if (status.ok()) status = reach_last_page();
  if (status.ok()) status = open_tables();
  if (!status.ok()) close_env();
  return status;
}

Status Database::try_map(uint64_t map_bytes, int* code) {
  close_env();
  // NOTLS: read transactions belong to objects, not threads. A reader of a directory that it cannot write has
  // no lock table, which is safe because LockFile keeps writers away.
  const unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | (read_only_ ? MDB_RDONLY | MDB_NOLOCK : 0);
  *code = mdb_env_create(&env_);
  if (*code == 0) *code = mdb_env_set_mapsize(env_, map_bytes);
  if (*code == 0) *code = mdb_env_set_maxdbs(env_, kTableCount);
  if (*code == 0) *code = mdb_env_set_maxreaders(env_, kMaxReaders);
  if (*code == 0) *code = mdb_env_open(env_, path_.c_str(), flags, 0600);
  return *code == 0 ? Status() : storage_error(*code, "cannot open " + path_);
}

// A file cut short would kill the process with SIGBUS at the first read past its end; made long enough again,
// the read finds zeros, which no checksum accepts. (LMDB itself may leave the file short of pages that it
// never wrote.)
Status Database::reach_last_page() {
  MDB_envinfo info;
  MDB_stat stat;
  mdb_env_info(env_, &info);
  mdb_env_stat(env_, &stat);
  const uint64_t wanted = (uint64_t{info.me_last_pgno} + 1) * stat.ms_psize;
  if (!read_only_ && file_bytes() < wanted && truncate(path_.c_str(), static_cast<off_t>(wanted)) != 0)
    return storage_error(errno, "cannot extend " + path_);
  return {};
}

Status Database::open_tables() {
  MDB_txn* txn = nullptr;
  int code = mdb_txn_begin(env_, nullptr, read_only_ ? MDB_RDONLY : 0, &txn);
  for (int i = 0; i < kTableCount && code == 0; ++i) {
    code = mdb_dbi_open(txn, table_name(kAllTables[i]), read_only_ ? 0 : MDB_CREATE, &tables_[i]);
    // A file of an earlier version lacks what was added since; without plans it is not one of ours.
    if (code == MDB_NOTFOUND && kAllTables[i] != Table::plans) {
      tables_[i] = kNoTable;
      code = 0;
    }
  }
  if (code == 0)
    code = mdb_txn_commit(txn);
  else if (txn)
    mdb_txn_abort(txn);
  if (code == MDB_NOTFOUND) code = MDB_INVALID;
  return code == 0 ? Status() : storage_error(code, "cannot open the tables of " + path_);
}

void Database::close_env() {
  if (env_) mdb_env_close(env_);
  env_ = nullptr;
}

uint64_t Database::map_bytes() const {
  std::shared_lock lock(env_mutex_);
  MDB_envinfo info = {};
  if (env_) mdb_env_info(env_, &info);
  return info.me_mapsize;
}

uint64_t Database::file_bytes() const {
  struct stat file;
  return stat(path_.c_str(), &file) == 0 ? static_cast<uint64_t>(file.st_size) : 0;
}

Result<Txn> Txn::begin(Database& database, Mode mode) {
  std::shared_lock lock(database.env_mutex_);
  if (!database.env_)
    return Status(ErrorCode::IO, "the cache could not be opened again after a failed write");
  MDB_txn* txn = nullptr;
  const int code = mdb_txn_begin(database.env_, nullptr, mode == Mode::read ? MDB_RDONLY : 0, &txn);
  if (code == MDB_PANIC) database.panicked_ = true;
  if (code != 0) return storage_error(code, "cannot begin a transaction in " + database.path_);
  return Txn(database, txn, std::move(lock));
}

Txn::Txn(Txn&& other)
    : database_(other.database_),
      txn_(std::exchange(other.txn_, nullptr)),
      lock_(std::move(other.lock_)),
      broken_(other.broken_) {}

Txn::~Txn() {
  if (txn_) mdb_txn_abort(txn_);
}

Status Txn::fail(int code, std::string_view doing) {
  broken_ = true;
  if (code == MDB_PANIC) database_->panicked_ = true;
  return storage_error(code, std::string(doing) + " " + database_->path_);
}

Result<std::string_view> Txn::get(Table table, std::string_view key) {
  if (!has(table)) return Status(ErrorCode::NOT_FOUND, {});
  MDB_val mdb_key = val(key), value;
  const int code = mdb_get(txn_, handle(table), &mdb_key, &value);
  if (code == MDB_NOTFOUND) return Status(ErrorCode::NOT_FOUND, {});
  if (code != 0) return fail(code, "cannot read");
  return view(value);
}

Status Txn::put(Table table, std::string_view key, std::string_view value) {
  MDB_val mdb_key = val(key), mdb_value = val(value);
  const int code = mdb_put(txn_, handle(table), &mdb_key, &mdb_value, 0);
  return code == 0 ? Status() : fail(code, "cannot write to");
}

Status Txn::remove(Table table, std::string_view key) {
  MDB_val mdb_key = val(key);
  const int code = mdb_del(txn_, handle(table), &mdb_key, nullptr);
  return code == 0 || code == MDB_NOTFOUND ? Status() : fail(code, "cannot remove from");
}

Status Txn::scan(Table table, std::string_view from,
                 const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  if (!has(table)) return {};
  MDB_cursor* cursor = nullptr;
  int code = mdb_cursor_open(txn_, handle(table), &cursor);
  if (code != 0) return fail(code, "cannot read");
  MDB_val key = val(from), value;
  code = mdb_cursor_get(cursor, &key, &value, from.empty() ? MDB_FIRST : MDB_SET_RANGE);
  while (code == 0 && visit(view(key), view(value))) code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
  mdb_cursor_close(cursor);
  return code == 0 || code == MDB_NOTFOUND ? Status() : fail(code, "cannot read");
}

Result<uint64_t> Txn::count(Table table) {
  if (!has(table)) return uint64_t{0};
  MDB_stat stat;
  const int code = mdb_stat(txn_, handle(table), &stat);
  if (code != 0) return fail(code, "cannot read");
  return uint64_t{stat.ms_entries};
}

Result<uint64_t> Txn::live_bytes() {
  uint64_t bytes = 0;
  for (Table table : kAllTables) {
    if (!has(table)) continue;
    MDB_stat stat;
    const int code = mdb_stat(txn_, handle(table), &stat);
    if (code != 0) return fail(code, "cannot read");
    bytes += (uint64_t{stat.ms_branch_pages} + stat.ms_leaf_pages + stat.ms_overflow_pages) * stat.ms_psize;
  }
  return bytes;
}

Status Txn::commit(int fault) {
  MDB_txn* txn = std::exchange(txn_, nullptr);
  if (fault != 0) mdb_txn_abort(txn);
  int code = fault != 0 ? fault : mdb_txn_commit(txn);
  // LMDB says EIO for a write that came out short, which is how most full disks show.
  if (code == EIO && disk_is_full(database_->path_)) code = ENOSPC;
  return code == 0 ? Status() : fail(code, "cannot commit to");
}

Status walk(Database& database, Table table,
            const std::function<bool(Txn& txn, std::string_view key, std::string_view value)>& visit,
            std::string next) {
  for (bool more = true; more;) {
    auto txn = Txn::begin(database, Txn::Mode::read);
    if (!txn) return txn.status();
    more = false;
    int left = kWalkChunk;
    const Status status = txn->scan(table, next, [&](std::string_view key, std::string_view value) {
      if (!visit(*txn, key, value)) return false;
      if (--left > 0) return true;
      next.assign(key).push_back('\0');  // the smallest key after this one
      more = true;
      return false;
    });
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace quern
