// The real worker with the real compiler: graph text in, a cubin for every target out. Skipped where there is
// no NVRTC.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "core/base/plan.h"
#include "core/base/target.h"
#include "tests/e2e/fixture.h"

namespace quern {

namespace {

// Skips the test when the worker finds no NVRTC.
void start(TestDaemon& daemon) {
  const char* worker = std::getenv("QUERN_REAL_WORKER");
  daemon.worker = worker ? worker : REAL_WORKER_BUILT;
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(eventually([&] { return client.fact("compiler") != "starting"; }));
  if (const std::string why = client.fact("compiler"); why != "ready") skip_test("there is no NVRTC: " + why);
}

void graphs_become_cubins(void**) {
  TestDaemon daemon;
  start(daemon);
  TestClient client(daemon.socket());
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

std::string status_of(const std::filesystem::path& process, const std::string& name) {
  std::ifstream in(process / "status");  // empty when the process has ended
  for (std::string word, value; in >> word;)
    if (word == name + ":" && in >> value) return value;
  return "";
}

std::vector<std::filesystem::path> workers_of(pid_t daemon) {
  std::vector<std::filesystem::path> workers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code none;
    const auto program = std::filesystem::read_symlink(entry.path() / "exe", none).filename();
    if (program == "quern-worker" && status_of(entry.path(), "PPid") == std::to_string(daemon))
      workers.push_back(entry.path());
  }
  return workers;
}

void workers_are_confined(void**) {
  TestDaemon daemon;
  start(daemon);
  TestClient client(daemon.socket());
  client.ask<wire::PlanReply>(test_get(1));
  const auto workers = workers_of(daemon.pid());
  assert_true(!workers.empty());
  for (const auto& process : workers) {
    // One that has just been started may not have come so far.
    assert_true(eventually([&] { return status_of(process, "Seccomp") == "2"; }));
    assert_text_equal(status_of(process, "NoNewPrivs"), "1");
    for (const auto& file : std::filesystem::directory_iterator(process / "fd")) {
      const std::string target = std::filesystem::read_symlink(file.path());
      if (target.find("cache") != std::string::npos) fail_test("a worker has open " + target);
    }
  }
}

// The daemon ends while its worker searches, once by kill -9 and once by a drain: what stands stays, and the
// search is done all the same in the end.
void a_search_outlives_its_daemon(void**) {
  TestDaemon daemon;
  wire::Get get;
  get.graph = read_test_file(test_root() / "examples/gqa_b1.qg");
  get.target = "sm_90a";
  std::string baseline;
  for (const int number : {SIGKILL, SIGTERM}) {
    start(daemon);
    TestClient client(daemon.socket());
    const auto plan = client.ask<wire::PlanReply>(get);
    assert_true(plan.tier == Tier::baseline && plan.generation == 1);
    assert_true(baseline.empty() || plan.plan == baseline);
    baseline = plan.plan;
    assert_true(eventually([&] {
      return client.ask<wire::JobStatusReply>(wire::JobStatus{plan.key}).state == wire::JobState::running;
    }));
    daemon.signal(number);
    daemon.wait();
  }
  start(daemon);
  TestClient client(daemon.socket());
  get.tier = static_cast<uint8_t>(Tier::modelled);
  const auto better = client.ask<wire::PlanReply>(get);
  assert_true(better.tier == Tier::modelled && better.generation == 2);
  const auto plan = decode_plan(better.plan);
  assert_ok(plan);
  assert_text_equal(plan->cubin.substr(1, 3), "ELF");
  assert_contains(plan->certificate, "verdict: accepted");
  const auto shown = client.ask<wire::ShowReply>(wire::Show{better.key});
  assert_contains(shown.mugraph, "mugraph ");
  assert_contains(shown.schedule, "kernel");
  assert_contains(shown.cuda, "__global__");
  assert_contains(shown.report, ": taken, ");
  assert_int_equal(client.ask<wire::VerifyReply>(wire::Verify{}).damaged, 0);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {cmocka_unit_test(graphs_become_cubins), cmocka_unit_test(workers_are_confined),
                              cmocka_unit_test(a_search_outlives_its_daemon)};
  return cmocka_run_group_tests_name("nvrtc", tests, nullptr, nullptr);
}
