// The kernel IR: a CUDA kernel as a tree of statements, between the lowering of a graph and CUDA text.
//
// Every statement names what it reads, defines and touches (effects.h), so that passes move, repeat and order
// statements without knowing what they are for; `print_cuda` is the only place where text is made.
//
//   registers    float sums[4] = {}                 Declare
//   loop         for (i = 0; i < 16; ++i) {         For
//     memory       load_global(&x[0], a + i * 4)      Instruction, a row of instructions.def
//     arithmetic   sums[r] = sums[r] + x[r]           Assign, of an Expr
//   }
//
// A lowering writes bodies through Builder (builder.h) into a draft (passes/draft.h): sections of statements,
// and what is still to be decided about them. Passes (passes/passes.def) decide it one after the other;
// `quern emit --passes` prints the draft after each.
//
//   core/codegen/block_emitter   lowers the kernels of a muGraph
//   core/codegen/rows_kernel,    lower the baseline's kernels, elementwise and row by row, and
//   core/codegen/matmul_kernel   matrix products
//
// One kernel through the passes (tests/kernel/passes_test.cc has it whole): 64 threads, of which each sums
// what eight tiles have for another thread, and hands its sum to its neighbour. Lowered:
//
//   buffer s0: 256 bytes, exchanged
//   ring of 2 stages
//     tile tile: shared f32*, 256 bytes
//   copies of an iteration, by all threads
//     cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
//   loop of i, trip count 8
//   in front of it
//     declare sum: f32[1] = 0
//   an iteration, step 0
//     sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
//   after the loop, step 0
//     s0[int(threadIdx.x)] = sum[0]
//   after the loop, step 1
//     sum[0] = s0[int(threadIdx.x) ^ 1]
//   after the loop, step 2
//     y[int(threadIdx.x)] = sum[0]
//
// order_steps sees from the effects of the steps after the loop that one reads what another thread has
// written, and that the first may write where a slow thread still reads a tile:
//
//   buffer s0: 256 bytes, exchanged, moments 2 to 3
//   after the loop, behind a barrier
//     s0[int(threadIdx.x)] = sum[0]
//     block_barrier  # block, orders memory
//     sum[0] = s0[int(threadIdx.x) ^ 1]
//     y[int(threadIdx.x)] = sum[0]
//
// plan_shared_memory: the tiles are not needed any more at moment 2, so that s0 lies where they were:
//
//   buffer s0: 256 bytes, exchanged, moments 2 to 3, at 0
//   ring of 2 stages, at 0
//   names of shared memory
//     shared: shared byte* = dynamic_shared<unsigned char>()
//     s0: shared f32* = shared
//
// init_mbarriers, await_products, specialize_warps and pipeline_products have nothing to do: TMA brings no
// tile, and there is no wgmma. stage_loads makes the loop, an iteration ahead of itself:
//
//   the loop
//     declare sum: f32[1] = 0
//     for step in -1 .. 8, rolled
//       cp_async_wait<0>  # orders copies
//       block_barrier  # block, orders memory
//       if step + 1 < 8
//         i: i32 = step + 1
//         stage: shared byte* = shared + i % 2 * 256
//         tile: shared f32* = stage
//         cp_async<4> write shared tile + int(threadIdx.x), read global x + i * 64 + int(threadIdx.x)
//       cp_async_commit
//       if step < 0
//         continue
//       i: i32 = step
//       stage: shared byte* = shared + i % 2 * 256
//       tile: shared f32* = stage
//       sum[0] = sum[0] + tile[63 - int(threadIdx.x)]
//     cp_async_wait<0>  # orders copies
//
// join_sections puts the loop between the sections before and after it, and overlap_kernels would add
//
//   grid_wait  # grid, orders memory
//
// to a kernel that begins while the one before it ends. What there is now, verify_kernel checks, core/prove
// proves, and print_cuda prints: `for (int step = -1; step < 8; ++step) {`.
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "core/kernel/expr.h"

