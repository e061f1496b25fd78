#include "core/kernel/passes/passes.h"

namespace quern::ir {

namespace {

constexpr Pass kPasses[] = {
#define QUERN_PASS(function, needs, ensures) {#function, needs, ensures, function},
#include "core/kernel/passes/passes.def"
};

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Status run_passes(Draft& draft, const PassContext& context, const PassObserver& observer) {
  if (observer) observer(draft, nullptr);
  for (const Pass& pass : kPasses) {
    if (Status status = pass.run(draft, context); !status.ok()) return status;
    if (observer) observer(draft, &pass);
  }
  return {};
}

}  // namespace quern::ir
