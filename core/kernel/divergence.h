// By what values differ: not at all within a block, from warp to warp, or from thread to thread.
#pragma once

#include <map>

#include "core/kernel/ir.h"

namespace quern::ir {

enum class Varies : uint8_t { by_block, by_warp, by_thread };

class Divergence {
 public:
  void set(const SymbolData& variable, Varies varies) { known_.insert_or_assign(&variable, varies); }
  Varies of(const Expr& expr) const;

 private:
  std::map<const SymbolData*, Varies> known_;
};

// Who takes part in a function that an expression calls: a thread, or all of a warp or block.
Level level_of(Function function);

}  // namespace quern::ir
