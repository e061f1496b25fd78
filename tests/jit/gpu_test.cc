// NVRTC, driver and launcher together on a real GPU; skipped where there is none.
#include <algorithm>
#include <chrono>
#include <vector>

#include "core/base/target.h"
#include "core/jit/compiler.h"
#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "core/jit/stream.h"
#include "tests/support/test.h"

namespace quern {

namespace {

constexpr int64_t kCount = 1 << 20;
constexpr uint32_t kThreads = 256;

// Two launches that only give y[i] = 2 x[i] + 3 if the workspace, the integer argument and the dynamic shared
// memory (all kThreads floats at its very end) arrive as they should.
constexpr char kSource[] = R"(
extern __shared__ float shared[];
extern "C" __global__ void twice(const float* x, float* w, long n, long last) {
  const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
  float* const mine = shared + last - threadIdx.x;
  *mine = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) w[i] = 2.0f * *mine;
}
extern "C" __global__ void plus(const float* w, float* y, long c) {
  const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
  y[i] = w[i] + static_cast<float>(c);
}
extern "C" __global__ void cluster_size(float* y) {
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<float>(blocks);
})";

struct Gpu {
  std::unique_ptr<Device> device;
  std::unique_ptr<Compiler> compiler;
  std::string target;
};

// The GPU and the compiler of this machine; skips the test when either is missing.
const Gpu& gpu() {
  static Gpu the;
  if (the.compiler) return the;
  Result<std::shared_ptr<const Driver>> driver = Driver::open();
  if (!driver) skip_test(driver.status().message());
  Result<std::unique_ptr<Compiler>> compiler = open_nvrtc("");
  if (!compiler) skip_test(compiler.status().message());
  Result<std::unique_ptr<Device>> device = Device::open(*driver);
  assert_ok(device);
  const Result<const Target*> target = target_for_device((*device)->info().major, (*device)->info().minor);
  assert_ok(target);
  const DeviceInfo& info = (*device)->info();
  print_message("%s, %s, %d SMs, %llu MiB L2, driver CUDA %d, %s\n", info.name.c_str(), (*target)->name,
                info.multiprocessors, static_cast<unsigned long long>(info.l2_bytes >> 20),
                (*driver)->version(), (*compiler)->fingerprint().c_str());
  assert_int_equal(info.shared_bytes_per_block, (*target)->shared_bytes_per_block);
  the.target = (*target)->name;
  the.device = std::move(*device);
  the.compiler = std::move(*compiler);
  return the;
}

std::string compile(const std::string& source) {
  const Result<CompileOutput> output = gpu().compiler->compile({source, gpu().target, {}});
  assert_ok(output);
  return output->cubin;
}

Plan plan_for(uint32_t shared_bytes) {
  using Kind = LaunchArg::Kind;
  Plan plan;
  plan.target = gpu().target;
  plan.cubin = compile(kSource);
  plan.inputs = {{"x", DType::f32, {kCount}, {1}}};
  plan.outputs = {{"y", DType::f32, {kCount}, {1}}};
  plan.workspace_bytes = 256 + kCount * sizeof(float);
  const Dim3 grid{static_cast<uint32_t>(kCount / kThreads), 1, 1}, block{kThreads, 1, 1}, one{};
  const int64_t last = shared_bytes / static_cast<int64_t>(sizeof(float)) - 1;
  plan.launches = {
      {"twice",
       grid,
       block,
       one,
       shared_bytes,
       {{Kind::input, 0}, {Kind::workspace, 256}, {Kind::integer, kCount}, {Kind::integer, last}}},
      {"plus", grid, block, one, 0, {{Kind::workspace, 256}, {Kind::output, 0}, {Kind::integer, 3}}}};
  return plan;
}

// The buffers of a plan of one input and one output, with x[i] = i % 1000 and a poisoned rest.
struct Buffers {
  DeviceMemory x, y, workspace;
  explicit Buffers(const Plan& plan) {
    std::vector<float> values(kCount);
    for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000);
    x = take(values.size() * sizeof(float));
    y = take(values.size() * sizeof(float));
    workspace = take(plan.workspace_bytes);
    assert_ok(x.upload(values.data(), x.size()));
    poison(nullptr);
  }
  void poison(void* stream) {
    assert_ok(y.fill(0xff, stream));
    assert_ok(workspace.fill(0xff, stream));
  }
  Status launch(Launcher* launcher, void* stream) const {
    const uint64_t inputs[] = {x.address()}, outputs[] = {y.address()};
    return launcher->launch({inputs, outputs, workspace.address()}, stream);
  }
  int64_t wrong_elements() const {
    std::vector<float> got(kCount);
    assert_ok(y.download(got.data(), y.size()));
    int64_t wrong = 0;
    for (int64_t i = 0; i < kCount; ++i) wrong += got[i] != 2.0f * static_cast<float>(i % 1000) + 3.0f;
    return wrong;
  }
  static DeviceMemory take(size_t bytes) {
    const Result<DeviceMemory> memory = gpu().device->allocate(bytes);
    assert_ok(memory);
    return *memory;
  }
};

std::unique_ptr<Launcher> launcher_for(Plan plan) {
  return std::make_unique<Launcher>(gpu().device->driver(), std::make_shared<const Plan>(std::move(plan)));
}

Stream new_stream() {
  const Result<Stream> stream = Stream::create(gpu().device->driver());
  assert_ok(stream);
  return *stream;
}

