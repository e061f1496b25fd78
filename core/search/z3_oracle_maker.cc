#include "core/search/z3_oracle_maker.h"

#include "core/search/z3_oracle.h"

namespace quern {

Result<OracleMaker> z3_oracle_maker() {
  return OracleMaker([](const EGraph& program, std::span<const ClassId> goals, const EGraph& saturated) {
    return std::make_unique<Z3Oracle>(program, goals, saturated, all_axioms());
  });
}

}  // namespace quern
