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
// A lowering writes bodies through Builder (builder.h); what it can still choose stays out of them:
//
//   core/codegen/block_emitter   the kernels of a muGraph, as drafts: sections of statements
//   core/kernel/passes           order the statements of a draft, place barriers and shared memory, build the loop
//   core/codegen/rows_kernel,    the baseline's kernels, elementwise and row by row, and
//   core/codegen/matmul_kernel   matrix products
#pragma once

#include <optional>
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
enum class Ordering : uint8_t { none, copies, products, proxy, memory };
struct InstrInfo {
  const char* id;
  const char* name;      // in the prelude
  const char* operands;  // as instructions.def says
  Level level;           // who takes part
  Ordering ordering;
};
const InstrInfo& instr_info(Instr code);

// A variable of each thread, a vector of registers, or a pointer: "const TYPE NAME = VALUE". A pointer's symbol
// says what it points into.
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
// Warps from `first_warp` on do this and nothing else.
struct WarpRole {
  std::string name;
  int first_warp = 0;
  Body body;
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
