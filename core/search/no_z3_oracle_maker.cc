#include "core/search/z3_oracle_maker.h"

namespace quern {

Result<OracleMaker> z3_oracle_maker() {
  return Status(ErrorCode::UNSUPPORTED,
                "this build has no Z3: install libz3 with its headers, then configure and build again");
}

}  // namespace quern
