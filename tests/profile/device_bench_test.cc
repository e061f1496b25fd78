// The bench of a GPU on the fake libcuda, whose kernels are functions of this file: right ones, and those
// that break each of the rules.
#include "core/profile/device_bench.h"

#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <map>

#include "core/graph/text.h"
#include "core/jit/device.h"
#include "core/jit/library.h"
#include "core/profile/guarded.h"
#include "core/profile/measure.h"
#include "core/profile/reference_program.h"
#include "core/verify/reference.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr int kElements = 8 * 40;
constexpr int kIllegalAddress = 700;

const char* kGraph = "graph test\nin x: f32[8, 40]\ny = relu(x)\nout y\n";

Graph test_graph(const char* text = kGraph) {
  auto graph = parse_graph(text);
  assert_ok(graph);
  return std::move(*graph);
}

int launches = 0;  // of all kernels
std::vector<std::string> ran;
std::map<const float*, std::vector<float>> inputs_seen;  // by address

// The kernels of a reference program, by the library: their text runs in the emulator in
// reference_program_test.
int wanted_cases = 0;
void want(const float* x, const int32_t* flags, WantedElement* out) {
  ++wanted_cases;
  const std::vector<Expected> expected =
      expect_outputs(test_graph(), {read_buffer(test_graph().input_descs()[0], x)}, flags[1] != 0);
  for (size_t i = 0; i < kElements; ++i)
    out[i] = {expected[0].exact[i], expected[0].bound[i], static_cast<int32_t>(expected[0].demand[i]), 0};
}
void compare_parts(const WantedElement* wanted, const float* y, ComparedPart* parts) {
  for (int thread = 0; thread < 3 * 128; ++thread) {
    ComparedPart& part = parts[thread] = {-1, 0, 0, 0, 0};
    if (thread >= kElements) continue;
    const WantedElement& one = wanted[thread];
    const double is = static_cast<double>(y[thread]);
    if (!noise::meets(static_cast<Demand>(one.demand), DType::f32, is, one.exact, one.bound))
      part.first = thread;
    const double difference = std::fabs(is - one.exact);
    if (std::isfinite(difference))
      part = {part.first, difference * difference, 0, one.exact * one.exact, difference / one.bound};
  }
}

// The kernels: relu of the first argument into the second; the third is the workspace.
int run_kernel(const char* kernel, const unsigned long long* arguments, int count) {
  ++launches;
  const std::string name = kernel;
  ran.push_back(name);
  if (count == 0) return 0;
  if (name == "want0")
    return want(reinterpret_cast<float*>(arguments[1]), reinterpret_cast<int32_t*>(arguments[2]),
                reinterpret_cast<WantedElement*>(arguments[3])),
           0;
  if (name == "compare0")
    return compare_parts(reinterpret_cast<WantedElement*>(arguments[0]),
                         reinterpret_cast<float*>(arguments[1]),
                         reinterpret_cast<ComparedPart*>(arguments[2])),
           0;
  auto* x = reinterpret_cast<float*>(arguments[0]);
  auto* y = reinterpret_cast<float*>(arguments[1]);
  if (name == "faults") return kIllegalAddress;
  inputs_seen[x].assign(x, x + kElements);
  for (int i = 0; i < kElements; ++i) {
    if (name == "leaves_one" && i == kElements - 1) continue;
    y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
    if (name == "gives_nan" && i == 17) y[i] = NAN;
    if (name == "one_wrong" && i == 201) y[i] += 1e-3f;
    if (name == "wrong_at_infinity" && std::isinf(x[i])) y[i] = 7;
  }
  if (name == "writes_behind") y[kElements] = 0;
  if (name == "writes_before") y[-3] = 0;
  if (name == "writes_input") x[5] += 1;
  if (name == "leaves_workspace") reinterpret_cast<char*>(arguments[2])[100] = 1;
  return 0;
}

Plan plan_of(const std::string& kernel, const Graph& graph = test_graph()) {
  Plan plan;
  plan.target = "sm_90a";
  plan.inputs = graph.input_descs();
  plan.outputs = graph.output_descs();
  plan.workspace_bytes = 100;
  using Kind = LaunchArg::Kind;
  plan.launches = {{kernel, {}, {}, {}, 0, {{Kind::input, 0}, {Kind::output, 0}, {Kind::workspace, 0}}}};
  plan.cubin = "FAKE" + kernel + ":3";
  return plan;
}