namespace quern::ir {

struct Stmt;
using Body = std::vector<Stmt>;

enum class Instr : uint8_t {
#define QUERN_INSTRUCTION(id, ...) id,
#include "core/kernel/instructions.def"
};
enum class Level : uint8_t { thread, warp, warpgroup, block, cluster, grid };
// How what an instruction issues goes on beside the threads, as instructions.def says.
enum class Async : uint8_t {
#define QUERN_ASYNC(id, ...) id,
#include "core/kernel/instructions.def"
};
struct AsyncInfo {
  const char* what;
  bool proxy;
};
inline constexpr AsyncInfo kAsyncs[] = {
#define QUERN_ASYNC(id, what, proxy) {what, proxy},
#include "core/kernel/instructions.def"
};
inline const AsyncInfo& async_info(Async async) { return kAsyncs[static_cast<size_t>(async)]; }

enum class Ordering : uint8_t { none, issues, commits, waits, proxy, memory };
struct InstrInfo {
  const char* id;
  const char* name;      // in the prelude
  const char* operands;  // as instructions.def says
  Level level;           // who takes part
  Ordering ordering;
  std::optional<Async> async;  // what it issues, commits or waits for

  bool issues() const { return ordering == Ordering::issues; }
  bool has(char operand) const { return std::string_view(operands).find(operand) != std::string_view::npos; }
  // Whether it orders what threads do, or what goes on beside them: with mbarriers, groups, barriers.
  bool synchronises() const { return has('b') || (ordering != Ordering::none && !issues()); }
};
const InstrInfo& instr_info(Instr code);

// A variable of each thread, a vector of registers, or a pointer: "const TYPE NAME = VALUE". A pointer's
// symbol says what it points into.
struct Let {
  Symbol name;
  Expr value;
};
// An array of registers, or of shared memory that the kernel declares itself; zeros, or not yet defined.
struct Declare {
  Symbol array;
  bool zero = false;
  Expr extent = 0;  // where the symbol's count is not known here
};
struct Assign {
  Expr place;  // an element of registers, of shared or of global memory
  Expr value;
};
enum class Unroll : uint8_t { full, none, automatic };
struct For {
  Symbol counter;
  Expr begin, end;
  Unroll unroll = Unroll::full;
  Body body;
  Expr step = 1;
};
struct If {
  Expr condition;
  Body then;
};
struct Instruction {
  Instr code;
  std::vector<Expr> operands;
  TemplateArgs templates;
};
// Warps from `first_warp` on, the last of the block, do this and nothing else.
struct WarpRole {
  std::string name;
  int first_warp = 0;
  Body body;
  int warps = 1;
};
// Goes on with the next trip of the loop around it; ends the thread.
struct Continue {};
struct Return {};
// Names in `body` are not seen outside.
struct Scope {
  Body body;
};

struct Stmt {
  std::variant<Let, Declare, Assign, For, If, Instruction, WarpRole, Continue, Return, Scope> is;

  template <class Kind>
  requires(!std::is_same_v<std::remove_cvref_t<Kind>, Stmt>) Stmt(Kind kind) : is(std::move(kind)) {}
  template <class Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&is);
  }
};

// Kernel parameters.
struct Parameter {
  Symbol symbol;
  bool distinct = true;  // nobody else writes it while the kernel runs: __restrict__
};

struct Kernel {
  std::string name, comment;
  std::vector<Parameter> parameters;
  int threads = 0;
  int min_blocks = 0;  // blocks of an SM for which ptxas must leave registers; 0: as many as come out
  int64_t shared_bytes = 0;
  Body setup;  // touches no memory but the block's own: it may run before a programmatic-dependency wait
  Body body;
};

std::string print_cuda(const Body& body, int indent = 0);
std::string print_cuda(const Kernel& kernel);

}  // namespace quern::ir
