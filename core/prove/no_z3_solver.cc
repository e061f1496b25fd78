#include "core/prove/solver.h"

namespace quern {

std::unique_ptr<Solver> make_z3_solver() { return nullptr; }

}  // namespace quern
