// What expressions of a kernel come to for a thread, as expressions of the thread, its block and the counters
// of loops.
#pragma once

#include <map>

#include "core/kernel/ir.h"
#include "core/prove/trace.h"

namespace quern::proof {

class ThreadValues {
 public:
  ThreadValues(const Places& places, const Dim3& cluster) : places_(places), cluster_(cluster) {}

  // What is not known of it becomes a variable whose name begins with kUnknown.
  ir::Expr of(const ir::Expr& expr) const;
  void set(const ir::SymbolData& name, const ir::Expr& value) { values_.insert_or_assign(&name, value); }
  void forget(const ir::SymbolData& name) { values_.erase(&name); }

 private:
  ir::Expr called(const ir::Expr& expr) const;
  ir::Expr cluster_rank() const;
  ir::Expr unknown(const ir::Expr& expr) const;

  const Places& places_;
  const Dim3 cluster_;
  std::map<const ir::SymbolData*, ir::Expr> values_;
  mutable std::map<std::string, ir::Symbol> unknown_;
};

// Whether threads wait for each other in it, or for copies.
bool synchronises(const ir::Body& body);

}  // namespace quern::proof
