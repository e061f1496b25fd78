// Plans that were made elsewhere: what is checked before one enters the store.
#pragma once

#include "cache/store.h"
#include "capi/wire/messages.h"

namespace quern {

// The plan with its findings, as a put that loses against what is as good. CORRUPT when the parts do not make
// the key, the graph is not in canonical form, or the plan does not fit them; UNSUPPORTED for a target that
// is not known here.
Result<PlanPut> put_of_import(const wire::Import& message);

}  // namespace quern