void a_plan_of_two_launches_computes(void**) {
  const auto launcher = launcher_for(plan_for(kThreads * sizeof(float)));
  Buffers buffers(launcher->plan());
  assert_ok(buffers.launch(launcher.get(), nullptr));
  assert_int_equal(buffers.wrong_elements(), 0);  // the download waits for the default stream
}

void all_the_shared_memory_of_a_block_can_be_used(void**) {
  const auto launcher = launcher_for(plan_for(gpu().device->info().shared_bytes_per_block));
  Buffers buffers(launcher->plan());
  assert_ok(buffers.launch(launcher.get(), nullptr));
  assert_int_equal(buffers.wrong_elements(), 0);
}

// Whether the module was loaded before the capture or is loaded inside it.
void capture_and_launch(bool load_first) {
  const auto launcher = launcher_for(plan_for(64 * 1024));
  const Stream stream = new_stream();
  Buffers buffers(launcher->plan());
  if (load_first) assert_ok(launcher->load(stream.handle()));
  const Result<CapturedGraph> graph =
      stream.capture([&] { return buffers.launch(launcher.get(), stream.handle()); });
  assert_ok(graph);
  for (int i = 0; i < 3; ++i) {
    buffers.poison(stream.handle());
    assert_ok(graph->launch(stream.handle()));
    assert_ok(stream.synchronize());
    assert_int_equal(buffers.wrong_elements(), 0);
  }
}
void a_loaded_plan_is_captured(void**) { capture_and_launch(true); }
void a_plan_is_loaded_while_capturing(void**) { capture_and_launch(false); }

// Clusters exist from compute capability 9.0 on. 16 blocks need an opt-in.
void clusters_have_the_size_asked_for(void**) {
  if (gpu().device->info().major != 9 && gpu().device->info().major != 10)
    skip_test("this GPU has no clusters of 16");
  for (uint32_t blocks : {1u, 2u, 8u, 16u}) {
    Plan plan = plan_for(0);
    plan.inputs.clear();
    plan.workspace_bytes = 0;
    plan.launches = {
        {"cluster_size", {16, 1, 1}, {32, 1, 1}, {blocks, 1, 1}, 0, {{LaunchArg::Kind::output, 0}}}};
    const auto launcher = launcher_for(plan);
    const DeviceMemory y = Buffers::take(kCount * sizeof(float));
    const uint64_t outputs[] = {y.address()};
    assert_ok(launcher->launch({{}, outputs, 0}, nullptr));
    std::vector<float> got(16);
    assert_ok(y.download(got.data(), got.size() * sizeof(float)));
    for (float value : got) assert_int_equal(value, blocks);
  }
}

void errors_come_back_as_values(void**) {
  Plan plan = plan_for(1024);
  plan.launches[1].kernel = "nowhere";
  assert_error(launcher_for(plan)->load(nullptr), ErrorCode::CUDA, "kernel nowhere: CUDA_ERROR_NOT_FOUND");
  plan = plan_for(1024);
  plan.cubin =
      "\177ELF but no cubin, though long enough to hold a header of the kind that a loader would read first";
  assert_error(launcher_for(plan)->load(nullptr), ErrorCode::CUDA, "CUDA_ERROR_");
  assert_error(launcher_for(plan_for(1 << 20))->load(nullptr), ErrorCode::CUDA, "bytes of shared memory");
  assert_error(gpu().device->allocate(size_t{1} << 50), ErrorCode::OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Prints what launching costs; fails only when time stands still.
void launching_takes_microseconds(void**) {
  const auto launcher = launcher_for(plan_for(1024));
  const Stream stream = new_stream();
  Buffers buffers(launcher->plan());
  const Result<Event> start = Event::create(gpu().device->driver()),
                      end = Event::create(gpu().device->driver());
  assert_ok(start);
  assert_ok(end);
  std::vector<double> loads, gpu_times;
  for (int i = 0; i < 20; ++i) {
    const auto fresh = launcher_for(launcher->plan());
    const auto before = std::chrono::steady_clock::now();
    assert_ok(fresh->load(stream.handle()));
    loads.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count());
  }
  constexpr int kLaunches = 200;
  for (int i = 0; i < kLaunches; ++i) {
    assert_ok(start->record(stream.handle()));
    assert_ok(buffers.launch(launcher.get(), stream.handle()));
    assert_ok(end->record(stream.handle()));
    assert_ok(end->wait());
    const Result<double> elapsed = end->microseconds_since(*start);
    assert_ok(elapsed);
    gpu_times.push_back(*elapsed);
  }
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) assert_ok(buffers.launch(launcher.get(), stream.handle()));
  const double host =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count() /
      kLaunches;
  assert_ok(stream.synchronize());
  print_message(
      "two kernels over 4 MiB: load %.1f us, launch %.2f us of host time, %.1f us on the GPU (medians)\n",
      median(loads), host, median(gpu_times));
  assert_true(median(gpu_times) > 0.0);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_plan_of_two_launches_computes),
      cmocka_unit_test(all_the_shared_memory_of_a_block_can_be_used),
      cmocka_unit_test(a_loaded_plan_is_captured),
      cmocka_unit_test(a_plan_is_loaded_while_capturing),
      cmocka_unit_test(clusters_have_the_size_asked_for),
      cmocka_unit_test(errors_come_back_as_values),
      cmocka_unit_test(launching_takes_microseconds),
  };
  return cmocka_run_group_tests_name("gpu", tests, nullptr, nullptr);
}
