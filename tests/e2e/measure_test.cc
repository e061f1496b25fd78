// Measuring as clients see it: a daemon with a worker on a GPU, that dies, hangs, loses its GPU, or is killed
// with its daemon in the middle of it.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <iterator>
#include <sstream>

#include "tests/e2e/fixture.h"
// Last, because inside Quern its names mean other classes as well.
// clang-format off
#include "capi/quern.hpp"
// clang-format on

namespace api = quern::hpp;

namespace quern {

namespace {

constexpr const char* kDevice = "NVIDIA H200, driver 580.1";

size_t measures(const TestDaemon& daemon) {
  std::error_code none;
  const auto size = std::filesystem::file_size(daemon.dir / "fake/measures", none);
  return none ? 0 : size;
}

std::vector<pid_t> measurers(const TestDaemon& daemon) {
  std::istringstream in(read_test_file(daemon.dir / "fake/measure_pids"));
  return {std::istream_iterator<pid_t>(in), {}};
}

// A daemon whose searches list programs and find a plan.
struct GpuDaemon : TestDaemon {
  explicit GpuDaemon(const char* device = kDevice) {
    tell_worker("search_finds", "1");
    tell_worker("search_lists", "1");
    if (device) tell_worker("gpu", device);
  }
};

wire::Get get_tier(int number, Tier tier) {
  wire::Get get = test_get(number);
  get.tier = static_cast<uint8_t>(tier);
  return get;
}

std::string explained(TestClient& client, int number) {
  wire::Explain explain;
  explain.graph = test_get(number).graph;
  explain.target = "sm_90a";
  return client.ask<wire::ExplainReply>(explain).measuring;
}

api::Client open_client(const TestDaemon& daemon) {
  const std::string socket = daemon.socket();
  quern_open_options options = api::open_options();
  options.flags = QUERN_NO_START;
  options.socket = socket.c_str();
  options.look_every_ms = UINT32_MAX;
  return api::Client(options);
}

bool is_ready(TestClient& client) {
  return eventually([&] { return client.fact("gpu 0") == std::string(kDevice) + ", sm_90a"; });
}

void a_client_waits_for_the_measured_plan(void**) {
  GpuDaemon daemon;
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(is_ready(client));
  const auto plan = client.ask<wire::PlanReply>(get_tier(1, Tier::measured));
  assert_true(plan.tier == Tier::measured && plan.generation == 3);
  const auto shown = client.ask<wire::ShowReply>(wire::Show{plan.key});
  assert_text_equal(shown.schedule, "another schedule");
  assert_int_equal(shown.timings.size(), 3);
  assert_text_equal(shown.timings[0].device, kDevice);
  assert_contains(explained(client, 1), "3 programs timed");
  // Its process does not keep the GPU for long.
  for (pid_t pid : measurers(daemon)) assert_true(eventually([pid] { return kill(pid, 0) != 0; }));
}

void tuning_reports_its_progress(void**) {
  GpuDaemon daemon;
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(is_ready(client));
  const Hash128 key = client.ask<wire::PlanReply>(get_tier(1, Tier::measured)).key;
  client.send(wire::Tune{key, 5000, 1, 0, 1});
  const auto progress = client.receive_as<wire::Progress>();
  assert_true(progress.done == 1 && progress.total == 3 && progress.best_ps == 5'000'000);
  const auto reply = client.receive_as<wire::TuneReply>();
  assert_true(reply.timed == 3 && reply.baseline_ps == 9'000'000 && reply.best_ps == 7'000'000);
  assert_text_equal(reply.device, kDevice);
  assert_int_equal(measures(daemon), 2);
}

void a_dead_worker_costs_only_itself(void**) {
  GpuDaemon daemon;
  daemon.tell_worker("measure_crashes", "1");
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(is_ready(client));
  assert_true(client.ask<wire::PlanReply>(get_tier(1, Tier::measured)).tier == Tier::measured);
  assert_int_equal(measures(daemon), 2);
  // Two deaths, and what stands stays; others are measured.
  daemon.tell_worker("measure_crashes", "2");
  assert_true(client.ask<wire::PlanReply>(get_tier(2, Tier::measured)).tier == Tier::modelled);
  assert_true(eventually([&] { return explained(client, 2).find("given up") != std::string::npos; }));
  assert_contains(explained(client, 2), "signal 6");
  assert_true(client.ask<wire::PlanReply>(get_tier(3, Tier::measured)).tier == Tier::measured);
  client.ask<wire::PlanReply>(test_get(2));
  assert_int_equal(measures(daemon), 5);
}

void a_worker_that_hangs_is_killed(void**) {
  GpuDaemon daemon;
  daemon.arguments = {"--tune-seconds=1", "--job-seconds=1"};
  daemon.tell_worker("measure_hangs", "1");
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(is_ready(client));
  client.ask<wire::PlanReply>(test_get(1));
  assert_true(eventually(
      [&] { return explained(client, 1).find("put off: the worker took longer than it is allowed") == 0; }));
}

void a_daemon_killed_while_measuring_loses_nothing(void**) {
  GpuDaemon daemon;
  daemon.tell_worker("measure_early", "1");
  daemon.tell_worker("measure_hangs", "1");
  daemon.start();
  Hash128 key;
  {
    TestClient client(daemon.socket());
    assert_true(is_ready(client));
    key = client.ask<wire::PlanReply>(test_get(1)).key;
    // The plan that was better before the end is published at once.
    assert_true(eventually([&] {
      return client.ask<wire::JobStatusReply>(wire::JobStatus{key}).tier ==
             static_cast<uint8_t>(Tier::measured);
    }));
  }
  const std::vector<pid_t> pids = measurers(daemon);
  daemon.kill_hard();
  for (pid_t pid : pids) kill(pid, SIGKILL);
  daemon.start();
  TestClient client(daemon.socket());
  assert_int_equal(client.ask<wire::VerifyReply>(wire::Verify{}).damaged, 0);
  const auto hit = client.ask<wire::PlanReply>(test_get(1));
  assert_true(hit.origin == wire::Origin::hit && hit.tier == Tier::measured);
  // What was measured by then is known, and somebody can ask for the rest.
  assert_true(is_ready(client));
  assert_int_equal(client.ask<wire::TuneReply>(wire::Tune{key, 0, 0, 0, 0}).timed, 3);
}

void a_killed_daemon_that_never_measured_does_so_at_the_next_use(void**) {
  GpuDaemon daemon;
  daemon.tell_worker("measure_hangs", "1");
  daemon.start();
  {
    TestClient client(daemon.socket());
    client.ask<wire::PlanReply>(test_get(1));
    assert_true(eventually([&] { return read_test_file(daemon.dir / "fake/measure_hangs") == "0"; }));
  }
  const std::vector<pid_t> pids = measurers(daemon);
  daemon.kill_hard();
  for (pid_t pid : pids) kill(pid, SIGKILL);
  daemon.start();
  // At once, before its GPU is found.
  TestClient client(daemon.socket());
  assert_true(client.ask<wire::PlanReply>(get_tier(1, Tier::measured)).tier == Tier::measured);
}

void a_gpu_that_is_lost_is_said(void**) {
  GpuDaemon daemon;
  daemon.tell_worker("measure_fails", "it fell off the bus");
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(is_ready(client));
  assert_true(client.ask<wire::PlanReply>(get_tier(1, Tier::measured)).tier == Tier::modelled);
  assert_contains(explained(client, 1), "fell off the bus");
  assert_contains(client.fact("gpu 0"), "none: it fell off the bus");
}

void a_busy_gpu_is_said(void**) {
  GpuDaemon daemon;
  daemon.tell_worker("measure_busy", "1");
  daemon.tell_worker("measure_fails", "others use 90 % of the GPU");
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(is_ready(client));
  const std::string why = "put off: others use 90 % of the GPU; tried again in ";
  client.ask<wire::PlanReply>(test_get(1));
  assert_true(eventually([&] { return explained(client, 1).find(why) == 0; }));
  // Who waits hears of it from the daemon when the time is over.
  api::Client waits = open_client(daemon);
  quern_get_options options = api::get_options();
  options.min_tier = QUERN_MEASURED;
  options.timeout_ms = 500;
  try {
    waits.get(api::Graph::parse(test_get(1).graph), "sm_90a", options);
    fail_test("it did not wait");
  } catch (const api::Error& error) {
    assert_int_equal(error.status(), QUERN_TIMEOUT);
    assert_contains(error.what(), why);
  }
}

void without_a_driver_plans_are_modelled(void**) {
  GpuDaemon daemon(nullptr);
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(eventually([&] { return client.fact("gpu 0") == "none: no driver"; }));
  const auto plan = client.ask<wire::PlanReply>(get_tier(1, Tier::measured));
  assert_true(plan.tier == Tier::modelled);
  assert_contains(explained(client, 1), "GPU 0: no driver");
  client.send(wire::Tune{plan.key, 0, 0, 0, 0});
  assert_error(wire::to_status(client.receive_as<wire::Error>()), ErrorCode::NO_DEVICE, "no driver");
  // On a machine that has one the same cache is measured, without another search or compile.
  daemon.signal(SIGTERM);
  daemon.wait();
  const size_t compiles = daemon.compiles();
  daemon.tell_worker("gpu", kDevice);
  daemon.start();
  TestClient other(daemon.socket());
  assert_true(is_ready(other));
  assert_true(other.ask<wire::PlanReply>(get_tier(1, Tier::measured)).tier == Tier::measured);
  assert_int_equal(daemon.compiles(), compiles);
  assert_int_equal(read_test_file(daemon.dir / "fake/searches").size(), 1);
}

void never_starts_no_worker(void**) {
  GpuDaemon daemon;
  daemon.arguments = {"--measure=never"};
  daemon.start();
  TestClient client(daemon.socket());
  assert_true(client.ask<wire::PlanReply>(get_tier(1, Tier::measured)).tier == Tier::modelled);
  assert_false(std::filesystem::exists(daemon.dir / "fake/measure_pids"));
  assert_text_equal(explained(client, 1), "turned off (measure = never)");
}

// ---- through the C++ interface

// What quern_process counts once the descriptor says that there is something.
uint64_t wait_for_news(api::Client& client) {
  for (;;) {
    pollfd ready{client.fd(), POLLIN, 0};
    assert_int_equal(poll(&ready, 1, 10000), 1);
    if (const uint64_t better = client.process()) return better;
  }
}

void the_descriptor_tells_of_a_plan_that_was_pending(void**) {
  TestDaemon daemon;
  daemon.tell_worker("delay_ms", "60000");
  daemon.start();
  api::Client client = open_client(daemon);
  quern_get_options options = api::get_options();
  options.flags = QUERN_NO_WAIT;
  const api::Graph graph = api::Graph::parse(test_get(1).graph);
  assert_false(client.try_get(graph, "sm_90a", options).has_value());
  daemon.tell_worker("delay_ms", "0");
  assert_int_equal(wait_for_news(client), 1);
  const auto plan = client.try_get(graph, "sm_90a", options);
  assert_true(plan.has_value());
  assert_int_equal(plan->info().tier, QUERN_BASELINE);
  // And of one that came to nothing.
  daemon.tell_worker("fails", "line 7");
  const api::Graph other = api::Graph::parse(test_get(2).graph);
  assert_false(client.try_get(other, "sm_90a", options).has_value());
  assert_int_equal(wait_for_news(client), 1);
}

void min_tier_waits_and_times_out(void**) {
  GpuDaemon daemon;
  daemon.tell_worker("search_delay_ms", "60000");
  daemon.start();
  TestClient plain(daemon.socket());
  assert_true(is_ready(plain));
  api::Client client = open_client(daemon);
  const api::Graph graph = api::Graph::parse(test_get(1).graph);
  assert_int_equal(client.get(graph, "sm_90a").info().tier, QUERN_BASELINE);
  quern_get_options options = api::get_options();
  options.min_tier = QUERN_MEASURED;
  options.timeout_ms = 1;
  try {
    client.get(graph, "sm_90a", options);
    fail_test("it did not wait");
  } catch (const api::Error& error) {
    assert_int_equal(error.status(), QUERN_TIMEOUT);
  }
  // The plan at hand is of a lower tier: it is not handed out for this one.
  daemon.tell_worker("search_delay_ms", "0");
  options.timeout_ms = 10000;
  const api::Plan measured = client.get(graph, "sm_90a", options);
  assert_int_equal(measured.info().tier, QUERN_MEASURED);
  options.timeout_ms = 1;
  assert_ptr_equal(client.get(graph, "sm_90a", options).get(), measured.get());
  options.min_tier = 4;
  try {
    client.get(graph, "sm_90a", options);
    fail_test("there is no such tier");
  } catch (const api::Error& error) {
    assert_int_equal(error.status(), QUERN_INVALID_ARGUMENT);
  }
}

void without_hope_min_tier_gives_what_stands(void**) {
  TestDaemon daemon;
  daemon.start();
  api::Client client = open_client(daemon);
  quern_get_options options = api::get_options();
  options.min_tier = QUERN_MEASURED;
  const api::Graph graph = api::Graph::parse(test_get(1).graph);
  assert_int_equal(client.get(graph, "sm_90a", options).info().tier, QUERN_BASELINE);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_client_waits_for_the_measured_plan),
      cmocka_unit_test(tuning_reports_its_progress),
      cmocka_unit_test(a_dead_worker_costs_only_itself),
      cmocka_unit_test(a_worker_that_hangs_is_killed),
      cmocka_unit_test(a_daemon_killed_while_measuring_loses_nothing),
      cmocka_unit_test(a_killed_daemon_that_never_measured_does_so_at_the_next_use),
      cmocka_unit_test(a_gpu_that_is_lost_is_said),
      cmocka_unit_test(a_busy_gpu_is_said),
      cmocka_unit_test(without_a_driver_plans_are_modelled),
      cmocka_unit_test(never_starts_no_worker),
      cmocka_unit_test(the_descriptor_tells_of_a_plan_that_was_pending),
      cmocka_unit_test(min_tier_waits_and_times_out),
      cmocka_unit_test(without_hope_min_tier_gives_what_stands),
  };
  return cmocka_run_group_tests_name("measure", tests, nullptr, nullptr);
}
