// What a caller can do wrong, and what the emulator says about it.
#include "tests/emulator/run_support.h"
#include "tests/support/test.h"

namespace quern::emulated {

namespace {

constexpr const char* kCopy = R"(
extern "C" __global__ void kernel(const float* x, float* y) {
  __shared__ float unused[64];
  unused[threadIdx.x] = 0;
  y[threadIdx.x] = x[threadIdx.x];
})";

Program& copy_program() {
  static auto program = compile_program({kCopy, {"kernel"}});
  assert_ok(program);
  return *program;
}
Plan copy_plan() {
  return make_plan({make_tensor("x", DType::f32, 64)}, {make_tensor("y", DType::f32, 64)}, {1}, {64});
}
const std::string kInput(256, '\x3f');

void copies(void**) {
  auto outputs = run_plan(copy_program(), copy_plan(), {kInput});
  assert_ok(outputs);
  assert_text_equal(outputs->front(), kInput);
}

void refuses_wrong_inputs(void**) {
  assert_error(run_plan(copy_program(), copy_plan(), std::vector<std::string>{}), ErrorCode::INVALID_ARGUMENT,
               "the plan has 1 inputs, but 0 were given");
  assert_error(run_plan(copy_program(), copy_plan(), {kInput + "x"}), ErrorCode::INVALID_ARGUMENT,
               "input 0 `x` has 256 bytes, but 257 were given");
}

void refuses_launches_that_do_not_fit_the_kernel(void**) {
  Plan plan = copy_plan();
  plan.launches[0].kernel = "other";
  assert_error(run_plan(copy_program(), plan, {kInput}), ErrorCode::INVALID_ARGUMENT, "no such kernel");
  plan = copy_plan();
  plan.launches[0].args.push_back({LaunchArg::Kind::integer, 1});
  assert_error(run_plan(copy_program(), plan, {kInput}), ErrorCode::INVALID_ARGUMENT,
               "the kernel has 2 parameters, the launch 3 arguments");
  plan = copy_plan();
  plan.launches[0].args[0].value = 1;
  assert_error(run_plan(copy_program(), plan, {kInput}), ErrorCode::INVALID_ARGUMENT,
               "argument 0 names no tensor");
  plan = copy_plan();
  plan.launches[0].args[0] = {LaunchArg::Kind::workspace, 1};
  assert_error(run_plan(copy_program(), plan, {kInput}), ErrorCode::INVALID_ARGUMENT,
               "argument 0 is beyond the workspace");
}

void refuses_launches_that_no_gpu_can_do(void**) {
  const auto refused = [](void (*change)(Launch&), ErrorCode code, const char* text) {
    Plan plan = copy_plan();
    change(plan.launches[0]);
    assert_error(run_plan(copy_program(), plan, {kInput}), code, text);
  };
  refused([](Launch& launch) { launch.grid.y = 0; }, ErrorCode::INVALID_ARGUMENT, "grid");
  refused([](Launch& launch) { launch.grid.z = 65536; }, ErrorCode::INVALID_ARGUMENT, "grid");
  refused([](Launch& launch) { launch.block.y = 17; }, ErrorCode::INVALID_ARGUMENT, "block");
  refused([](Launch& launch) { launch.block.x = 0; }, ErrorCode::INVALID_ARGUMENT, "block");
  refused([](Launch& launch) { launch.cluster.x = 2; }, ErrorCode::INVALID_ARGUMENT, "cluster");
  // sm_80 has 163 KiB, of which the kernel's own array takes 256 bytes.
  refused([](Launch& launch) { launch.shared_bytes = 163 * 1024 - 255; }, ErrorCode::INVALID_ARGUMENT,
          "shared memory");
  Plan plan = copy_plan();
  plan.launches[0].shared_bytes = 163 * 1024 - 256;
  assert_ok(run_plan(copy_program(), plan, {kInput}));
}

void refuses_text_that_does_not_compile(void**) {
  auto program =
      compile_program({"extern \"C\" __global__ void kernel(float* y) {\n  y[0] = oops;\n}", {"kernel"}});
  assert_error(program, ErrorCode::COMPILE, "program_0.cu:2:10: error: ");
  program = compile_program({kCopy, {"kernel", "missing"}});
  assert_error(program, ErrorCode::COMPILE, "missing");
  program = compile_program({"extern \"C\" __global__ void kernel(int n) {}", {"kernel"}});
  assert_error(program, ErrorCode::COMPILE, "kernel parameters are pointers, 64-bit integers or tensor maps");
}

void says_that_there_is_no_compiler(void**) {
  const char* before = getenv("CXX");
  const std::string kept = before ? before : "";
  setenv("CXX", "/no/such/compiler -O0", 1);
  auto program = compile_program({kCopy, {"kernel"}});
  before ? setenv("CXX", kept.c_str(), 1) : unsetenv("CXX");
  assert_error(program, ErrorCode::NOT_FOUND, "the C++ compiler `/no/such/compiler` cannot be started");
}

void says_that_there_is_no_temporary_directory(void**) {
  const char* before = getenv("TMPDIR");
  const std::string kept = before ? before : "";
  setenv("TMPDIR", "/no/such/directory", 1);
  auto program = compile_program({kCopy, {"kernel"}});
  before ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
  assert_error(program, ErrorCode::IO, "no temporary directory can be made");
}

// Equal names in programs of one batch stay apart, whatever they call.
void keeps_programs_apart(void**) {
  std::vector<ProgramSource> sources;
  for (int i = 0; i < 20; ++i)
    sources.push_back({"__device__ float value() { return " + std::to_string(i) +
                           "; }\nextern \"C\" __global__ void kernel(const float* x, float* y) {\n  "
                           "__shared__ float tile[" +
                           std::to_string(i + 1) + "];\n  tile[" + std::to_string(i) +
                           "] = value();\n  y[0] = tile[" + std::to_string(i) + "];\n}",
                       {"kernel"}});
  auto programs = compile_programs(sources);
  assert_ok(programs);
  assert_int_equal(programs->size(), 20);
  Plan plan = make_plan({make_tensor("x", DType::f32, 1)}, {make_tensor("y", DType::f32, 1)}, {1}, {1});
  for (int i = 0; i < 20; ++i) {
    auto outputs = run_plan((*programs)[i], plan, {std::string(4, '\0')});
    assert_ok(outputs);
    assert_true(load_element(outputs->front().data(), DType::f32, 0) == i);
    assert_text_equal((*programs)[i].text, sources[i].text);
  }
}

// A message must lead to the fault: kernel, block, thread, line with its text, buffer and offset.
void says_where_a_rule_was_broken(void**) {
  auto program = compile_program({R"(// line 1
extern "C" __global__ void kernel(const float* x, float* y) {
  if (threadIdx.y == 1 && blockIdx.y == 2)
    y[17] = x[1];
})",
                                  {"kernel"}});
  assert_ok(program);
  Plan plan = make_plan({make_tensor("x", DType::f32, 2)}, {make_tensor("y", DType::f32, 2)}, {1, 3}, {1, 2});
  auto outputs = run_plan(*program, plan, {std::string(8, '\0')});
  assert_error(outputs, ErrorCode::INTERNAL);
  assert_text_equal(outputs.status().message(),
                    "launch 0 (kernel): block (0,2,0), thread (0,1,0), line 4 `y[17] = x[1];`: "
                    "out-of-bounds write of 4 bytes at output 0 `y` (8 bytes) at offset 68");
}

}  // namespace

}  // namespace quern::emulated

int main() {
  using namespace quern::emulated;
  const CMUnitTest tests[] = {
      cmocka_unit_test(copies),
      cmocka_unit_test(refuses_wrong_inputs),
      cmocka_unit_test(refuses_launches_that_do_not_fit_the_kernel),
      cmocka_unit_test(refuses_launches_that_no_gpu_can_do),
      cmocka_unit_test(refuses_text_that_does_not_compile),
      cmocka_unit_test(says_that_there_is_no_compiler),
      cmocka_unit_test(says_that_there_is_no_temporary_directory),
      cmocka_unit_test(keeps_programs_apart),
      cmocka_unit_test(says_where_a_rule_was_broken),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
