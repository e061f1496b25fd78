// The C++ wrapper, and better plans as a program sees them, against the fake daemon in this process.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/capi/fake_daemon.h"
#include "tests/support/test.h"
// Last, because inside Quern its names mean other classes as well.
// clang-format off
#include "capi/quern.hpp"
// clang-format on

// Named like this because this file also sees the classes inside Quern.
namespace api = quern::hpp;

namespace quern {

namespace {

constexpr const char* kText = "graph g\nin x: f16[4, 8]\ny = relu(x)\nout y\n";

struct Setup {
  std::string socket = temp_dir() / "s";
  FakeDaemon daemon{socket};

  quern_open_options options(uint32_t look_every_ms = UINT32_MAX) {
    quern_open_options options = api::open_options();
    options.flags = QUERN_NO_START;
    options.socket = socket.c_str();
    options.look_every_ms = look_every_ms;
    return options;
  }
};

template <class Body>
void assert_throws(quern_status expected, const char* part, Body body) {
  try {
    body();
  } catch (const api::Error& error) {
    assert_int_equal(error.status(), expected);
    assert_contains(error.what(), part);
    return;
  }
  fail_test("nothing was thrown");
}

void builds_graphs(void**) {
  api::Graph graph("built");
  const api::Value x = graph.input("x", QUERN_F16, {4, 8});
  const api::Value w = graph.strided_input("w", QUERN_F16, {8, 16}, {1, 8}, QUERN_INPUT_CONST);
  const api::Value n =
      graph.op("rms_norm", {x}, {quern_attr_integer("axis", -1), quern_attr_number("eps", 1e-5)});
  const api::Value y = graph.op("mul", {graph.op("matmul", {n, w}), graph.constant(0.5)}, {}, "y");
  graph.output(y);
  assert_int_equal(graph.describe(y).shape[1], 16);
  assert_text_equal(api::Graph::parse(graph.text()).text(), graph.text());
  assert_throws(QUERN_INVALID_GRAPH, "1:1", [] { api::Graph::parse("nonsense"); });
  assert_throws(QUERN_INVALID_GRAPH, "no operator", [&] { graph.op("nonsense", {x}); });
  assert_throws(QUERN_INVALID_ARGUMENT, "strides", [&] { graph.strided_input("s", QUERN_F16, {2}, {}); });
}

void numbers_are_constants(void**) {
  api::Graph graph("numbers");
  const api::Value x = graph.input("x", QUERN_F32, {3}), y = graph.input("y", QUERN_F32, {3});
  const api::Value one = graph.op("mul", {x, 1}, {}, "one");  // y, if 1 meant a value
  graph.output(graph.op("add", {0.5f, one}, {}, "sum"));
  assert_contains(graph.text(), "one = mul(x, 1)\nsum = add(0.5, one)");
  assert_int_equal(y.id(), graph.value(1).id());
  api::Graph other("other");
  assert_throws(QUERN_INVALID_ARGUMENT, "another graph", [&] { other.op("neg", {x}); });
  assert_throws(QUERN_INVALID_ARGUMENT, "another graph", [&] { other.output(x); });
  assert_throws(QUERN_NOT_FOUND, "99", [&] { graph.value(99); });
}

void gets_and_launches(void**) {
  Setup s;
  api::Client client(s.options());
  api::Plan plan = client.get(api::Graph::parse(kText), "sm_90a");
  assert_int_equal(plan.info().input_count, 1);
  assert_text_equal(plan.input(0).name, "x");
  assert_int_equal(plan.output(0).bytes, 64);
  assert_text_equal(plan.launch_info(0).kernel, "fake");
  assert_int_equal(plan.launch_info(0).args[3].value, 7);
  const api::Plan copy = plan;
  assert_ptr_equal(copy.get(), plan.get());
  assert_text_equal(api::device_target(0), "sm_90a");
  assert_throws(QUERN_INVALID_ARGUMENT, "1 inputs and 1 outputs", [&] { plan.launch(nullptr, {}, {}); });
  assert_throws(QUERN_CUDA, "no CUDA context", [&] { plan.prepare(); });
  assert_throws(QUERN_UNSUPPORTED, "sm_none", [&] { client.get(api::Graph::parse(kText), "sm_none"); });
  assert_throws(QUERN_QUARANTINED, "twice",
                [&] { client.get(api::Graph::parse("graph killer\nin x: f32[1]\nout x\n"), "sm_90a"); });
  bool found = false;
  for (const api::Client::Statistic& stat : client.stats())
    found |= stat.name == "software" && stat.text == "fake quernd";
  assert_true(found);
}

void pending_is_no_error(void**) {
  Setup s;
  api::Client client(s.options());
  const api::Graph graph = api::Graph::parse(kText);
  quern_get_options options = api::get_options();
  options.flags = QUERN_NO_WAIT;
  assert_false(client.try_get(graph, "sm_90a", options).has_value());
  assert_true(client.try_get(graph, "sm_90a", options).has_value());
  const api::Graph other = api::Graph::parse("graph o\nin x: f32[1]\ny = exp(x)\nout y\n");
  const std::vector<quern_status> statuses = client.prewarm({&graph, &other}, "sm_90a", options);
  assert_int_equal(statuses[0], QUERN_OK);
  assert_int_equal(statuses[1], QUERN_PENDING);
}

void a_wait_can_be_cancelled(void**) {
  Setup s;
  api::Client client(s.options());
  const api::Graph graph = api::Graph::parse(kText);
  s.daemon.hold();
  std::thread waiting([&] {
    assert_throws(QUERN_CANCELLED, "ask again", [&] { client.get(graph, "sm_90a"); });
  });
  while (s.daemon.counts().gets == 0) usleep(1000);
  client.cancel();
  waiting.join();
  s.daemon.release();
  assert_int_equal(client.get(graph, "sm_90a").info().generation, 1);
}

void a_better_plan_is_swapped_in_after_process(void**) {
  Setup s;
  api::Client client(s.options());
  const api::Graph graph = api::Graph::parse(kText);
  const api::Plan old = client.get(graph, "sm_90a");
  client.stats();  // the subscription has been answered
  assert_int_equal(s.daemon.counts().subscribes, 1);
  s.daemon.improve_all();
  pollfd ready{client.fd(), POLLIN, 0};
  assert_int_equal(poll(&ready, 1, 5000), 1);
  assert_ptr_equal(client.get(graph, "sm_90a").get(), old.get());  // nobody has looked
  assert_int_equal(client.process(), 1);
  assert_int_equal(client.process(), 0);
  assert_true(client.outdated(old));
  const api::Plan better = client.get(graph, "sm_90a");
  assert_int_equal(better.info().generation, 2);
  assert_int_equal(better.info().tier, QUERN_MODELLED);
  assert_false(client.outdated(better));
  assert_int_equal(old.info().generation, 1);  // the old handle is what it was
  assert_ptr_equal(client.get(graph, "sm_90a").get(), better.get());
  assert_int_equal(s.daemon.counts().gets, 2);
}

void a_better_plan_is_noticed_without_process(void**) {
  Setup s;
  api::Client client(s.options(1));
  const api::Graph graph = api::Graph::parse(kText);
  const api::Plan old = client.get(graph, "sm_90a");
  client.stats();
  s.daemon.improve_all();
  uint64_t generation = 1;
  for (int i = 0; i < 1000 && generation == 1; ++i) {
    generation = client.get(graph, "sm_90a").info().generation;
    usleep(1000);
  }
  assert_int_equal(generation, 2);
}

void a_better_plan_that_cannot_be_fetched_is_no_error(void**) {
  std::string socket = temp_dir() / "s";
  std::optional<FakeDaemon> daemon(socket);
  quern_open_options options = api::open_options();
  options.flags = QUERN_NO_START;
  options.socket = socket.c_str();
  api::Client client(options);
  const api::Graph graph = api::Graph::parse(kText);
  const api::Plan old = client.get(graph, "sm_90a");
  client.stats();
  daemon->improve_all();
  while (client.process() == 0) usleep(1000);
  daemon.reset();
  assert_ptr_equal(client.get(graph, "sm_90a").get(), old.get());
  assert_ptr_equal(client.get(graph, "sm_90a").get(), old.get());
  quern_get_options refresh = api::get_options();
  refresh.flags = QUERN_REFRESH;
  assert_throws(QUERN_NO_DAEMON, socket.c_str(), [&] { client.get(graph, "sm_90a", refresh); });
}

void few_plans_are_kept_when_told(void**) {
  Setup s;
  quern_open_options options = s.options();
  options.max_plans = 2;
  api::Client client(options);
  std::vector<api::Plan> plans;
  for (const char* name : {"a", "b", "c", "a"})
    plans.push_back(client.get(
        api::Graph::parse("graph " + std::string(name) + "\nin x: f32[1]\ny = exp(x)\nout y\n"), "sm_90a"));
  assert_int_equal(s.daemon.counts().gets, 4);
  assert_ptr_not_equal(plans[0].get(), plans[3].get());
  assert_int_equal(plans[0].info().generation, 1);  // evicted, not ended
  client.stats();
  assert_int_equal(s.daemon.counts().unsubscribes, 2);
}

void threads_share_a_client_and_graphs(void**) {
  Setup s;
  api::Client client(s.options(1));
  std::vector<api::Graph> graphs;
  for (int i = 0; i < 5; ++i)
    graphs.push_back(
        api::Graph::parse("graph t" + std::to_string(i) + "\nin x: f32[1]\ny = exp(x)\nout y\n"));
  for (const api::Graph& graph : graphs) client.get(graph, "sm_90a");
  std::atomic<int> wrong{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      uint64_t generation = 0;
      for (size_t j = 0; !done; ++j) {
        const quern_plan_info info = client.get(graphs[i % 5], "sm_90a").info();
        wrong += info.output_count != 1 || info.generation < generation;
        generation = info.generation;
        if (j % 16 == 0) client.process();
      }
    });
  for (int i = 0; i < 20; ++i) {
    usleep(5000);
    s.daemon.improve_all();
    if (i % 5 == 4) s.daemon.drop_connections();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(wrong, 0);
  // After the last lost connection too, what was announced meanwhile is learnt.
  while (client.get(graphs[0], "sm_90a").info().generation <= 20) usleep(1000);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(builds_graphs),
      cmocka_unit_test(numbers_are_constants),
      cmocka_unit_test(gets_and_launches),
      cmocka_unit_test(pending_is_no_error),
      cmocka_unit_test(a_wait_can_be_cancelled),
      cmocka_unit_test(a_better_plan_is_swapped_in_after_process),
      cmocka_unit_test(a_better_plan_is_noticed_without_process),
      cmocka_unit_test(a_better_plan_that_cannot_be_fetched_is_no_error),
      cmocka_unit_test(few_plans_are_kept_when_told),
      cmocka_unit_test(threads_share_a_client_and_graphs),
  };
  return cmocka_run_group_tests_name("quern.hpp", tests, nullptr, nullptr);
}
