// What lowering has written of a block so far, and what all parts of the lowering have in common.
#pragma once

#include <array>
#include <set>

#include "core/codegen/block/facts.h"
#include "core/codegen/layout_expr.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/draft.h"

namespace quern {

using ir::Body;
using ir::Builder;
using ir::Expr;
using ir::Instr;
using ir::Scalar;
using ir::SharedBuffer;
using ir::StepList;
using ir::Symbol;

struct BlockBody {
  BlockBody();

  Status status;                  // of the first thing that cannot be done
  Stage now = Stage::before;      // the section that is being written
  std::array<StepList, 3> steps;  // before, in and after the loop
  // What warps of their own do, in front of the loop and in an iteration, by the operand that they make.
  struct Transform {
    StepList once, iteration;
  };
  std::map<BlockValue, Transform> transforms;
  std::vector<SharedBuffer> shared;
  // Once; in every iteration, wherever its tiles are named; before the loop.
  Body prologue, iteration, declared;
  Symbol shared_memory, iteration_number, turn;  // of a persistent block
  int names = 0;
  // With intervals: the selects that masks of positions decide, and what is true where these mask nothing.
  std::set<BlockValue> masked_selects;
  Symbol unmasked;
};

// What each part of the lowering can do: ask about the block, and write to its body.
class BlockPart {
 protected:
  BlockPart(const BlockFacts& facts, BlockBody& body)
      : facts_(facts),
        kernel_(facts.kernel),
        program_(facts.program),
        schedule_(facts.schedule),
        target_(facts.target),
        warp_bits_(facts.warp_bits),
        body_(body) {}

  Stage now() const { return body_.now; }
  StepList& text(Stage stage) { return body_.steps[static_cast<size_t>(stage)]; }
  // Where statements for a value that is asked for now must stand.
  Stage place_of(BlockValue value) const {
    return program_.stage(value) == Stage::before ? Stage::before : now();
  }
  // What `write` writes for the loop and in front of it is for the warps that make this operand (transform). -1: as always, for those
  // that compute.
  template <class Write>
  void for_transform(BlockValue operand, const Write& write) {
    if (operand < 0) return write();
    auto change_places = [&] {
      BlockBody::Transform& own = body_.transforms[operand];
      std::swap(text(Stage::before), own.once);
      std::swap(text(Stage::loop), own.iteration);
    };
    change_places();
    write();
    change_places();
  }
  // UNSUPPORTED, naming the operator, unless something failed before.
  void fail(BlockValue value, const std::string& what);
  std::string fresh(const std::string& prefix) { return prefix + std::to_string(body_.names++); }
  Symbol fresh_registers(const std::string& prefix, Scalar type, int64_t count) {
    return ir::make_registers(fresh(prefix), type, count);
  }
  std::string base_name(BlockValue value) const;
  Symbol shared_buffer(Scalar type, int64_t bytes, SharedBuffer::Use use = SharedBuffer::Use::exchange,
                       int64_t alignment = 16);

  const BlockFacts& facts_;
  const MuKernel& kernel_;
  const BlockProgram& program_;
  const KernelSchedule& schedule_;
  const Target& target_;
  const int warp_bits_;
  BlockBody& body_;
};

}  // namespace quern
