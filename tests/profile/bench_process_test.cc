// Programs that hang, crash and fault cost their process, never the one that measures.
#include "core/profile/bench_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/codegen/baseline.h"
#include "core/graph/text.h"
#include "core/profile/measure.h"
#include "tests/support/test.h"

namespace {

using namespace quern;
using std::chrono::milliseconds;

Graph test_graph() {
  auto graph = parse_graph("graph test\nin x: f32[8, 8]\ny = relu(x)\nout y\n");
  assert_ok(graph);
  return std::move(*graph);
}

Plan plan_of(const std::string& code) {
  auto emitted = emit_baseline(test_graph(), **find_target("sm_90a"));
  assert_ok(emitted);
  emitted->plan.cubin = code;
  return emitted->plan;
}

BenchProcessOptions options_with(std::vector<std::string> arguments = {}) {
  BenchProcessOptions options;
  options.command = {getenv("QUERN_FAKE_BENCH")};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.least = milliseconds(300);
  options.first = milliseconds(5000);
  return options;
}

std::unique_ptr<Bench> open(const BenchProcessOptions& options = options_with()) {
  auto bench = open_bench(test_graph(), options);
  assert_ok(bench);
  return std::move(*bench);
}

uint32_t add(Bench& bench, const std::string& code) {
  const auto id = bench.add(plan_of(code), false);
  assert_ok(id);
  return *id;
}

pid_t process_of(const Bench& bench) { return atoi(bench.device().c_str() + sizeof "process"); }

void calls_go_through(void**) {
  BenchProcessOptions options = options_with();
  options.bench.tf32 = true;
  const auto bench = open(options);
  assert_contains(bench->device(), ", tf32");
  const uint32_t slow = add(*bench, "20"), fast = add(*bench, "10");
  const auto check = bench->check(slow);
  assert_ok(check);
  assert_true(check->error == 1e-4 && check->largest == 0.5 && check->compared == 64 &&
              check->elements == 64);
  assert_string_equal(check->inputs.c_str(), "random, masked");
  const std::vector<uint32_t> both{fast, slow};
  const auto times = bench->time(both, 5);
  assert_ok(times);
  assert_int_equal(times->size(), 2);
  assert_int_equal((*times)[0].cold.size(), 5);
  assert_true((*times)[0].cold[4] < 11 && (*times)[1].cold[4] > 19 && (*times)[1].hot[0] < 11);
  const auto share = bench->disturbance();
  assert_ok(share);
  assert_true(*share == 0);
  // An error that the process survives.
  const pid_t before = process_of(*bench);
  assert_error(bench->check(add(*bench, "refused")), ErrorCode::CUDA, "too many registers");
  assert_ok(bench->check(slow));
  assert_int_equal(process_of(*bench), before);
}

void another_process_takes_over(void**) {
  const auto bench = open();
  const uint32_t right = add(*bench, "10");
  assert_ok(bench->check(right));
  const struct {
    const char *code, *error;
  } ends[] = {{"hang", "it hung: no answer in 0."},
              {"crash", "was killed by signal 11"},
              {"fault", "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  for (const auto& end : ends) {
    const pid_t before = process_of(*bench);
    const uint32_t bad = add(*bench, end.code);
    assert_error(bench->check(bad), ErrorCode::WORKER, end.error);
    bench->remove(bad);
    assert_int_not_equal(kill(before, 0), 0);  // it is gone
    assert_ok(bench->check(right));            // and what was loaded is there again
    assert_int_not_equal(process_of(*bench), before);
  }
  const uint32_t later = add(*bench, "hang_later");
  assert_ok(bench->check(later));
  assert_ok(bench->time({&right, 1}, 3));
  const std::vector<uint32_t> both{right, later};
  assert_error(bench->time(both, 3), ErrorCode::WORKER, "it hung");
  assert_ok(bench->time({&right, 1}, 3));
}

void there_may_be_no_gpu(void**) {
  assert_error(open_bench(test_graph(), options_with({"none"})), ErrorCode::NO_DEVICE, "there is no GPU 0");
  BenchProcessOptions nowhere = options_with();
  nowhere.command = {"/nowhere/quern-worker"};
  assert_error(open_bench(test_graph(), nowhere), ErrorCode::UNSUPPORTED,
               "cannot start /nowhere/quern-worker");
  // Lost in the middle.
  const auto bench = open(options_with({"once", (temp_dir() / "started").string()}));
  const uint32_t right = add(*bench, "10");
  assert_ok(bench->check(right));
  assert_error(bench->check(add(*bench, "crash")), ErrorCode::WORKER, "signal 11");
  assert_error(bench->check(right), ErrorCode::NO_DEVICE, "it fell off the bus");
  assert_error(bench->disturbance(), ErrorCode::NO_DEVICE);
}

void measuring_goes_on_without_the_bad_ones(void**) {
  const auto bench = open();
  std::vector<Program> programs{{"", "", 0, encode_plan(plan_of("20"))}};
  for (const char* code : {"hang", "15", "fault", "hang_later", "crash", "10"})
    programs.push_back({code, "", 0, encode_plan(plan_of(code))});
  MeasureOptions options;
  options.jobs = 1;
  const auto result = measure(test_graph(), **find_target("sm_90a"), programs, nullptr, *bench, options);
  assert_ok(result);
  assert_string_equal(decode_plan(result->plan)->cubin.c_str(), "10");
  int refused = 0;
  for (const ProgramTiming& timing : result->timings) refused += !timing.refusal.empty();
  assert_int_equal(refused, 4);
}

void it_dies_with_its_parent(void**) {
  int report[2];
  assert_int_equal(pipe(report), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto bench = open_bench(test_graph(), options_with());
    pid_t process = bench ? process_of(**bench) : 0;
    if (write(report[1], &process, sizeof process) < 0) _exit(1);
    const auto id = (*bench)->add(plan_of("hang"), false);
    (void)(*bench)->check(*id);
    _exit(0);
  }
  pid_t process = 0;
  assert_int_equal(read(report[0], &process, sizeof process), sizeof process);
  assert_true(process > 0);
  usleep(200000);
  assert_int_equal(kill(process, 0), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i, usleep(10000)) {
    // Whoever adopts it may not reap it, so a zombie is as good.
    char path[64], state = 0;
    std::snprintf(path, sizeof path, "/proc/%d/stat", process);
    if (FILE* stat = fopen(path, "r")) {
      if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
      fclose(stat);
    }
    gone = state == 0 || state == 'Z';
  }
  assert_true(gone);
}

// The real process, on the fake libcuda: its kernels write nothing, which is wrong.
void the_worker_serves_a_bench(void**) {
  BenchProcessOptions options;
  options.command = {getenv("QUERN_WORKER"), "--bench", "0"};
  const auto bench = open(options);
  assert_string_equal(bench->device().c_str(), "Fake GPU 0, driver 13000");
  const auto id = bench->add(plan_of("\177ELF"), false);
  assert_ok(id);
  const auto check = bench->check(*id);
  assert_ok(check);
  assert_contains(check->wrong, "random inputs: y [0, 0]: ");
  assert_ok(bench->time({&*id, 1}, 2));
  options.command = {getenv("QUERN_WORKER"), "--bench", "9"};
  assert_error(open_bench(test_graph(), options), ErrorCode::NO_DEVICE, "there is no GPU 9");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(calls_go_through),        cmocka_unit_test(another_process_takes_over),
      cmocka_unit_test(there_may_be_no_gpu),     cmocka_unit_test(measuring_goes_on_without_the_bad_ones),
      cmocka_unit_test(it_dies_with_its_parent), cmocka_unit_test(the_worker_serves_a_bench),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
