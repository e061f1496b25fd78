// What the threads of a block do to memory and to each other, one event after the other, as expressions of
// the thread, the block and the counters of loops.
#pragma once

#include "core/kernel/ir.h"
#include "core/kernel/launch_facts.h"
#include "core/kernel/ranges.h"

namespace quern::proof {

// Names that stand for the thread and the block in expressions of a trace.
struct Places {
  ir::Symbol thread;
  std::array<ir::Symbol, 3> block;
  std::array<ir::Expr, 3> at = {0, 0, 0};  // of the block: its names, or the numbers of one block
  // Whether nothing but the block decides it.
  bool decide_by_block(const ir::Expr& expr) const;
};

// A range of bytes that one thread touches, or that something else touches for it until a wait for that.
struct Access {
  enum class Kind : uint8_t { read, write, signal };  // signal: an operation on an mbarrier
  const ir::SymbolData* memory = nullptr;             // the parameter, or the shared memory
  ir::Space space = ir::Space::global;
  ir::Expr at = 0;  // bytes from its beginning
  int64_t bytes = 0, alignment = 1;
  Kind kind = Kind::read;
  std::optional<ir::Async> async;  // how it goes on beside the thread
  bool of_cluster = false;         // shared memory of any block of the cluster
};

// An instruction that synchronises; operands are evaluated, pointers are bytes from the memory's beginning.
struct Signal {
  ir::Instr code;
  ir::Expr at = 0;      // of the mbarrier
  ir::Expr number = 0;  // its number operand or argument; of a copy that counts at an mbarrier, its bytes
  ir::Expr blocks = 0;  // of a cluster: the rank of the one that is signalled, or a mask of those

  const ir::InstrInfo& row() const { return ir::instr_info(code); }
};

struct Event {
  const ir::Stmt* stmt = nullptr;
  std::optional<Access> access;
  std::optional<Signal> signal;
  std::vector<ir::Expr> where;  // all hold
  std::string iteration;        // of the loops that are gone through one by one: "step 3"
  int role = 0;                 // 0: all threads, and later those that have no role
};

inline int64_t element_bytes(const TensorMap& map) { return static_cast<int64_t>(dtype_size(map.dtype)); }

struct Memory {
  const ir::SymbolData* symbol;
  int64_t bytes, alignment;
};

struct Trace {
  Places places;
  std::vector<ir::Symbol> counters;
  ir::Ranges ranges{ir::LaunchShape{}};  // of places and counters
  std::vector<Event> events;
  struct Role {
    int first_warp = 0, warps = 1, begins = 0;  // the number of its first event
  };
  std::vector<Role> roles;  // 1, 2, ...
  std::map<const ir::SymbolData*, Memory> memories;
  std::array<bool, 3> decide_trips = {};  // coordinates of the block on which trip counts depend
  std::string problem;                    // what could not be followed; events are then not complete
};

enum class Follow : uint8_t {
  accesses,  // loops stay loops: their counters are variables
  order,     // those that synchronise are gone through iteration by iteration
};

// Of all blocks, or of those with these coordinates where there are some.
using BlockPlace = std::array<std::optional<int64_t>, 3>;
Trace trace_kernel(const ir::Kernel& kernel, const ir::LaunchFacts& facts, Follow follow,
                   const BlockPlace& block = {});

}  // namespace quern::proof
