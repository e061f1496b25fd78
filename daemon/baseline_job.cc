#include "daemon/baseline_job.h"

#include <chrono>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "core/codegen/baseline.h"
#include "core/graph/text.h"
#include "core/optimize/certify.h"

namespace quern {

namespace {

uint64_t now_ns() {
  using namespace std::chrono;
  return static_cast<uint64_t>(duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count());
}

}  // namespace

Result<wire::JobDone> compile_baseline(Compiler& compiler, const std::string& graph,
                                       const std::string& target) {
  const uint64_t start = now_ns();
  auto parsed = parse_graph(graph);
  if (!parsed) return parsed.status();
  auto found = find_target(target);
  if (!found) return found.status();
  auto emitted = emit_baseline(*parsed, **found);
  if (!emitted) return emitted.status();
  const uint64_t emitted_at = now_ns();
  auto output = compiler.compile({emitted->source, target, {}});
  if (!output) return output.status().with_context("the baseline of this graph");
  Plan plan = std::move(emitted->plan);
  plan.cubin = std::move(output->cubin);
  plan.certificate += source_facts({graph, "", "", emitted->source}, plan.cubin, compiler.fingerprint());
  wire::JobDone done;
  done.plan = encode_plan(plan);
  done.emit_ns = emitted_at - start;
  done.compile_ns = now_ns() - emitted_at;
  return done;
}

}  // namespace quern
