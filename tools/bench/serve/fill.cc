#include "tools/bench/serve/fill.h"

#include <atomic>
#include <mutex>

#include "cache/store.h"
#include "core/base/bytes.h"
#include "core/base/plan.h"
#include "core/graph/canon.h"
#include "core/graph/text.h"

namespace quern::serve {

namespace {

constexpr const char* kToolchain = "a compiler that is not here";

}  // namespace

std::string graph_text(uint64_t number) {
  return "graph serve\nin x: f16[16, 4096]\nin w: f16[4096, " + std::to_string(number + 1) +
         "]\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n";
}

std::string plan_bytes(uint64_t number, size_t size) {
  Plan plan;
  plan.tier = Tier::measured;  // nothing better is looked for
  plan.target = kTarget;
  if (const auto graph = parse_graph(graph_text(number)); graph.ok()) {
    plan.inputs = graph->input_descs();
    plan.outputs = graph->output_descs();
  }
  Launch launch;
  launch.kernel = "kernel";
  launch.grid = {132, 1, 1};
  launch.block = {128, 1, 1};
  plan.launches.push_back(launch);
  uint64_t state = number * 0x9e3779b97f4a7c15 + 1;
  while (plan.cubin.size() < size) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    plan.cubin.append(reinterpret_cast<const char*>(&state), sizeof state);
  }
  return encode_plan(plan);
}

Result<uint64_t> fill(const Fill& fill) {
  StoreOptions options;
  options.directory = fill.directory;
  options.max_bytes = fill.max_bytes;
  auto store = Store::open(options);
  if (!store) return store.status();
  (*store)->set_meta(kMetaToolchain, kToolchain);
  std::mutex mutex;
  Status failed;
  for (uint64_t number = fill.first; number < fill.first + fill.count; ++number) {
    const std::string text = graph_text(number);
    const auto graph = parse_graph(text);
    if (!graph) return graph.status();
    ByteWriter request;
    request.put(uint32_t{0});
    request.string(kTarget);
    request.raw(text);
    PlanPut put;
    put.material = plan_key(canonical_text(*graph), kTarget, 0, kToolchain);
    put.request = request_key(request.view(), kToolchain);
    put.tier = Tier::measured;
    put.plan = plan_bytes(number, fill.plan_bytes);
    put.device = "a device";
    (*store)->put(std::move(put), [&](const Result<PutOutcome>& outcome) {
      const std::lock_guard lock(mutex);
      if (!outcome.ok() && failed.ok()) failed = outcome.status();
    });
    if (number % 2000 == 1999)
      if (Status status = (*store)->flush(); !status.ok()) return status;
  }
  if (Status status = (*store)->flush(); !status.ok()) return status;
  const auto stats = (*store)->stats();
  if (!failed.ok()) return failed;
  return stats.ok() ? Result<uint64_t>(stats->evicted) : Result<uint64_t>(stats.status());
}

}  // namespace quern::serve