struct Steering {
  decltype(&fake_cuda_on_launch) on_launch = nullptr;
  decltype(&fake_cuda_fail_once) fail_once = nullptr;
  decltype(&fake_cuda_log) log = nullptr;
  decltype(&fake_cuda_clear_log) clear = nullptr;
};
const Steering& steering() {
  static const Steering the = [] {
    Steering found;
    const Result<Library> library = Library::open(getenv("QUERN_LIBCUDA"));
    assert_ok(library);
    assert_ok(library->bind("fake_cuda_on_launch", found.on_launch));
    assert_ok(library->bind("fake_cuda_fail_once", found.fail_once));
    assert_ok(library->bind("fake_cuda_log", found.log));
    assert_ok(library->bind("fake_cuda_clear_log", found.clear));
    return found;
  }();
  return the;
}

std::unique_ptr<Bench> open(const DeviceBenchOptions& options = {}) {
  steering().on_launch(run_kernel);
  auto bench = open_device_bench(test_graph(), options);
  assert_ok(bench);
  return std::move(*bench);
}

Bench::Check check_of(Bench& bench, const std::string& kernel) {
  const auto id = bench.add(plan_of(kernel), false);
  assert_ok(id);
  const auto check = bench.check(*id);
  assert_ok(check);
  bench.remove(*id);
  return *check;
}

void a_right_program_is_compared_in_all_elements(void**) {
  const auto bench = open();
  assert_string_equal(bench->device().c_str(), "Fake GPU 0, driver 13000");
  const Bench::Check check = check_of(*bench, "right");
  assert_string_equal(check.wrong.c_str(), "");
  assert_int_equal(check.elements, kElements);
  assert_int_equal(check.compared, kElements);
  assert_string_equal(check.inputs.c_str(),
                      "random, masked, lowest, special, logits, offset, constant, tiny, huge");
}

// Where the reference takes too long the certificate says so, and a sample is compared.
void a_sample_is_compared_when_time_is_short(void**) {
  const auto bench = open({.threads = 1, .reference_limit = std::chrono::milliseconds(0)});
  const Bench::Check check = check_of(*bench, "right");
  assert_string_equal(check.wrong.c_str(), "");
  assert_int_equal(check.elements, kElements);
  assert_int_equal(check.compared, 1);
  assert_contains(check_of(*bench, "leaves_one").wrong, "random inputs: y [7, 39]: ");
}

void each_broken_rule_is_named(void**) {
  const auto bench = open();
  const struct {
    const char *kernel, *wrong;
  } rules[] = {
      {"writes_behind", "random inputs: output y: it wrote 4 bytes, from 0 bytes behind its end on"},
      {"writes_before", "output y: it wrote 4 bytes, from 12 bytes before its beginning on"},
      {"writes_input", "random inputs: input x: it was written"},
      {"leaves_workspace", "the workspace: it wrote 1 bytes, from 0 bytes behind its end on"},
      {"gives_nan", "random inputs: y [0, 17]: nan instead of"},
      {"one_wrong", "random inputs: y [5, 1]: "},
      {"leaves_one", "random inputs: y [7, 39]: -nan instead of"},
      {"wrong_at_infinity", " inputs: y ["},
  };
  for (const auto& rule : rules) assert_contains(check_of(*bench, rule.kernel).wrong, rule.wrong);
  assert_string_equal(check_of(*bench, "right").wrong.c_str(), "");  // and nothing of it stays
}

void memory_is_looked_at_in_pieces(void**) {
  auto driver = Driver::open();
  assert_ok(driver);
  auto device = Device::open(*driver);
  assert_ok(device);
  const auto pieces = HostMemory::allocate(*driver, 64);
  assert_ok(pieces);
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * i);
  auto memory = GuardedMemory::allocate(**device, bytes.size());
  assert_ok(memory);
  assert_ok(memory->upload(bytes));
  auto holds = [&](const std::string& wanted) {
    const Result<bool> same = memory->holds(wanted, *pieces);
    assert_ok(same);
    return *same;
  };
  assert_true(holds(bytes));
  for (const size_t at : {0, 63, 64, 700, 999}) {
    std::string other = bytes;
    other[at] ^= 1;
    assert_false(holds(other));
  }
}

