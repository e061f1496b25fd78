// Searches in the background as clients see them: a better plan is swapped in, and a daemon that is killed or
// told to end in the middle of a search loses nothing.
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

size_t searches(const TestDaemon& daemon) {
  std::error_code none;
  const auto size = std::filesystem::file_size(daemon.dir / "fake/searches", none);
  return none ? 0 : size;
}

// A daemon whose only search hangs, with the baseline of a graph in its cache.
wire::PlanReply start_a_search_that_hangs(TestDaemon& daemon) {
  daemon.tell_worker("search_hangs", "1");
  daemon.start();
  TestClient client(daemon.socket());
  const auto baseline = client.ask<wire::PlanReply>(test_get(1));
  assert_int_equal(baseline.unstored, 0);
  assert_true(eventually([&] { return searches(daemon) == 1; }));
  assert_true(client.ask<wire::JobStatusReply>(wire::JobStatus{baseline.key}).state ==
              wire::JobState::running);
  return baseline;
}

// The daemon is gone: the next one has the baseline, and searches again when it is used.
void another_daemon_searches_again(TestDaemon& daemon, const wire::PlanReply& baseline) {
  daemon.tell_worker("search_finds", "1");
  daemon.start();
  TestClient client(daemon.socket());
  assert_int_equal(client.ask<wire::VerifyReply>(wire::Verify{}).damaged, 0);
  wire::Get get = test_get(1);
  const auto hit = client.ask<wire::PlanReply>(get);
  assert_true(hit.origin == wire::Origin::hit && hit.plan == baseline.plan && hit.generation == 1);
  get.tier = static_cast<uint8_t>(Tier::modelled);
  const auto better = client.ask<wire::PlanReply>(get);
  assert_true(better.tier == Tier::modelled && better.generation == 2);
  assert_int_equal(searches(daemon), 2);
}

std::vector<pid_t> searchers(const TestDaemon& daemon) {
  std::istringstream in(read_test_file(daemon.dir / "fake/search_pids"));
  return {std::istream_iterator<pid_t>(in), {}};
}

void a_daemon_killed_in_a_search_loses_nothing(void**) {
  TestDaemon daemon;
  const auto baseline = start_a_search_that_hangs(daemon);
  const std::vector<pid_t> pids = searchers(daemon);
  assert_false(pids.empty());
  daemon.kill_hard();
  // A searcher that hangs does not notice; one that works would find its socket closed when it answers.
  for (pid_t pid : pids) kill(pid, SIGKILL);
  another_daemon_searches_again(daemon, baseline);
}

void a_drain_does_not_wait_for_a_search(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--drain-seconds=1000"};
  const auto baseline = start_a_search_that_hangs(daemon);
  // Somebody who waits for the search gets what stands.
  TestClient client(daemon.socket());
  client.send(wire::Wait{baseline.key, 0, static_cast<uint8_t>(Tier::modelled)});
  client.ask<wire::JobStatusReply>(wire::JobStatus{baseline.key});  // so the daemon has read the other
  daemon.signal(SIGTERM);
  assert_true(client.receive_as<wire::PlanReply>().plan == baseline.plan);
  assert_int_equal(daemon.wait(), 0);
  for (pid_t pid : searchers(daemon)) assert_true(eventually([pid] { return kill(pid, 0) != 0; }));
  another_daemon_searches_again(daemon, baseline);
}

// Its plan is published though the search never ends by itself.
void what_a_search_had_is_kept_when_it_is_killed_for_its_time(void**) {
  TestDaemon daemon;
  daemon.arguments = {"--job-seconds=1", "--search-seconds=1", "--optimize-seconds=1"};
  daemon.tell_worker("search_tells", "1");
  daemon.tell_worker("search_hangs", "1");
  daemon.start();
  TestClient client(daemon.socket());
  wire::Get get = test_get(1);
  get.tier = static_cast<uint8_t>(Tier::modelled);
  const auto better = client.ask<wire::PlanReply>(get);
  assert_true(better.tier == Tier::modelled && better.generation == 2);
  assert_int_equal(searches(daemon), 1);
  assert_int_equal(client.counter("searches_failed"), 0);
  // It ran out of time: a later use goes on where it was.
  const auto shown = client.ask<wire::ShowReply>(wire::Show{better.key});
  assert_contains(shown.report, "took longer than it is allowed");
}

void a_client_swaps_to_the_modelled_plan(void**) {
  TestDaemon daemon;
  daemon.tell_worker("search_finds", "1");
  daemon.tell_worker("search_delay_ms", "60000");
  daemon.start();
  const std::string socket = daemon.socket();
  quern_open_options options = api::open_options();
  options.flags = QUERN_NO_START;
  options.socket = socket.c_str();
  options.look_every_ms = UINT32_MAX;
  api::Client client(options);
  const api::Graph graph = api::Graph::parse(test_get(1).graph);
  const api::Plan baseline = client.get(graph, "sm_90a");
  assert_int_equal(baseline.info().tier, QUERN_BASELINE);
  assert_ptr_equal(client.get(graph, "sm_90a").get(), baseline.get());
  daemon.tell_worker("search_delay_ms", "0");
  uint64_t better = 0;
  while (better == 0) {
    pollfd ready{client.fd(), POLLIN, 0};
    assert_int_equal(poll(&ready, 1, 10000), 1);
    better = client.process();
  }
  assert_true(client.outdated(baseline));
  const api::Plan modelled = client.get(graph, "sm_90a");
  assert_int_equal(modelled.info().tier, QUERN_MODELLED);
  assert_int_equal(modelled.info().generation, 2);
  assert_text_equal(modelled.info().key, baseline.info().key);
  // Buffers are those of the old one, which stays what it was.
  assert_int_equal(modelled.input(0).bytes, baseline.input(0).bytes);
  assert_int_equal(baseline.info().generation, 1);
  assert_ptr_equal(client.get(graph, "sm_90a").get(), modelled.get());
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_daemon_killed_in_a_search_loses_nothing),
      cmocka_unit_test(a_drain_does_not_wait_for_a_search),
      cmocka_unit_test(what_a_search_had_is_kept_when_it_is_killed_for_its_time),
      cmocka_unit_test(a_client_swaps_to_the_modelled_plan),
  };
  return cmocka_run_group_tests_name("search", tests, nullptr, nullptr);
}
