// What statements touch: memory that they read and write, mbarriers and copies, as events of a trace.
#pragma once

#include <map>

#include "core/prove/trace.h"
#include "core/prove/trace_values.h"

namespace quern::proof {

// The name of a value that expressions of a trace take.
ir::Symbol variable(const std::string& name);

class AccessTracer {
 protected:
  using Kind = Access::Kind;

  AccessTracer(const ir::Kernel& kernel, const ir::LaunchFacts& facts)
      : kernel_(kernel), facts_(facts), values_(out_.places, facts.cluster) {}

  // The trace ends here.
  void fail(const std::string& what);
  void define_memory(const ir::SymbolData& symbol, int64_t bytes, int64_t alignment);
  // A name that points to what the expression does.
  void bind(const ir::SymbolData& name, const ir::Expr& to);
  // The counter of a loop that stays one: loops as deep and as long share one.
  ir::Expr counter(const std::string& name, int64_t trips);
  ir::Expr value(const ir::Expr& expr) const { return values_.of(expr); }

  // What computing an expression reads, and only where it is computed.
  void reads(const ir::Expr& expr);
  void element(const ir::ExprNode& node, Kind kind);
  void touch(const ir::Instruction& instruction);
  void signal(const ir::Instruction& instruction);

  const ir::Kernel& kernel_;
  const ir::LaunchFacts& facts_;
  Trace out_;
  ThreadValues values_;
  // Of the statement that is looked at.
  const ir::Stmt* now_ = nullptr;
  std::vector<ir::Expr> where_;
  std::string iteration_;
  int role_ = 0, depth_ = 0;

 private:
  struct Pointer {
    const ir::SymbolData* memory = nullptr;
    ir::Space space = ir::Space::global;
    ir::Expr at = 0;  // bytes
  };

  Pointer pointer(const ir::ExprNode& node) const;
  // Without what happens: where and when.
  Event event_here() const;
  void add_access(Access access, std::vector<ir::Expr> extra = {});
  void access(const ir::ExprNode* to, int64_t bytes, Kind kind, const ir::Expr& offset = 0,
              std::vector<ir::Expr> extra = {}, int64_t alignment = 0);
  void barrier();
  // As device/composed.cuh does it.
  void block_reduction(const ir::ExprNode& node);
  // As device/matmul.cuh does it, whose own use of its memory is taken for right.
  void tile_product(const ir::ExprNode& node);
  // Operand number `i`; `offset` bytes behind where it points to.
  void touch(const ir::Instruction& instruction, size_t i, const ir::Expr& offset,
             const std::vector<ir::Expr>& extra);
  // The map by which an instruction copies.
  const TensorMap* map_of_copy(const ir::Instruction& instruction);
  // What lies inside of the tensor, as many bytes at a time as both rows are multiples of.
  void stored_box(const ir::Instruction& instruction, const TensorMap& map);
  // What wgmma reads of an operand in shared memory.
  void operand_panels(const ir::Expr& operand, int64_t extent);

  std::map<const ir::SymbolData*, Pointer> pointers_;
  std::map<std::pair<int, int64_t>, ir::Symbol> counters_;
};

}  // namespace quern::proof