// The same with the reference on the GPU, kept for all cases or computed for each check.
void the_reference_may_be_on_the_gpu(void**) {
  auto reference = emit_reference(test_graph(), **find_target("sm_90a"));
  assert_ok(reference);
  reference->evaluate.cubin = reference->compare.cubin = "FAKEwant0:4 compare0:3";
  DeviceBenchOptions options;
  options.reference = encode_reference(*reference);
  options.tf32 = true;
  for (const bool kept : {true, false}) {
    // 9 cases of 2 kinds, of 7,680 bytes each, are more than 60 % of a twentieth of a MiB.
    setenv("FAKE_CUDA_FREE_MB", "1", 1);
    options.memory_share = kept ? 1 : 0.08;
    wanted_cases = 0;
    const auto bench = open(options);
    assert_int_equal(wanted_cases, kept ? 18 : 0);
    const Bench::Check check = check_of(*bench, "right");
    assert_string_equal(check.wrong.c_str(), "");
    assert_int_equal(check.compared, kElements);
    assert_int_equal(wanted_cases, kept ? 18 : 9);
    assert_contains(check_of(*bench, "gives_nan").wrong, "random inputs: y [0, 17]: nan instead of");
    assert_contains(check_of(*bench, "one_wrong").wrong, "random inputs: y [5, 1]: ");
    assert_contains(check_of(*bench, "wrong_at_infinity").wrong, " inputs: y [");
    assert_contains(check_of(*bench, "writes_input").wrong, "input x: it was written");
    assert_string_equal(check_of(*bench, "right").wrong.c_str(), "");
  }
  unsetenv("FAKE_CUDA_FREE_MB");
}

void times_are_of_one_launch(void**) {
  const auto bench = open();
  std::vector<uint32_t> ids;
  for (int i = 0; i < 3; ++i) {
    const auto id = bench->add(plan_of("right"), false);
    assert_ok(id);
    ids.push_back(*id);
  }
  const auto times = bench->time(ids, 5);
  assert_ok(times);
  assert_int_equal(times->size(), 3);
  for (const Bench::Time& time : *times) {
    assert_int_equal(time.cold.size(), 5);
    assert_int_equal(time.hot.size(), 5);
    // The fake clock goes on by 10 us from event to event, whatever is between them.
    assert_true(std::fabs(time.hot[0] - 10.0 / 40) < 1e-6);
    assert_true(std::fabs(time.cold[0] - 10.0 / 1000) < 1e-6);
  }
  launches = 0;
  inputs_seen.clear();
  assert_ok(bench->time(ids, 2));
  assert_int_equal(launches, 2 * 3 * (40 + 1000));  // nothing is captured or warmed again
  assert_int_equal(inputs_seen.size(), 1000);
  for (const auto& [address, values] : inputs_seen)
    assert_memory_equal(values.data(), inputs_seen.begin()->second.data(), kElements * sizeof(float));
  assert_true(inputs_seen.begin()->second[0] != inputs_seen.begin()->second[1]);
}

// What is in front of a part runs first, and is not timed.
void a_part_is_timed_behind_what_it_reads(void**) {
  const auto bench = open();
  Plan plan = plan_of("right");
  plan.launches = {plan.launches[0], plan.launches[0], plan.launches[0]};
  plan.launches[0].kernel = "first";
  plan.launches[2].kernel = "last";
  plan.cubin = "FAKEfirst:3 right:3 last:3";
  const auto whole = bench->add(plan, false), part = bench->add(plan, false, {1, 2}),
             end = bench->add(plan, false, {2});
  for (const auto* id : {&whole, &part, &end}) assert_ok(*id);
  assert_ok(bench->time({&*part, 1}, 1));
  ran.clear();
  const auto times = bench->time({&*part, 1}, 3);
  assert_ok(times);
  assert_int_equal(times->at(0).cold.size(), 3);
  assert_true(std::fabs(times->at(0).cold[0] - 10.0) < 1e-6 && std::fabs(times->at(0).hot[0] - 10.0) < 1e-6);
  // In each round whole plans, what is in front of the part, the part, and the part again.
  assert_int_equal(ran.size() % 3, 0);
  const std::vector<std::string> round(ran.begin(), ran.begin() + static_cast<ptrdiff_t>(ran.size() / 3));
  const std::vector<std::string> last(round.end() - 6, round.end());
  assert_true(last == std::vector<std::string>({"first", "right", "last", "first", "right", "right"}));
  assert_int_equal(round.size() % 3, 0);
  assert_error(bench->add(plan, false, {3}), ErrorCode::INVALID_ARGUMENT, "3 launches has no launch 3");
  for (const auto* id : {&whole, &part, &end}) bench->remove(**id);
}

