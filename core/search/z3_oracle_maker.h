// Z3 as the oracle of a search, where it was there when this was built.
#pragma once

#include "core/base/status.h"
#include "core/search/oracle.h"

namespace quern {

// UNSUPPORTED in a build without Z3.
Result<OracleMaker> z3_oracle_maker();

}  // namespace quern
