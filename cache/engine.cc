#include "cache/engine.h"

#include <lmdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/base/bytes.h"
#include "core/base/process.h"

namespace quern {

namespace {

constexpr int64_t kStartLimitMs = 30000;    // the process before it may still be about to end
constexpr int64_t kCommitLimitMs = 120000;  // processor time has a limit of its own; this is for the disk
constexpr int64_t kEndLimitMs = 5000;       // from the end of the stream to the end of the process
constexpr uint64_t kMaxReplyBytes = 1 << 20;

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
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
    case MDB_TXN_FULL:
    case MDB_BAD_VALSIZE:
      return {ErrorCode::LIMIT, "what is written is too large"};
    // Of these, LMDB says the later ones only when its pages do not fit together.
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
    case MDB_MAP_RESIZED:
    case MDB_BAD_TXN:
    case MDB_BAD_DBI:
    case MDB_KEYEXIST:
      return {ErrorCode::CORRUPT, nullptr};
    default:
      return {ErrorCode::IO, nullptr};
  }
}

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string framed(const std::string& bytes) {
  ByteWriter out;
  out.put(static_cast<uint64_t>(bytes.size()));
  out.raw(bytes);
  return out.take();
}

std::string own_directory() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return self.substr(0, self.rfind('/'));
}

}  // namespace

Status storage_error(int code, std::string_view doing) {
  const Advice found = advice(code);
  std::string message = std::string(doing) + ": " + mdb_strerror(code);
  if (found.what) message += std::string("; ") + found.what;
  return Status(found.code, std::move(message));
}

std::string default_engine_program() {
  std::string path;
  for (const char* place : {"/quern-store", "/../cache/quern-store", "/../../cache/quern-store",
                            "/../libexec/quern/quern-store"}) {
    path = own_directory() + place;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return QUERN_LIBEXECDIR "/quern-store";
}

std::string encode_batch(const Batch& batch) {
  ByteWriter out;
  out.put(batch.base_txn);
  out.put(static_cast<uint32_t>(batch.writes.size()));
  for (const Batch::Write& write : batch.writes) {
    out.put(static_cast<uint8_t>(write.table));
    out.put(static_cast<uint8_t>(write.value.has_value()));
    out.string(write.key);
    if (write.value) out.string(*write.value);
  }
  return out.take();
}

Result<Batch> decode_batch(std::string_view bytes) {
  ByteReader in(bytes);
  Batch batch;
  batch.base_txn = in.get<uint64_t>();
  for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left) {
    Batch::Write write;
    const uint8_t table = in.get<uint8_t>();
    const bool put = in.get<uint8_t>() != 0;
    write.table = static_cast<Table>(table);
    write.key = in.string();
    if (put) write.value = in.string();
    if (table >= kTableCount) in.fail();
    batch.writes.push_back(std::move(write));
  }
  if (!in.ok() || !in.at_end()) return Status(ErrorCode::PROTOCOL, "that is no batch of writes");
  return batch;
}

std::string encode_reply(const EngineReply& reply) {
  ByteWriter out;
  out.put(reply.code);
  out.string(reply.doing);
  out.put(reply.map_bytes);
  return framed(out.take());
}

Result<EngineReply> decode_reply(std::string_view bytes) {
  ByteReader in(bytes);
  EngineReply reply;
  reply.code = in.get<int32_t>();
  reply.doing = in.string();
  reply.map_bytes = in.get<uint64_t>();
  if (!in.ok() || !in.at_end()) return Status(ErrorCode::PROTOCOL, "that is no reply");
  return reply;
}

Result<std::unique_ptr<Engine>> Engine::start(const Options& options) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return storage_error(errno, "no socket for the writer of the cache");
  const std::string program = options.program.empty() ? default_engine_program() : options.program;
  const std::vector<std::string> command = {program, options.file, std::to_string(options.map_bytes),
                                            options.durable ? "durable" : "unsynced"};
  pid_t pid = 0;
  const int error = start_process(command, pair[1], ProcessGroup::own, pid);
  close(pair[1]);
  if (error != 0) {
    close(pair[0]);
    return storage_error(error, "cannot start the writer of the cache, " + program);
  }
  std::unique_ptr<Engine> engine(new Engine(pid, pair[0], options.file));
  const auto hello = engine->receive(kStartLimitMs);
  if (!hello) return hello.status();
  if (hello->code != 0) return storage_error(hello->code, hello->doing);
  engine->map_bytes_ = hello->map_bytes;
  return engine;
}

Engine::~Engine() {
  // It ends with its stream, after what it is at.
  close(socket_);
  if (pid_ != 0) waitpid(pid_, nullptr, 0);
}

Status Engine::commit(const Batch& batch) {
  if (pid_ == 0) return Status(ErrorCode::CANCELLED, "the writer of the cache is gone");
  if (!send_all(socket_, framed(encode_batch(batch)))) return died("took no work");
  const auto reply = receive(kCommitLimitMs);
  if (!reply) return reply.status();
  return reply->code == 0 ? Status() : storage_error(reply->code, reply->doing);
}

Result<EngineReply> Engine::receive(int64_t limit_ms) {
  const int64_t deadline = now_ms() + limit_ms;
  std::string bytes;
  uint64_t size = 0;
  while (bytes.size() < sizeof size || bytes.size() < sizeof size + size) {
    pollfd wait{socket_, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::max<int64_t>(deadline - now_ms(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return died("did not answer in time");
    char buffer[4096];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return died("ended");
    bytes.append(buffer, static_cast<size_t>(got));
    if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
    if (size > kMaxReplyBytes) return died("sent nonsense");
  }
  auto reply = decode_reply(std::string_view(bytes).substr(sizeof size));
  return reply.ok() ? std::move(reply) : died("sent nonsense");
}

// Reaps it, by a SIGKILL of ours if it does not go by itself.
Status Engine::died(const char* doing) {
  int status = 0;
  pid_t reaped = 0;
  const bool closed = std::string_view(doing) != "did not answer in time";
  for (const int64_t limit = now_ms() + (closed ? kEndLimitMs : 0); !reaped && now_ms() < limit;) {
    reaped = waitpid(pid_, &status, WNOHANG);
    if (!reaped) usleep(200);
  }
  // One that gives up by itself has no quarrel with the file.
  const bool by_others = reaped && (is_killed_by_others(status) || WIFEXITED(status));
  if (!reaped) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = 0;
  return Status(
      by_others ? ErrorCode::CANCELLED : ErrorCode::WORKER,
      "the writer of the cache " + std::string(doing) + " on " + file_ + ": it " + describe_end(status));
}

}  // namespace quern
