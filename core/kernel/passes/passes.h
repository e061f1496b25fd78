// The passes of passes.def over a draft.
#pragma once

#include <functional>
#include <span>

#include "core/base/target.h"
#include "core/kernel/passes/draft.h"
#include "core/schedule/choices.h"

namespace quern::ir {

struct PassContext {
  const Target& target;
  Chooser& chooser;  // of order and shared memory
};

struct Pass {
  const char* name;
  const char* requires_;  // of the draft
  const char* ensures;
  Status (*run)(Draft& draft, const PassContext& context);
};
std::span<const Pass> passes();

#define QUERN_PASS(function, ...) Status function(Draft& draft, const PassContext& context);
#include "core/kernel/passes/passes.def"

// Sees a draft as lowering made it (`pass` is null), and after each pass.
using PassObserver = std::function<void(const Draft& draft, const Pass* pass)>;

// All of them; afterwards `draft.kernel` is the kernel. UNSUPPORTED where the target has not what it needs;
// INVALID_ARGUMENT where the choices do not fit.
Status run_passes(Draft& draft, const PassContext& context, const PassObserver& observer = {});

}  // namespace quern::ir
