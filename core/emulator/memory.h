// The memory that a kernel may use, and what is known about each of its bytes: whether it was written, by
// whom, and who has read it since. Every access is judged here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/emulator/clock.h"

namespace quern::emulated {

// What is known about one byte.
struct Cell {
  Stamp write, read;
  uint32_t ordinary = 0;    // number of the ordinary write that it was, in their order; 0: by TMA
  uint32_t held : 24 = 0;   // how many beside the threads still read it,
  uint32_t holder : 8 = 0;  // and the last of them: which of the names
  // Whether another write or reader is judged alike.
  bool is_like(const Cell& other) const {
    return write == other.write && read == other.read && (held > 0) == (other.held > 0);
  }
};

struct Region {
  enum class Kind { input, output, workspace, shared_array, dynamic_shared, constants };
  Kind kind;
  std::string name;  // as messages call it
  uintptr_t begin;
  size_t size;
  std::vector<Cell> cells;  // one a byte; none where nothing may be written

  bool holds(uintptr_t address) const { return address - begin < size; }
  bool is_shared() const { return kind == Kind::shared_array || kind == Kind::dynamic_shared; }
  bool is_the_callers() const {
    return kind == Kind::input || kind == Kind::output || kind == Kind::workspace;
  }
  bool is_writable() const { return kind != Kind::input && kind != Kind::constants; }
};

class Memory {
 public:
  explicit Memory(Clock& clock) : clock_(clock) {}

  void add(Region::Kind kind, std::string name, uintptr_t begin, size_t size);
  // Removes the shared regions (a new launch has its own).
  void remove_shared();
  // Forgets what is known about shared memory and overwrites it: another block begins.
  void poison_shared();

  // False if the access breaks a rule: violation() says which. `thread` is the number in the block.
  bool read(uintptr_t address, size_t size, int thread);
  bool write(uintptr_t address, size_t size, int thread);
  // A read (besides read()) of what must not change while the launch runs.
  bool read_constant(uintptr_t address, size_t size);
  // By an instruction that reaches shared memory only, or global memory only.
  bool read_shared(uintptr_t address, size_t size, int thread);
  bool read_global(uintptr_t address, size_t size, int thread);
  bool write_shared(uintptr_t address, size_t size, int thread);
  // A copy into shared memory that goes on beside `thread`, which must know of all accesses before: until it
  // ends nobody may touch the bytes. Then they are there, for whom `stamp` says. By the async proxy: ordinary
  // writes must have been fenced by who wrote.
  bool begin_copy(uintptr_t to, size_t size, int thread, bool proxy);
  void end_copy(uintptr_t to, size_t size, Stamp stamp, bool proxy);
  // Whether block `rank` of a cluster, whose dynamic shared memory begins at `shared`, may end with `thread`:
  // what other blocks do there is done.
  bool may_end(uintptr_t shared, int rank, int thread);
  // A read of shared memory by what goes on beside `thread`.
  bool read_beside(uintptr_t address, size_t size, int thread, bool proxy);
  // From now on, until it is released as often, nobody may write there: `who` reads it.
  void hold(uintptr_t address, size_t size, const char* who);
  void release(uintptr_t address, size_t size);
  void fence_proxy(int thread) { fences_[static_cast<size_t>(thread)] = ++ordinary_; }
  const std::string& violation() const { return violation_; }
  // "output 0 `y` (64 bytes) at offset 12", or the nearest buffer for an address outside of all.
  std::string locate(uintptr_t address) const;

  // The first of `size` bytes that was never written, or `size`.
  size_t find_unwritten(uintptr_t address, size_t size) const;

 private:
  Region* find(uintptr_t address);
  Region* find_for(const char* action, uintptr_t address, size_t size);
  bool judge_caller(const char* action, const Region& region, uintptr_t address, int thread);
  bool judge_write(Region& region, uintptr_t address, size_t size, int thread);

  bool violate(std::string text);

  bool judge_fences(const Region& region, uintptr_t address, size_t size);

  Clock& clock_;
  uint32_t ordinary_ = 0;                              // writes and fences so far
  std::array<uint32_t, kMaxClusterThreads> fences_{};  // of each thread, the last
  std::vector<std::unique_ptr<Region>> regions_;       // by address
  Region* last_ = nullptr;
  std::vector<const char*> holders_;  // their names
  std::string violation_;
};

}  // namespace quern::emulated
