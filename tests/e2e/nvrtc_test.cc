// The real worker with the real compiler: graph text in, a cubin for every target out. Skipped where there is
// no NVRTC.
#include <unistd.h>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

void graphs_become_cubins(void**) {
  TestDaemon daemon;
  const char* worker = std::getenv("QUERN_REAL_WORKER");
  daemon.worker = worker ? worker : REAL_WORKER_BUILT;
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(eventually([&] { return client.fact("compiler") != "starting"; }));
  if (const std::string why = client.fact("compiler"); why != "ready") skip_test("there is no NVRTC: " + why);
  for (const Target& target : all_targets()) {
    wire::Get get;
    get.graph =
        "graph g\nin x: f16[3, 70]\nin w: f16[70, 33]\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, "
        "w)\nout z\n";
    get.target = target.name;
    const auto reply = client.ask<wire::PlanReply>(get);
    assert_true(reply.origin == wire::Origin::compiled);
    const auto plan = decode_plan(reply.plan);
    assert_ok(plan);
    assert_text_equal(plan.value().target, target.name);
    assert_text_equal(plan.value().cubin.substr(0, 4),
                      "\x7f"
                      "ELF");
    assert_true(!plan.value().launches.empty());
    assert_true(client.ask<wire::PlanReply>(get).plan == reply.plan);
  }
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(graphs_become_cubins)};
  return cmocka_run_group_tests_name("nvrtc", tests, nullptr, nullptr);
}
