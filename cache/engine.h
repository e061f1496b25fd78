// LMDB, in a process of its own: all that writes to the file. LMDB trusts its pages, and a damaged one can
// make it abort, fault, loop or take all memory; there that ends one process, which is started again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/table.h"
#include "core/base/status.h"

namespace quern {

// Puts (with a value) and removals of one transaction, in any order: no key is named twice.
struct Batch {
  struct Write {
    Table table;
    std::string key;
    std::optional<std::string> value;
  };
  std::vector<Write> writes;
  uint64_t base_txn = 0;  // the last transaction in the file: another one is CORRUPT
};

// What goes over the socket to quern-store: a u64 length and a batch; and back: a length and a reply.
std::string encode_batch(const Batch& batch);
Result<Batch> decode_batch(std::string_view bytes);
struct EngineReply {
  int32_t code = 0;  // an errno or an LMDB code
  std::string doing;
  uint64_t map_bytes = 0;
};
std::string encode_reply(const EngineReply& reply);
Result<EngineReply> decode_reply(std::string_view bytes);

class Engine {
 public:
  struct Options {
    std::string program;  // path of quern-store; empty: default_engine_program()
    std::string file;
    uint64_t map_bytes = 0;
    bool durable = true;  // false: for a file that is not in use yet; sync it before it is
  };
  // Makes the file and its tables when they are missing. What LMDB says of the file, WORKER when the process
  // does not live to say anything.
  static Result<std::unique_ptr<Engine>> start(const Options& options);
  ~Engine();
  Engine(const Engine&) = delete;

  // Durable when OK (if it is to be). The status says what LMDB found wrong; WORKER when the process has died
  // of it, CANCELLED when it has ended for another reason: then it may or may not be durable, and the engine
  // is of no use any more.
  Status commit(const Batch& batch);
  uint64_t map_bytes() const { return map_bytes_; }
  pid_t process() const { return pid_; }

 private:
  Engine(pid_t pid, int socket, std::string file) : pid_(pid), socket_(socket), file_(std::move(file)) {}
  Result<EngineReply> receive(int64_t limit_ms);
  Status died(const char* doing);

  pid_t pid_;
  const int socket_;
  const std::string file_;
  uint64_t map_bytes_ = 0;
};

// Beside this program, in its build folder, in an installation that was moved as a whole, where it was
// installed.
std::string default_engine_program();

// `code` is an errno or an LMDB code; `doing` says what failed and on which file.
Status storage_error(int code, std::string_view doing);

}  // namespace quern