void faults_and_a_lack_of_memory_are_errors(void**) {
  auto bench = open();
  const auto id = bench->add(plan_of("right"), false);
  assert_ok(id);
  steering().fail_once("cuMemAlloc_v2", 2);
  assert_error(bench->check(*id), ErrorCode::OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
  steering().fail_once("cuLaunchKernelEx", 1);
  assert_error(bench->check(*id), ErrorCode::CUDA, "CUDA_ERROR_INVALID_VALUE");
  assert_ok(bench->check(*id));
  const auto faults = bench->add(plan_of("faults"), false);
  assert_ok(faults);
  assert_error(bench->check(*faults), ErrorCode::WORKER, "it faulted: waiting for the GPU");
  Plan large = plan_of("right");
  steering().on_launch(run_kernel);
  large.workspace_bytes = 1ull << 50;
  const auto too_large = bench->add(large, false);
  assert_ok(too_large);
  assert_error(bench->check(*too_large), ErrorCode::OUT_OF_MEMORY, "above the limit");
  assert_error(
      bench->add(
          plan_of("right", test_graph("graph two\nin x: f32[2]\nin y: f32[2]\nz = add(x, y)\nout z\n")),
          false),
      ErrorCode::INVALID_ARGUMENT, "not of this graph");
}

void use_by_others_is_a_disturbance(void**) {
  const auto alone = open()->disturbance();
  assert_ok(alone);
  assert_true(*alone < 0.01);
  const std::string nowhere = getenv("QUERN_LIBNVML");
  setenv("QUERN_LIBNVML", getenv("QUERN_FAKE_NVML"), 1);
  setenv("FAKE_NVML_USE", "70", 1);
  const auto shared = open()->disturbance();
  setenv("QUERN_LIBNVML", nowhere.c_str(), 1);
  assert_ok(shared);
  assert_true(*shared == 0.7);
}

void memory_is_bounded_and_given_back(void**) {
  setenv("FAKE_CUDA_FREE_MB", "400", 1);
  {
    const auto bench = open({.memory_share = 0.5});
    const auto id = bench->add(plan_of("right"), false);
    assert_ok(id);
    assert_ok(bench->time({&*id, 1}, 1));
  }
  {
    const auto bench = open({.memory_share = 0.2});  // less than the L2 cache asks for
    const auto id = bench->add(plan_of("right"), false);
    assert_ok(id);
    assert_ok(bench->check(*id));
    assert_error(bench->time({&*id, 1}, 1), ErrorCode::OUT_OF_MEMORY, "two sets of buffers");
  }
  unsetenv("FAKE_CUDA_FREE_MB");
}

void it_says_why_there_is_no_gpu(void**) {
  assert_error(open_device_bench(test_graph(), {.device = 7}), ErrorCode::NO_DEVICE, "there is no GPU 7");
  const std::string path = getenv("QUERN_LIBCUDA");
  setenv("QUERN_LIBCUDA", "/nowhere/libcuda.so", 1);
  assert_error(open_device_bench(test_graph(), {}), ErrorCode::NO_DEVICE, "no usable CUDA driver");
  setenv("QUERN_LIBCUDA", path.c_str(), 1);
}

// What measure() makes of it: nothing that breaks a rule wins.
void measuring_takes_the_right_one(void**) {
  const auto bench = open();
  std::vector<Program> programs{{"", "", 0, encode_plan(plan_of("right"))}};
  for (const char* kernel : {"writes_behind", "writes_input", "gives_nan", "one_wrong", "wrong_at_infinity"})
    programs.push_back({kernel, "", 0, encode_plan(plan_of(kernel))});
  MeasureOptions options;
  options.most_disturbance = 1;
  const auto result = measure(test_graph(), **find_target("sm_90a"), programs, nullptr, *bench, options);
  assert_ok(result);
  assert_true(result->winner.is_baseline());
  for (const ProgramTiming& timing : result->timings)
    if (timing.refusal.empty() != (timing.program == Program{}.name())) fail_test(result->report);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_right_program_is_compared_in_all_elements),
      cmocka_unit_test(a_sample_is_compared_when_time_is_short),
      cmocka_unit_test(each_broken_rule_is_named),
      cmocka_unit_test(memory_is_looked_at_in_pieces),
      cmocka_unit_test(the_reference_may_be_on_the_gpu),
      cmocka_unit_test(times_are_of_one_launch),
      cmocka_unit_test(a_part_is_timed_behind_what_it_reads),
      cmocka_unit_test(faults_and_a_lack_of_memory_are_errors),
      cmocka_unit_test(use_by_others_is_a_disturbance),
      cmocka_unit_test(memory_is_bounded_and_given_back),
      cmocka_unit_test(it_says_why_there_is_no_gpu),
      cmocka_unit_test(measuring_takes_the_right_one),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
