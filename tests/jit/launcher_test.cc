// The launcher, the driver and what surrounds it, against the fake libcuda.
#include "core/jit/launcher.h"

#include <stdlib.h>

#include <thread>

#include "core/jit/device.h"
#include "core/jit/stream.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/test.h"

namespace quern {

namespace {

std::string fake_path() { return getenv("QUERN_FAKE_CUDA"); }

// The steering functions of the fake library.
struct Steering {
  decltype(&fake_cuda_log) log = nullptr;
  decltype(&fake_cuda_clear_log) clear = nullptr;
  decltype(&fake_cuda_fail_once) fail_once = nullptr;
};
const Steering& steering() {
  static const Steering the = [] {
    Steering found;
    const Result<Library> library = Library::open(fake_path());
    assert_ok(library);
    assert_ok(library->bind("fake_cuda_log", found.log));
    assert_ok(library->bind("fake_cuda_clear_log", found.clear));
    assert_ok(library->bind("fake_cuda_fail_once", found.fail_once));
    return found;
  }();
  return the;
}
std::string log_text() { return steering().log(); }
size_t count_in_log(const std::string& part) {
  const std::string text = log_text();
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::shared_ptr<const Driver> driver() {
  Result<std::shared_ptr<const Driver>> opened = Driver::open(fake_path());
  assert_ok(opened);
  return *opened;
}

int set_up(void**) {
  setenv("FAKE_CUDA_DEVICES", "2", 1);
  steering().clear();
  return 0;
}

TensorDesc vector_of(const char* name, int64_t length) { return {name, DType::f32, {length}, {1}}; }

// Two kernels: the first by a cluster of 16 blocks with much shared memory, the second small.
Plan two_kernel_plan() {
  Plan plan;
  plan.target = "sm_90a";
  plan.cubin = "FAKE first:3 second:3 ";
  plan.inputs = {vector_of("x", 8)};
  plan.outputs = {vector_of("y", 8)};
  plan.workspace_bytes = 512;
  using Kind = LaunchArg::Kind;
  plan.launches = {{"first",
                    {16, 2, 1},
                    {128, 1, 1},
                    {16, 1, 1},
                    100000,
                    {{Kind::input, 0}, {Kind::workspace, 256}, {Kind::integer, -7}}},
                   {"second",
                    {1, 1, 1},
                    {32, 1, 1},
                    {1, 1, 1},
                    0,
                    {{Kind::workspace, 0}, {Kind::output, 0}, {Kind::integer, 8}}}};
  return plan;
}

constexpr uint64_t kX = 0x1000, kY = 0x2000, kWorkspace = 0x3000;
constexpr char kBothLaunches[] =
    "launch first grid 16,2,1 block 128,1,1 cluster 16,1,1 shared 100000 args 4096 12544 "
    "18446744073709551609\n"
    "launch second grid 1,1,1 block 32,1,1 shared 0 args 12288 8192 8\n";

Status launch_on(Launcher* launcher, void* stream) {
  const uint64_t inputs[] = {kX}, outputs[] = {kY};
  return launcher->launch({inputs, outputs, kWorkspace}, stream);
}

std::unique_ptr<Launcher> launcher_for(Plan plan) {
  return std::make_unique<Launcher>(driver(), std::make_shared<const Plan>(std::move(plan)));
}

std::unique_ptr<Device> open_device(int ordinal) {
  Result<std::unique_ptr<Device>> device = Device::open(driver(), ordinal);
  assert_ok(device);
  return std::move(*device);
}

void launches_carry_grid_cluster_shared_memory_and_arguments(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_ok(launch_on(launcher.get(), nullptr));
  assert_text_equal(
      log_text(),
      std::string("load in context 1\nset first attribute 14 to 1\nset first attribute 8 to 100000\n") +
          kBothLaunches);
}

// The division of L1 cache and shared memory stays while launches overlap.
void kernels_that_overlap_ask_for_one_division_of_l1_and_shared_memory(void**) {
  const auto device = open_device(0);
  Plan plan = two_kernel_plan();
  plan.launches[1].overlaps = true;
  assert_ok(launcher_for(plan)->load(nullptr));
  assert_text_equal(log_text().substr(0, log_text().find("unload")),
                    "load in context 1\nset first attribute 9 to 100\nset first attribute 14 to 1\n"
                    "set second attribute 9 to 100\nset first attribute 8 to 100000\n");
}

// Of 132 SMs with 228 KiB each.
void blocks_that_overlap_are_spread_evenly(void**) {
  const auto device = open_device(0);
  struct Case {
    uint32_t blocks, shared_bytes, asked;
  };
  // One block an SM where two would fit, two where three would, three where four would; small blocks and those of
  // which no more fit ask for what they need.
  for (const Case& each :
       {Case{128, 98304, 115840}, Case{132, 98304, 115840}, Case{256, 65600, 76928}, Case{300, 40000, 57472},
        Case{0, 98304, 115840}, Case{256, 4096, 4096}, Case{1000, 65600, 65600}}) {
    Plan plan = two_kernel_plan();
    Launch& launch = plan.launches[0];
    launch.grid = {each.blocks, 1, 1};
    launch.cluster = {1, 1, 1};
    launch.shared_bytes = each.shared_bytes;
    for (const bool overlaps : {true, false}) {
      launch.overlaps = overlaps;
      steering().clear();
      assert_ok(launch_on(launcher_for(plan).get(), nullptr));
      const std::string asked = std::to_string(overlaps ? each.asked : each.shared_bytes);
      assert_int_equal(count_in_log("set first attribute 8 to " + asked + "\n"), 1);
      assert_int_equal(count_in_log("shared " + asked + " args"), each.blocks > 0 ? 1 : 0);
    }
  }
}

// Of eight GPCs of 16 or 17 SMs, each of which has room for as many clusters as it has blocks for.
void clusters_that_overlap_are_spread_as_evenly_as_gpcs_let_them(void**) {
  const auto device = open_device(0);
  struct Case {
    uint32_t clusters, blocks_of_each, shared_bytes, asked;
  };
  // One block an SM; two, as GPCs of 17 SMs leave one free; three where one more does not fit; as many as there is room for.
  for (const Case& each : {Case{64, 2, 70000, 115840}, Case{65, 2, 70000, 76928}, Case{16, 8, 40000, 115840},
                           Case{17, 8, 40000, 76928}, Case{66, 4, 57472, 57472}, Case{200, 4, 57472, 57472},
                           Case{4, 2, 4096, 4096}}) {
    Plan plan = two_kernel_plan();
    Launch& launch = plan.launches[0];
    launch.grid = {each.clusters * each.blocks_of_each, 1, 1};
    launch.cluster = {each.blocks_of_each, 1, 1};
    launch.shared_bytes = each.shared_bytes;
    launch.overlaps = true;
    steering().clear();
    assert_ok(launch_on(launcher_for(plan).get(), nullptr));
    assert_int_equal(count_in_log("overlapping shared " + std::to_string(each.asked) + " args"), 1);
  }
}

void clusters_of_which_the_driver_knows_nothing_ask_for_what_they_need(void**) {
  const auto device = open_device(0);
  Plan plan = two_kernel_plan();
  plan.launches[0].overlaps = true;
  steering().fail_once("cuOccupancyMaxActiveClusters", 1);
  assert_ok(launch_on(launcher_for(plan).get(), nullptr));
  assert_int_equal(count_in_log("cluster 16,1,1 overlapping shared 100000"), 1);
}

// Asking for the share of the second one lowers the limit that the first one needs.
void a_kernel_that_is_launched_twice_may_have_what_either_asks_for(void**) {
  const auto device = open_device(0);
  Plan plan = two_kernel_plan();
  plan.launches[1] = plan.launches[0];
  for (const uint32_t clusters : {64, 65}) {
    Launch& launch = plan.launches[clusters - 64];
    launch.grid = {2 * clusters, 1, 1};
    launch.cluster = {2, 1, 1};
    launch.shared_bytes = 70000;
    launch.overlaps = true;
  }
  assert_ok(launch_on(launcher_for(plan).get(), nullptr));
  assert_int_equal(count_in_log("overlapping shared 115840 args"), 1);
  assert_int_equal(count_in_log("overlapping shared 76928 args"), 1);
}

void tensor_maps_are_encoded_once_a_buffer(void**) {
  const auto device = open_device(0);
  Plan plan = two_kernel_plan();
  plan.inputs[0] = {"x", DType::f16, {16, 4096}, {4096, 1}};
  plan.tensor_maps = {{{LaunchArg::Kind::input, 0}, DType::f16, {16, 4096}, {4096, 1}, {8, 64}, 128},
                      {{LaunchArg::Kind::workspace, 256}, DType::f32, {64}, {1}, {16}, 64}};
  plan.launches[0].args = {
      {LaunchArg::Kind::tensor_map, 1}, {LaunchArg::Kind::output, 0}, {LaunchArg::Kind::tensor_map, 0}};
  plan.launches[1].overlaps = true;
  const auto launcher = launcher_for(plan);
  assert_ok(launcher->load(nullptr));
  steering().clear();
  assert_ok(launch_on(launcher.get(), nullptr));
  assert_ok(launch_on(launcher.get(), nullptr));
  const std::string launches =
      "launch first grid 16,2,1 block 128,1,1 cluster 16,1,1 shared 100000 args 12544 8192 4096\n"
      "launch second grid 1,1,1 block 32,1,1 overlapping shared 0 args 12288 8192 8\n";
  assert_text_equal(log_text(),
                    "encode type 2 swizzle 2 extents 64 strides box 16\n"
                    "encode type 1 swizzle 3 extents 4096 16 strides 8192 box 64 8\n" +
                        launches + launches);
  const uint64_t other[] = {0x7000}, outputs[] = {kY};
  for (int i = 0; i < 2; ++i) assert_ok(launcher->launch({other, outputs, kWorkspace}, nullptr));
  assert_int_equal(count_in_log("encode"), 3);
  steering().fail_once("cuTensorMapEncodeTiled", 1);
  assert_error(launch_on(launcher_for(plan).get(), nullptr), ErrorCode::CUDA, "encoding tensor map 1");
}

void a_module_is_loaded_once_a_context_and_unloaded_with_the_launcher(void**) {
  const auto first = open_device(0);
  const Result<Stream> on_first = Stream::create(driver());
  const auto second = open_device(1);  // now current
  const Result<Stream> on_second = Stream::create(driver());
  assert_ok(on_first);
  assert_ok(on_second);
  {
    const auto launcher = launcher_for(two_kernel_plan());
    for (int i = 0; i < 3; ++i) {
      assert_ok(launch_on(launcher.get(), on_first->handle()));
      assert_ok(launch_on(launcher.get(), on_second->handle()));
      assert_ok(launch_on(launcher.get(), nullptr));  // the current context: the second
    }
    assert_int_equal(count_in_log("load in context 1\n"), 1);
    assert_int_equal(count_in_log("load in context 2\n"), 1);
    assert_int_equal(count_in_log("launch first"), 9);
    assert_int_equal(count_in_log("unload"), 0);
  }
  assert_int_equal(count_in_log("unload in context 1\n"), 1);
  assert_int_equal(count_in_log("unload in context 2\n"), 1);
  void* current = nullptr;
  driver()->api().context_current(&current);
  assert_ok(second->make_current());
  void* expected = nullptr;
  driver()->api().context_current(&expected);
  assert_ptr_equal(current, expected);  // every push was popped
}

void threads_share_one_module(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  std::vector<Status> results(8);
  std::vector<std::thread> threads;
  for (Status& result : results)
    threads.emplace_back([&] {
      result = device->make_current();
      for (int i = 0; i < 50 && result.ok(); ++i) result = launch_on(launcher.get(), nullptr);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) assert_ok(result);
  assert_int_equal(count_in_log("load in"), 1);
  assert_int_equal(count_in_log("launch second"), 400);
}

void a_loaded_plan_can_be_captured(void**) {
  const auto device = open_device(0);
  const Result<Stream> stream = Stream::create(driver());
  assert_ok(stream);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_ok(launcher->load(stream->handle()));
  steering().clear();
  const Result<CapturedGraph> graph =
      stream->capture([&] { return launch_on(launcher.get(), stream->handle()); });
  assert_ok(graph);
  assert_text_equal(log_text(), "");  // no load, no attribute, and nothing ran yet
  assert_ok(graph->launch(stream->handle()));
  assert_ok(graph->launch(stream->handle()));
  assert_int_equal(count_in_log("graph launch first"), 2);
}

void a_first_launch_inside_a_capture_loads_the_module(void**) {
  const auto device = open_device(0);
  const Result<Stream> stream = Stream::create(driver());
  assert_ok(stream);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_ok(stream->capture([&] { return launch_on(launcher.get(), stream->handle()); }));
  assert_int_equal(count_in_log("load in"), 1);
  assert_ok(stream->synchronize());  // the capture mode is back and no capture is open
}

// What the log says of `times` launches with these inputs.
std::string log_of(Launcher* launcher, void* stream, uint64_t input, int times) {
  steering().clear();
  const uint64_t inputs[] = {input}, outputs[] = {kY};
  for (int i = 0; i < times; ++i) assert_ok(launcher->launch({inputs, outputs, kWorkspace}, stream));
  return log_text();
}
bool is_replayed(const std::string& log) { return log.find("graph launch") != std::string::npos; }

// The log without the word that tells a graph's launches from others.
std::string as_launched(std::string log) {
  for (size_t at; (at = log.find("graph ")) != std::string::npos;) log.erase(at, 6);
  return log;
}

void a_plan_is_replayed_from_the_third_time_on(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_ok(launcher->load(nullptr));
  assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
  assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
  const std::string replayed = log_of(launcher.get(), nullptr, kX, 1);
  assert_int_equal(count_in_log("graph launch"), 2);
  assert_text_equal(as_launched(replayed), kBothLaunches);
}

// Each launch has the buffers that came with it, whatever the graph had before.
void other_buffers_are_replayed_too(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_true(is_replayed(log_of(launcher.get(), nullptr, kX, 3)));
  for (uint64_t input : {kX + 0x100, kX + 0x200, kX, kX, kX + 0x100}) {
    const std::string replayed = log_of(launcher.get(), nullptr, input, 1);
    assert_true(is_replayed(replayed));
    const auto fresh = launcher_for(two_kernel_plan());
    assert_ok(fresh->load(nullptr));
    assert_text_equal(as_launched(replayed), log_of(fresh.get(), nullptr, input, 1));
  }
}

// The driver lets no graph run beside itself: streams have one each, up to a number of them.
void each_stream_has_its_own_graph(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  std::vector<Stream> streams;
  for (int i = 0; i < 17; ++i) {
    Result<Stream> stream = Stream::create(driver());
    assert_ok(stream);
    streams.push_back(std::move(*stream));
  }
  for (int i = 0; i < 16; ++i) assert_true(is_replayed(log_of(launcher.get(), streams[i].handle(), kX, 3)));
  for (int i = 0; i < 16; ++i) assert_true(is_replayed(log_of(launcher.get(), streams[i].handle(), kX, 1)));
  assert_true(is_replayed(log_of(launcher.get(), streams[16].handle(), kX, 3)));
  assert_false(is_replayed(log_of(launcher.get(), streams[0].handle(), kX, 1)));  // it was the last one
  assert_true(is_replayed(log_of(launcher.get(), streams[2].handle(), kX, 1)));
}

void what_is_replayed_can_be_captured(void**) {
  const auto device = open_device(0);
  const Result<Stream> stream = Stream::create(driver());
  assert_ok(stream);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_true(is_replayed(log_of(launcher.get(), stream->handle(), kX, 3)));
  steering().clear();
  const Result<CapturedGraph> graph =
      stream->capture([&] { return launch_on(launcher.get(), stream->handle()); });
  assert_ok(graph);
  assert_text_equal(log_text(), "");  // the kernels are in the caller's graph
  assert_ok(graph->launch(stream->handle()));
  assert_int_equal(count_in_log("graph launch"), 2);
}

// A driver that has no memory for a graph is not asked again.
void what_cannot_be_replayed_is_launched(void**) {
  const auto device = open_device(0);
  for (const char* symbol : {"cuStreamCreate", "cuStreamBeginCapture_v2", "cuStreamGetCaptureInfo_v2",
                             "cuGraphInstantiateWithFlags"}) {
    const auto launcher = launcher_for(two_kernel_plan());
    assert_ok(launcher->load(nullptr));
    assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
    assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
    steering().fail_once(symbol, 2);
    assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
    assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
  }
}

void a_graph_that_cannot_be_changed_is_dropped(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  assert_true(is_replayed(log_of(launcher.get(), nullptr, kX + 0x100, 3)));
  steering().fail_once("cuGraphExecKernelNodeSetParams_v2", 2);
  assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
  assert_text_equal(log_of(launcher.get(), nullptr, kX, 1), kBothLaunches);
}

void a_failed_capture_is_closed(void**) {
  const auto device = open_device(0);
  const Result<Stream> stream = Stream::create(driver());
  assert_ok(stream);
  assert_error(stream->capture([] { return Status(ErrorCode::INTERNAL, "body"); }), ErrorCode::INTERNAL,
               "body");
  assert_error(stream->capture([&] { return stream->synchronize(); }), ErrorCode::CUDA,
               "STREAM_CAPTURE_UNSUPPORTED");
  assert_ok(stream->synchronize());
}

void wrong_buffers_are_refused_before_the_driver_is_asked(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  const uint64_t good[] = {kX}, odd[] = {kX + 8}, null[] = {0};
  const auto launch = [&](std::span<const uint64_t> in, std::span<const uint64_t> out, uint64_t workspace) {
    return launcher->launch({in, out, workspace}, nullptr);
  };
  assert_error(launch({}, good, kWorkspace), ErrorCode::INVALID_ARGUMENT,
               "takes 1 inputs and 1 outputs, not 0 and 1");
  assert_error(launch(odd, good, kWorkspace), ErrorCode::INVALID_ARGUMENT,
               "input 0 (x) is not 16-byte aligned");
  assert_error(launch(good, null, kWorkspace), ErrorCode::INVALID_ARGUMENT, "output 0 (y) is a null pointer");
  assert_error(launch(good, good, 0), ErrorCode::INVALID_ARGUMENT, "workspace of 512 bytes");
  assert_error(launch(good, good, kWorkspace + 16), ErrorCode::INVALID_ARGUMENT, "256-byte aligned");
  assert_text_equal(log_text(), "");
}

void empty_tensors_and_empty_grids_need_nothing(void**) {
  const auto device = open_device(0);
  Plan plan = two_kernel_plan();
  plan.inputs = {vector_of("x", 0)};
  plan.workspace_bytes = 0;
  plan.launches.erase(plan.launches.begin());
  plan.launches[0].grid = {0, 1, 1};
  plan.launches[0].args = {};
  const auto launcher = launcher_for(plan);
  const uint64_t null[] = {0}, good[] = {kY};
  assert_ok(launcher->launch({null, good, 0}, nullptr));
  assert_int_equal(count_in_log("launch"), 0);
}

void driver_errors_say_what_was_done_and_what_came_back(void**) {
  const auto device = open_device(0);
  const auto launcher = launcher_for(two_kernel_plan());
  steering().fail_once("cuModuleLoadData", 200);
  assert_error(launch_on(launcher.get(), nullptr), ErrorCode::CUDA,
               "loading code for sm_90a: CUDA_ERROR_INVALID_IMAGE");
  steering().fail_once("cuLaunchKernelEx", 1);
  assert_error(launch_on(launcher.get(), nullptr), ErrorCode::CUDA,
               "launching first: CUDA_ERROR_INVALID_VALUE");
  steering().fail_once("cuMemAlloc_v2", 2);
  assert_error(device->allocate(64), ErrorCode::OUT_OF_MEMORY,
               "allocating 64 bytes: CUDA_ERROR_OUT_OF_MEMORY");
  assert_ok(launch_on(launcher.get(), nullptr));

  Plan plan = two_kernel_plan();
  plan.launches[1].kernel = "third";
  const auto wrong = launcher_for(plan);
  assert_error(launch_on(wrong.get(), nullptr), ErrorCode::CUDA, "kernel third: CUDA_ERROR_NOT_FOUND");
  assert_int_equal(count_in_log("unload"), 1);  // what was loaded for it does not stay
}

void a_thread_without_a_context_is_told_so(void**) {
  const auto launcher = launcher_for(two_kernel_plan());
  Status status;
  std::thread([&] { status = launch_on(launcher.get(), nullptr); }).join();
  assert_error(status, ErrorCode::CUDA, "no CUDA context is current");
}

void memory_is_copied_filled_and_freed_once(void**) {
  const auto device = open_device(0);
  {
    const Result<DeviceMemory> memory = device->allocate(5);
    assert_ok(memory);
    const DeviceMemory copy = *memory;
    char text[5] = {};
    assert_ok(copy.upload("quern", 5));
    assert_ok(memory->download(text, 5));
    assert_memory_equal(text, "quern", 5);
    assert_ok(copy.fill('-', nullptr));
    assert_ok(memory->download(text, 5));
    assert_memory_equal(text, "-----", 5);
    assert_int_equal(count_in_log("free"), 0);
  }
  assert_int_equal(count_in_log("free"), 1);
  const Result<DeviceMemory> empty = device->allocate(0);
  assert_ok(empty);
  assert_int_equal(empty->address(), 0);
}

void events_measure_time(void**) {
  const auto device = open_device(0);
  const Result<Event> start = Event::create(driver()), end = Event::create(driver());
  assert_ok(start);
  assert_ok(end);
  assert_ok(start->record(nullptr));
  assert_ok(end->record(nullptr));
  assert_ok(end->wait());
  const Result<double> elapsed = end->microseconds_since(*start);
  assert_ok(elapsed);
  assert_true(*elapsed > 9.9 && *elapsed < 10.1);
}

void devices_are_described(void**) {
  setenv("FAKE_CUDA_CAPABILITY", "8.6", 1);
  const Result<DeviceInfo> info = driver()->device(1);
  unsetenv("FAKE_CUDA_CAPABILITY");
  assert_ok(info);
  assert_text_equal(info->name, "Fake GPU 1");
  assert_int_equal(info->major * 10 + info->minor, 86);
  assert_int_equal(info->multiprocessors, 132);
  assert_int_equal(driver()->version(), 13000);
  assert_error(driver()->device(2), ErrorCode::NO_DEVICE, "no GPU 2, only 2");
}

void without_a_driver_or_a_gpu_the_reason_is_told(void**) {
  assert_error(Driver::open("/nowhere/libcuda.so.1"), ErrorCode::NO_DEVICE, "/nowhere/libcuda.so.1");
  assert_error(Driver::open("libc.so.6"), ErrorCode::NO_DEVICE, "has no cu");
  setenv("FAKE_CUDA_DEVICES", "0", 1);
  assert_error(Driver::open(fake_path()), ErrorCode::NO_DEVICE, "finds no GPU");
  setenv("FAKE_CUDA_DEVICES", "1", 1);
  steering().fail_once("cuInit", 34);
  assert_error(Driver::open(fake_path()), ErrorCode::NO_DEVICE, "stub");
  setenv("QUERN_LIBCUDA", fake_path().c_str(), 1);
  assert_ok(Driver::open());
  unsetenv("QUERN_LIBCUDA");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup(launches_carry_grid_cluster_shared_memory_and_arguments, set_up),
      cmocka_unit_test_setup(kernels_that_overlap_ask_for_one_division_of_l1_and_shared_memory, set_up),
      cmocka_unit_test_setup(blocks_that_overlap_are_spread_evenly, set_up),
      cmocka_unit_test_setup(clusters_that_overlap_are_spread_as_evenly_as_gpcs_let_them, set_up),
      cmocka_unit_test_setup(clusters_of_which_the_driver_knows_nothing_ask_for_what_they_need, set_up),
      cmocka_unit_test_setup(a_kernel_that_is_launched_twice_may_have_what_either_asks_for, set_up),
      cmocka_unit_test_setup(tensor_maps_are_encoded_once_a_buffer, set_up),
      cmocka_unit_test_setup(a_module_is_loaded_once_a_context_and_unloaded_with_the_launcher, set_up),
      cmocka_unit_test_setup(threads_share_one_module, set_up),
      cmocka_unit_test_setup(a_loaded_plan_can_be_captured, set_up),
      cmocka_unit_test_setup(a_first_launch_inside_a_capture_loads_the_module, set_up),
      cmocka_unit_test_setup(a_plan_is_replayed_from_the_third_time_on, set_up),
      cmocka_unit_test_setup(other_buffers_are_replayed_too, set_up),
      cmocka_unit_test_setup(each_stream_has_its_own_graph, set_up),
      cmocka_unit_test_setup(what_is_replayed_can_be_captured, set_up),
      cmocka_unit_test_setup(what_cannot_be_replayed_is_launched, set_up),
      cmocka_unit_test_setup(a_graph_that_cannot_be_changed_is_dropped, set_up),
      cmocka_unit_test_setup(a_failed_capture_is_closed, set_up),
      cmocka_unit_test_setup(wrong_buffers_are_refused_before_the_driver_is_asked, set_up),
      cmocka_unit_test_setup(empty_tensors_and_empty_grids_need_nothing, set_up),
      cmocka_unit_test_setup(driver_errors_say_what_was_done_and_what_came_back, set_up),
      cmocka_unit_test_setup(a_thread_without_a_context_is_told_so, set_up),
      cmocka_unit_test_setup(memory_is_copied_filled_and_freed_once, set_up),
      cmocka_unit_test_setup(events_measure_time, set_up),
      cmocka_unit_test_setup(devices_are_described, set_up),
      cmocka_unit_test_setup(without_a_driver_or_a_gpu_the_reason_is_told, set_up),
  };
  return cmocka_run_group_tests_name("launcher", tests, nullptr, nullptr);
}
