#include "cache/engine_server.h"

#include <fcntl.h>
#include <lmdb.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "cache/engine.h"
#include "cache/isolate_engine.h"

namespace quern {

namespace {

constexpr uint64_t kSmallestMap = uint64_t{16} << 20;
constexpr uint64_t kFullDisk = uint64_t{1} << 20;  // less free space than this explains a failed write
// Kept behind the end of the file, so that what makes room can be written to a full disk.
constexpr uint64_t kReserveBytes = uint64_t{512} << 10;
constexpr rlim_t kCommitSeconds = 20;  // of processor time: a transaction takes milliseconds
constexpr rlim_t kMaxDataBytes = rlim_t{2} << 30;

MDB_val val(std::string_view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }

bool disk_is_full(int fd) {
  struct statvfs disk;
  return fstatvfs(fd, &disk) == 0 && uint64_t{disk.f_bavail} * disk.f_frsize < kFullDisk;
}

void set_limit(decltype(RLIMIT_CPU) resource, rlim_t soft) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(soft, limit.rlim_max);
  setrlimit(resource, &limit);
}

// A walk in circles ends with SIGXCPU, one that takes all memory with ENOMEM.
void limit_work() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  set_limit(RLIMIT_CPU,
            static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + kCommitSeconds);
}

bool receive(int socket, size_t size, std::string& bytes) {
  bytes.resize(size);
  for (size_t at = 0; at < size;) {
    const ssize_t got = recv(socket, bytes.data() + at, size - at, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += static_cast<size_t>(got);
  }
  return true;
}

bool send_reply(int socket, const EngineReply& reply) {
  const std::string bytes = encode_reply(reply);
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

class Server {
 public:
  explicit Server(const EngineServerOptions& options) : options_(options) {}

  int open() {
    // Until the process before this one has ended: its last commit may be under way.
    const int fd = ::open(options_.file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return failed(errno, "cannot open");
    int code;
    do code = flock(fd, LOCK_EX) == 0 ? 0 : errno;
    while (code == EINTR);
    if (code != 0) return failed(code, "cannot lock");
    fd_ = fd;
    code = ENOMEM;
    for (uint64_t size = options_.map_bytes; code == ENOMEM && size >= kSmallestMap; size /= 2)
      code = map(size);
    if (code != 0) return failed(code, "cannot open");
    code = isolate_engine();
    if (code != 0) return failed(code, "there is no isolation for the writer of");
    code = open_tables();
    if (code != 0) return failed(code, "cannot open the tables of");
    reserve();
    return 0;
  }

  EngineReply hello() const {
    MDB_envinfo info = {};
    mdb_env_info(env_, &info);
    return {0, "", info.me_mapsize};
  }

  int commit(const Batch& batch) {
    MDB_txn* txn = nullptr;
    int code = mdb_txn_begin(env_, nullptr, 0, &txn);
    if (code != 0) return failed(code, "cannot begin a transaction in");
    if (mdb_txn_id(txn) != batch.base_txn + 1) code = MDB_CORRUPTED;
    for (const Batch::Write& write : batch.writes) {
      if (code != 0) break;
      MDB_val key = val(write.key);
      const MDB_dbi table = tables_[static_cast<int>(write.table)];
      if (write.value) {
        MDB_val value = val(*write.value);
        code = mdb_put(txn, table, &key, &value, 0);
      } else {
        code = mdb_del(txn, table, &key, nullptr);
        if (code == MDB_NOTFOUND) code = 0;
      }
    }
    if (code != 0) {
      mdb_txn_abort(txn);
      return failed(code, "cannot write to");
    }
    code = mdb_txn_commit(txn);
    // LMDB says EIO for a write that came out short, which is how most full disks show.
    if (code == EIO && disk_is_full(fd_)) code = ENOSPC;
    if (code != 0) return failed(code, "cannot commit to");
    reserve();
    return 0;
  }

  std::string doing() const { return doing_ + " " + options_.file; }

 private:
  int failed(int code, const char* doing) {
    doing_ = doing;
    return code;
  }

  // NOLOCK: there is no other writer, and readers are looked after by who sends the batches.
  int map(uint64_t bytes) {
    if (env_) mdb_env_close(env_);
    env_ = nullptr;
    int code = mdb_env_create(&env_);
    if (code == 0) code = mdb_env_set_mapsize(env_, bytes);
    if (code == 0) code = mdb_env_set_maxdbs(env_, kTableCount);
    const unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | (options_.durable ? 0 : MDB_NOSYNC);
    return code == 0 ? mdb_env_open(env_, options_.file.c_str(), flags, 0600) : code;
  }

  int open_tables() {
    MDB_txn* txn = nullptr;
    int code = mdb_txn_begin(env_, nullptr, 0, &txn);
    for (int i = 0; i < kTableCount && code == 0; ++i)
      code = mdb_dbi_open(txn, table_name(kAllTables[i]), MDB_CREATE, &tables_[i]);
    if (code == 0) return mdb_txn_commit(txn);
    if (txn) mdb_txn_abort(txn);
    return code;
  }

  // Only ever an attempt: a file system that cannot do it goes without.
  void reserve() {
    MDB_envinfo info = {};
    MDB_stat stat = {};
    mdb_env_info(env_, &info);
    mdb_env_stat(env_, &stat);
    const uint64_t end = (uint64_t{info.me_last_pgno} + 1) * stat.ms_psize;
    if (end + kReserveBytes / 2 <= reserved_) return;
    if (fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(end), kReserveBytes) == 0)
      reserved_ = end + kReserveBytes;
  }

  const EngineServerOptions options_;
  int fd_ = -1;
  MDB_env* env_ = nullptr;
  MDB_dbi tables_[kTableCount] = {};
  uint64_t reserved_ = 0;
  std::string doing_;
};

// False at the end of the stream.
bool answer_one(Server& server, int socket) {
  std::string bytes;
  if (!receive(socket, sizeof(uint64_t), bytes)) return false;
  uint64_t size;
  std::memcpy(&size, bytes.data(), sizeof size);
  if (!receive(socket, size, bytes)) return false;
  const auto batch = decode_batch(bytes);
  if (!batch) return false;
  limit_work();
  const int code = server.commit(*batch);
  return send_reply(socket, {code, code == 0 ? "" : server.doing(), 0});
}

}  // namespace

int serve_engine(const EngineServerOptions& options, int socket) try {
  set_limit(RLIMIT_CORE, 0);
#ifndef QUERN_SANITIZED
  set_limit(RLIMIT_DATA, kMaxDataBytes);
#endif
  limit_work();
  Server server(options);
  if (const int code = server.open(); code != 0) {
    send_reply(socket, {code, server.doing(), 0});
    return 1;
  }
  if (!send_reply(socket, server.hello())) return 1;
  while (answer_one(server, socket)) {
  }
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}

}  // namespace quern
