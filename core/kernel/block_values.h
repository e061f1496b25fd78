// What integer expressions of a kernel come to in each thread of one block.
#pragma once

#include <array>
#include <map>
#include <set>

#include "core/kernel/ir.h"

namespace quern::ir {

// A number of each thread, or one that all have.
class ThreadNumbers {
 public:
  ThreadNumbers(int64_t of_all) : numbers_{of_all} {}
  explicit ThreadNumbers(std::vector<int64_t> of_each) : numbers_(std::move(of_each)) {}

  int64_t operator[](size_t thread) const { return numbers_[numbers_.size() == 1 ? 0 : thread]; }
  bool is_one() const { return numbers_.size() == 1; }

 private:
  friend class BlockValues;
  std::vector<int64_t> numbers_;
};

// One block of a launch.
struct BlockAt {
  int threads = 0;
  std::array<int64_t, 3> at = {};
  int64_t rank = 0;  // in its cluster
};

class BlockValues {
 public:
  explicit BlockValues(const BlockAt& block) : block_(block) {}

  // A variable stands for an expression: those that are named in it are looked up when it is asked for, so
  // that the counters of the loops around it have numbers then.
  void define(const SymbolData& name, const Expr& value) { defined_.insert_or_assign(&name, value); }
  void set(const SymbolData& counter, ThreadNumbers value) {
    counters_.insert_or_assign(&counter, std::move(value));
  }
  // Nothing if it depends on what is in registers or memory.
  std::optional<ThreadNumbers> of(const Expr& expr) const;
  // Bytes from the beginning of the memory that a pointer points into.
  std::optional<ThreadNumbers> bytes_at(const Expr& pointer) const;
  // Whether the value may change with the counter, by way of the variables that it names.
  bool depends(const Expr& expr, const SymbolData& counter) const;

 private:
  using Numbers = std::optional<ThreadNumbers>;
  Numbers of_symbol(const SymbolData& symbol) const;
  Numbers of_operation(const ExprNode& node) const;
  Numbers of_call(const ExprNode& node) const;
  Numbers begin_of(const SymbolData& pointer) const;
  // What `make` makes of the operands, in each thread.
  template <class Make, class... Operands>
  static ThreadNumbers for_each(const Make& make, const Operands&... operands);

  const BlockAt block_;
  std::map<const SymbolData*, Expr> defined_;
  std::map<const SymbolData*, ThreadNumbers> counters_;
};

}  // namespace quern::ir
