// Whether conditions over integers can all hold: Z3 decides, over bit vectors as wide as the numbers need.
#pragma once

#include <chrono>
#include <map>
#include <memory>

#include "core/kernel/ranges.h"

namespace quern {

struct SolverAnswer {
  enum class Kind : uint8_t { never, sometimes, unknown } kind = Kind::unknown;
  // By what values they hold, if sometimes. `certain`: every value that the conditions depend on is among
  // them; else one of them came from memory, and may not occur.
  std::map<const ir::SymbolData*, int64_t> values;
  bool certain = true;
};

class Solver {
 public:
  virtual ~Solver() = default;
  // Variables are symbols of index types, as `ranges` bounds them.
  virtual SolverAnswer ask(const std::vector<ir::Expr>& conditions, const ir::Ranges& ranges,
                           std::chrono::milliseconds limit) = 0;
};

// Null in a build without Z3: then only what intervals decide is proved.
using MakeSolver = std::unique_ptr<Solver>();
MakeSolver make_z3_solver;

}  // namespace quern
