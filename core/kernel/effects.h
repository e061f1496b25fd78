// What statements read, define and touch: the only source of dependencies.
#pragma once

#include <functional>
#include <set>

#include "core/kernel/ir.h"

namespace quern::ir {

enum class Access : uint8_t { read, write, update, barrier };

// Every access of a statement, those of nested ones included. `symbol` is the root of what is touched
// (root_of): a tile of a stage counts as its ring.
struct Effect {
  const SymbolData* symbol;
  Access access;
  bool of_cluster = false;              // shared memory of other blocks
  const SymbolData* through = nullptr;  // the name by which it is touched
};
void visit_effects(const Stmt& stmt, const std::function<void(const Effect&)>& visit);
void visit_effects(const Body& body, const std::function<void(const Effect&)>& visit);

// The statements in a loop, branch, scope or role; null for others.
const Body* body_of(const Stmt& stmt);

// Whether it has barriers of the block or of a cluster, or mbarriers.
bool has_barriers(const Body& body);

// Whether it signals mbarriers of other blocks of the cluster.
bool signals_blocks(const Stmt& stmt);

// Whether a loop that stays one issues wgmma with a left operand in registers that lives through it, and
// beside that computes the elements of a tile by what compilers call a subroutine for (exact division, square
// roots and powers of f32) or branch around (branches.h), or assigns a tile in a branch. ptxas of CUDA 13.0 then
// gave these registers to another operand: seen on an H200 and an H100, where a branch around all wgmma of an
// iteration did no harm.
bool confuses_wgmma(const Body& body);

// Roots in one space that a body reads or writes.
std::set<const SymbolData*> read_symbols(const Body& body, Space space);
std::set<const SymbolData*> written_symbols(const Body& body, Space space);
// Registers that it names at all.
std::set<const SymbolData*> named_registers(const Body& body);

}  // namespace quern::ir
