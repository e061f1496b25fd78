// The kernels of the emulator's tests on a real GPU, against the float reference. Skipped where there is no
// GPU or no NVRTC.
#include "core/codegen/baseline.h"
#include "core/jit/compiler.h"
#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "tests/codegen/kernel_cases.h"
#include "tests/support/random_graph.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Gpu {
  std::shared_ptr<const Driver> driver;
  std::unique_ptr<Device> device;
  std::unique_ptr<Compiler> compiler;
  const Target* target = nullptr;
};

Gpu& gpu() {
  static Gpu gpu;
  if (gpu.target) return gpu;
  auto driver = Driver::open();
  if (!driver) skip_test(driver.status().message());
  gpu.driver = *driver;
  auto device = Device::open(gpu.driver);
  if (!device) skip_test(device.status().message());
  gpu.device = std::move(*device);
  auto compiler = open_nvrtc("");
  if (!compiler) skip_test(compiler.status().message());
  gpu.compiler = std::move(*compiler);
  auto target = target_for_device(gpu.device->info().major, gpu.device->info().minor);
  if (!target) skip_test(target.status().message());
  gpu.target = *target;
  return gpu;
}

DeviceMemory allocate(size_t bytes) {
  auto memory = gpu().device->allocate(bytes);
  assert_ok(memory);
  assert_ok(memory->fill(0xff, nullptr));
  return *memory;
}

size_t bytes_of(const TensorDesc& desc) { return static_cast<size_t>(desc.span()) * dtype_size(desc.dtype); }

// Empty if the case is right.
std::string run_case(const EmulatedCase& test) {
  auto emitted = emit_baseline(test.graph, *gpu().target);
  if (!emitted) return emitted.status().message();
  auto output = gpu().compiler->compile({emitted->source, gpu().target->name, {}});
  if (!output) return output.status().message();
  emitted->plan.cubin = output->cubin;
  const Plan& plan = emitted->plan;

  std::vector<DeviceMemory> memory;
  std::vector<uint64_t> inputs, outputs;
  const std::vector<std::string> buffers = input_buffers(test, plan);
  for (const std::string& buffer : buffers) {
    memory.push_back(allocate(buffer.size()));
    assert_ok(memory.back().upload(buffer.data(), buffer.size()));
    inputs.push_back(memory.back().address());
  }
  for (const TensorDesc& desc : plan.outputs) {
    memory.push_back(allocate(bytes_of(desc)));
    outputs.push_back(memory.back().address());
  }
  const DeviceMemory workspace = allocate(plan.workspace_bytes);
  Launcher launcher(gpu().driver, std::make_shared<const Plan>(plan));
  const Status launched = launcher.launch({inputs, outputs, workspace.address()}, nullptr);
  if (!launched.ok()) return launched.message();
  std::vector<std::string> results;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    results.emplace_back(bytes_of(plan.outputs[i]), '\0');
    const Status status = memory[inputs.size() + i].download(results.back().data(), results.back().size());
    if (!status.ok()) return status.message();
  }
  return judge(test, plan, buffers, results);
}

void run(const std::vector<EmulatedCase>& cases) {
  gpu();
  int failures = 0;
  for (const EmulatedCase& test : cases) {
    const std::string wrong = run_case(test);
    if (wrong.empty()) continue;
    ++failures;
    print_error("%s: %s\n", test.label.c_str(), wrong.c_str());
  }
  print_message("%zu cases, %d wrong\n", cases.size(), failures);
  assert_int_equal(failures, 0);
}

void kernels_are_right(void**) {
  run(row_cases());
  run(product_cases());
  run(movement_cases());
}

void random_graphs_are_right(void**) {
  std::vector<EmulatedCase> cases;
  for (uint64_t seed = 1; seed <= 200; ++seed)
    cases.push_back({"seed " + std::to_string(seed), random_graph(seed), seed});
  run(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(kernels_are_right), cmocka_unit_test(random_graphs_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
