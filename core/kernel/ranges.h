// Intervals of integer expressions: between which two numbers a value lies, whatever thread, block and
// iteration it is of.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "core/kernel/expr.h"

namespace quern::ir {

struct Interval {
  int64_t low, high;  // inclusive; low > high: there is no such value
  bool is_one() const { return low == high; }
  bool operator==(const Interval&) const = default;
};
inline constexpr int64_t kRangeLimit = int64_t{1} << 62;  // beyond, nothing is known

// Threads of a block, blocks of the grid along each axis and of a cluster (0: not known).
struct LaunchShape {
  int64_t threads = 0;
  std::array<int64_t, 3> grid = {};
  int64_t cluster = 0;
};

// What is known of variables, and what follows of expressions.
class Ranges {
 public:
  explicit Ranges(const LaunchShape& launch) : launch_(launch) {}

  void set(const SymbolData& variable, Interval range) { known_.insert_or_assign(&variable, range); }
  Interval of(const Expr& expr) const;
  // From here on the condition holds, or does not.
  void assume(const Expr& condition, bool holds);

 private:
  Interval of_operation(const ExprNode& node) const;
  Interval of_call(const ExprNode& node) const;
  void bound(const Expr& value, Interval range);

  LaunchShape launch_;
  std::map<const SymbolData*, Interval> known_;
};

// Which template argument of a tile says how many stages it has; behind it come, for each operand, the
// elements of a copy and whether its columns are neighbours. 0: it has no stages, and copies one element at a
// time.
size_t tile_stages_at(const TemplateArg& tile);
// Rows of a tile's sums in shared memory, elements, and what multiply_tile needs, bytes: as device/matmul.cuh
// has them.
int64_t tile_pitch(const TemplateArg& tile);
int64_t tile_bytes(const TemplateArg& tile);

}  // namespace quern::ir
