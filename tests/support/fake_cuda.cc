// A libcuda without a GPU, for tests of what calls the driver: loaded by path through $QUERN_LIBCUDA. It
// keeps a log of the calls that matter, enforces the rules that tests rely on, and computes nothing.
//
//   memory      is host memory, so that copies work
//   a module    image is "FAKE", then "name:argument_count" words; or an ELF magic number, with any kernel
//   taking none a launch    fails without an opt-in for more than 48 KiB of dynamic shared memory or for more
//   than 8 blocks a cluster,
//               with an empty grid, and with a stream of another context than the kernel's
//   a capture   refuses allocation, module loading and waiting in threads whose capture mode is not relaxed
//
// FAKE_CUDA_DEVICES is the number of devices (default 1; 0 makes cuInit fail as without a GPU),
// FAKE_CUDA_CAPABILITY their compute capability (default "9.0").
#include "tests/support/fake_cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/jit/driver.h"

namespace {

using quern::CuLaunchAttribute;
using quern::CuLaunchConfig;

enum Error {
  kOk = 0,
  kInvalidValue = 1,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNotFound = 500,
  kCaptureUnsupported = 900,
  kInvalidClusterSize = 912
};

struct Context {
  unsigned long long id;
};
struct Function;
struct Module {
  Context* context;
  bool any_kernel;
  std::map<std::string, int> argument_counts;
  std::map<std::string, Function*> functions;  // that were asked for: one a name
};
struct Function {
  Module* module;
  std::string name;
  uint32_t shared_limit = 48 * 1024;
  bool big_clusters = false;
};
struct Launched {
  std::string line, kernel;
  std::vector<unsigned long long> arguments;
  std::vector<CuLaunchAttribute> attributes;
};
struct Stream {
  Context* context;
  bool capturing = false;
  std::vector<Launched> captured;
};
struct Graph {
  std::vector<Launched> launches;
  const Graph* source = nullptr;  // of an executable one
};
struct Event {
  double microseconds = 0;
};

// One driver a process. Everything below is guarded by its mutex.
struct Fake {
  std::mutex mutex;
  std::string log, log_copy;
  std::map<std::string, int> failures;
  std::map<int, Context*> primaries;
  std::set<Stream*> capturing;
  std::set<const Graph*> graphs;  // that are not destroyed
  unsigned long long next_context = 1;
  double clock_microseconds = 0;
  int (*run)(const char*, const unsigned long long*, int) = nullptr;
  int fault = 0;
};

Fake& fake() {
  static Fake* the = new Fake;  // never destroyed: other static objects may still unload modules
  return *the;
}

thread_local std::vector<Context*> context_stack;
thread_local int capture_mode = 0;

Context* current() { return context_stack.empty() ? nullptr : context_stack.back(); }

void note(const std::string& line) { fake().log += line + "\n"; }

// What a test told the call to return, once; else OK.
int planned(const char* symbol) {
  const auto found = fake().failures.find(symbol);
  if (found == fake().failures.end()) return kOk;
  const int result = found->second;
  fake().failures.erase(found);
  return result;
}

// The result of a call that may not happen during a capture.
int unless_capturing(const char* symbol) {
  if (const int result = planned(symbol)) return result;
  constexpr int kRelaxed = 2;
  return fake().capturing.empty() || capture_mode == kRelaxed ? kOk : kCaptureUnsupported;
}

void execute(const Launched& launched) {
  if (!fake().run || fake().fault) return;
  fake().fault = fake().run(launched.kernel.c_str(), launched.arguments.data(),
                            static_cast<int>(launched.arguments.size()));
}

// Launches cost nothing then, so that what Quern does for them can be timed.
bool launches_are_free() {
  static const bool free = getenv("FAKE_CUDA_FREE_LAUNCHES") != nullptr;
  return free;
}

int device_count() {
  const char* count = getenv("FAKE_CUDA_DEVICES");
  return count ? atoi(count) : 1;
}

std::string triple(const uint32_t* values) {
  return std::to_string(values[0]) + "," + std::to_string(values[1]) + "," + std::to_string(values[2]);
}

std::string describe(const CuLaunchConfig& config, const Function& function, void** arguments) {
  std::string line =
      "launch " + function.name + " grid " + triple(config.grid) + " block " + triple(config.block);
  for (uint32_t i = 0; i < config.attribute_count; ++i)
    if (config.attributes[i].id == CuLaunchAttribute::kClusterDimension)
      line += " cluster " + triple(config.attributes[i].cluster);
    else if (config.attributes[i].id == CuLaunchAttribute::kProgrammaticStreamSerialization)
      line += " overlapping";
  line += " shared " + std::to_string(config.shared_bytes) + " args";
  const auto counted = function.module->argument_counts.find(function.name);
  for (int i = 0; counted != function.module->argument_counts.end() && i < counted->second; ++i)
    line += " " + std::to_string(*static_cast<uint64_t*>(arguments[i]));
  return line;
}

Launched launched_by(const CuLaunchConfig& config, const Function& f, void** arguments) {
  Launched launched{describe(config, f, arguments), f.name, {}, {}};
  launched.attributes.assign(config.attributes, config.attributes + config.attribute_count);
  const auto counted = f.module->argument_counts.find(f.name);
  for (int i = 0; counted != f.module->argument_counts.end() && i < counted->second; ++i)
    launched.arguments.push_back(*static_cast<unsigned long long*>(arguments[i]));
  return launched;
}

int check_launch(const CuLaunchConfig& config, const Function& function) {
  const Stream* stream = static_cast<Stream*>(config.stream);
  if ((stream ? stream->context : current()) != function.module->context) return kInvalidContext;
  for (int i = 0; i < 3; ++i)
    if (config.grid[i] == 0 || config.block[i] == 0) return kInvalidValue;
  if (config.shared_bytes > function.shared_limit) return kInvalidValue;
  for (uint32_t i = 0; i < config.attribute_count; ++i) {
    if (config.attributes[i].id != CuLaunchAttribute::kClusterDimension) continue;
    const uint32_t* cluster = config.attributes[i].cluster;
    if (cluster[0] * cluster[1] * cluster[2] > 8 && !function.big_clusters) return kInvalidClusterSize;
  }
  return kOk;
}

}  // namespace

using Lock = std::lock_guard<std::mutex>;

extern "C" {

const char* fake_cuda_log() {
  const Lock lock(fake().mutex);
  fake().log_copy = fake().log;
  return fake().log_copy.c_str();
}

void fake_cuda_clear_log() {
  const Lock lock(fake().mutex);
  fake().log.clear();
}

void fake_cuda_on_launch(int (*run)(const char* kernel, const unsigned long long* arguments, int count)) {
  const Lock lock(fake().mutex);
  fake().run = run;
  fake().fault = 0;
}

void fake_cuda_fail_once(const char* symbol, int result) {
  const Lock lock(fake().mutex);
  fake().failures[symbol] = result;
}

int cuGetErrorName(int error, const char** text) {
  static const std::map<int, const char*> names = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kInvalidClusterSize, "CUDA_ERROR_INVALID_CLUSTER_SIZE"}};
  const auto found = names.find(error);
  *text = found == names.end() ? nullptr : found->second;
  return *text ? kOk : kInvalidValue;
}

int cuGetErrorString(int, const char** text) {
  *text = "as the test asked";
  return kOk;
}

int cuInit(unsigned) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuInit")) return result;
  return device_count() ? kOk : kNoDevice;
}

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}

int cuDeviceGetCount(int* count) {
  *count = device_count();
  return kOk;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < device_count() ? kOk : kInvalidDevice;
}

int cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, static_cast<size_t>(size), "Fake GPU %d", device);
  return kOk;
}

int cuDeviceGetPCIBusId(char* bus, int size, int device) {
  snprintf(bus, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return kOk;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* capability = getenv("FAKE_CUDA_CAPABILITY");
  int major = 9, minor = 0;
  if (capability) sscanf(capability, "%d.%d", &major, &minor);
  const std::map<int, int> values = {{16, 132},   {38, 60 << 20},   {75, major},
                                     {76, minor}, {81, 228 * 1024}, {97, 227 * 1024}};
  const auto found = values.find(attribute);
  if (found == values.end()) return kInvalidValue;
  *value = found->second;
  return kOk;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{80} << 30;
  return kOk;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuDevicePrimaryCtxRetain")) return result;
  Context*& primary = fake().primaries[device];
  if (!primary) primary = new Context{fake().next_context++};
  *context = primary;
  return kOk;
}

int cuDevicePrimaryCtxRelease_v2(int) { return kOk; }

int cuCtxGetCurrent(void** context) {
  *context = current();
  return kOk;
}

int cuCtxGetDevice(int* device) {
  *device = 0;  // they are all alike
  return kOk;
}

int cuCtxSetCurrent(void* context) {
  if (!context_stack.empty()) context_stack.pop_back();
  if (context) context_stack.push_back(static_cast<Context*>(context));
  return kOk;
}

int cuCtxPushCurrent_v2(void* context) {
  context_stack.push_back(static_cast<Context*>(context));
  return kOk;
}

int cuCtxPopCurrent_v2(void** context) {
  if (context_stack.empty()) return kInvalidContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return kOk;
}

int cuCtxGetId(void* context, unsigned long long* id) {
  *id = static_cast<Context*>(context)->id;
  return kOk;
}

int cuModuleLoadData(void** module, const void* image) {
  const Lock lock(fake().mutex);
  if (const int result = unless_capturing("cuModuleLoadData")) return result;
  if (!current()) return kInvalidContext;
  const char* text = static_cast<const char*>(image);
  const bool elf = memcmp(text, "\177ELF", 4) == 0;
  if (!elf && memcmp(text, "FAKE", 4) != 0) return kInvalidImage;
  auto* loaded = new Module{current(), elf, {}, {}};
  std::istringstream words(elf ? "" : text + 4);
  for (std::string word; words >> word;) {
    const size_t colon = word.find(':');
    loaded->argument_counts[word.substr(0, colon)] = atoi(word.c_str() + colon + 1);
  }
  note("load in context " + std::to_string(current()->id));
  *module = loaded;
  return kOk;
}

int cuModuleUnload(void* module) {
  const Lock lock(fake().mutex);
  note("unload in context " + std::to_string(static_cast<Module*>(module)->context->id));
  return current() == static_cast<Module*>(module)->context ? kOk : kInvalidContext;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  const Lock lock(fake().mutex);
  Module* loaded = static_cast<Module*>(module);
  if (!loaded->any_kernel && !loaded->argument_counts.count(name)) return kNotFound;
  Function*& one = loaded->functions[name];
  if (!one) one = new Function{loaded, name};
  *function = one;
  return kOk;
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
  const Lock lock(fake().mutex);
  Function* f = static_cast<Function*>(function);
  note("set " + f->name + " attribute " + std::to_string(attribute) + " to " + std::to_string(value));
  if (attribute == 8) f->shared_limit = static_cast<uint32_t>(value);
  if (attribute == 14) f->big_clusters = value != 0;
  return value > 227 * 1024 ? kInvalidValue : kOk;
}

// Of four GPCs of 16 SMs with 228 KiB each, and four of 17.
int cuOccupancyMaxActiveClusters(int* clusters, void* function, const CuLaunchConfig* config) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuOccupancyMaxActiveClusters")) return result;
  if (config->shared_bytes > static_cast<Function*>(function)->shared_limit) return kInvalidValue;
  const uint32_t* const cluster = config->attributes[0].cluster;
  const uint32_t blocks = 228 * 1024 / (config->shared_bytes + 1024),
                 size = cluster[0] * cluster[1] * cluster[2];
  *clusters = static_cast<int>(4 * (16 * blocks / size) + 4 * (17 * blocks / size));
  return kOk;
}

// The first word of an encoded map is the address, so that launches show it as an argument.
int cuTensorMapEncodeTiled(quern::CuTensorMap* map, int dtype, uint32_t rank, void* address,
                           const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
                           const uint32_t*, int, int swizzle, int, int) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuTensorMapEncodeTiled")) return result;
  if (reinterpret_cast<uint64_t>(address) % 16 != 0) return kInvalidValue;
  std::string line =
      "encode type " + std::to_string(dtype) + " swizzle " + std::to_string(swizzle) + " extents";
  for (uint32_t i = 0; i < rank; ++i) line += " " + std::to_string(extents[i]);
  line += " strides";
  for (uint32_t i = 0; i + 1 < rank; ++i) line += " " + std::to_string(strides[i]);
  line += " box";
  for (uint32_t i = 0; i < rank; ++i) line += " " + std::to_string(box[i]);
  note(line);
  map->words[0] = reinterpret_cast<uint64_t>(address);
  return kOk;
}

int cuLaunchKernelEx(const CuLaunchConfig* config, void* function, void** arguments, void**) {
  if (launches_are_free()) return kOk;
  const Lock lock(fake().mutex);
  if (const int result = planned("cuLaunchKernelEx")) return result;
  const Function& f = *static_cast<Function*>(function);
  if (const int result = check_launch(*config, f)) return result;
  Stream* stream = static_cast<Stream*>(config->stream);
  Launched launched = launched_by(*config, f, arguments);
  if (stream && stream->capturing) {
    stream->captured.push_back(std::move(launched));
  } else {
    note(launched.line);
    execute(launched);
  }
  return kOk;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  const Lock lock(fake().mutex);
  if (const int result = unless_capturing("cuMemAlloc_v2")) return result;
  *address = reinterpret_cast<uint64_t>(aligned_alloc(256, (bytes + 255) / 256 * 256));
  return *address ? kOk : 2;
}

int cuMemAllocHost_v2(void** memory, size_t bytes) {
  const Lock lock(fake().mutex);
  if (const int result = unless_capturing("cuMemAllocHost_v2")) return result;
  *memory = malloc(bytes);
  return *memory ? kOk : 2;
}

int cuMemFreeHost(void* memory) {
  free(memory);
  return kOk;
}

// All memory is on device 0. Only the ordinal can be asked for.
int cuPointerGetAttribute(void* value, int attribute, uint64_t) {
  if (attribute != 9) return kInvalidValue;
  *static_cast<int*>(value) = 0;
  return kOk;
}

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  const char* megabytes = getenv("FAKE_CUDA_FREE_MB");
  *total_bytes = size_t{80} << 30;
  *free_bytes = megabytes ? strtoull(megabytes, nullptr, 10) << 20 : *total_bytes;
  return kOk;
}

int cuMemFree_v2(uint64_t address) {
  const Lock lock(fake().mutex);
  note("free");
  free(reinterpret_cast<void*>(address));
  return kOk;
}

int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kOk;
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return kOk;
}

int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t bytes, void*) {
  memset(reinterpret_cast<void*>(address), byte, bytes);
  return kOk;
}

int cuStreamCreate(void** stream, unsigned) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuStreamCreate")) return result;
  if (!current()) return kInvalidContext;
  *stream = new Stream{current(), false, {}};
  return kOk;
}

int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return kOk;
}

int cuStreamSynchronize(void*) {
  const Lock lock(fake().mutex);
  if (fake().fault) return fake().fault;
  return unless_capturing("cuStreamSynchronize");
}

int cuStreamGetCtx(void* stream, void** context) {
  *context = static_cast<Stream*>(stream)->context;
  return kOk;
}

int cuStreamWaitEvent(void* stream, void*, unsigned) {
  const Lock lock(fake().mutex);
  note("wait for an event");
  return stream || current() ? kOk : kInvalidContext;
}

int cuStreamBeginCapture_v2(void* stream, int) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuStreamBeginCapture_v2")) return result;
  static_cast<Stream*>(stream)->capturing = true;
  fake().capturing.insert(static_cast<Stream*>(stream));
  return kOk;
}

int cuStreamEndCapture(void* stream, void** graph) {
  const Lock lock(fake().mutex);
  Stream* captured = static_cast<Stream*>(stream);
  if (!captured->capturing) return kInvalidValue;
  fake().capturing.erase(captured);
  captured->capturing = false;
  Graph* const made = new Graph{std::exchange(captured->captured, {})};
  fake().graphs.insert(made);
  *graph = made;
  return kOk;
}

int cuStreamIsCapturing(void* stream, int* status) {
  const Lock lock(fake().mutex);
  const bool is_default = reinterpret_cast<uintptr_t>(stream) <= 2;  // null, legacy, per thread
  *status = !is_default && static_cast<Stream*>(stream)->capturing;
  return kOk;
}

// A node's handle is its number in the graph, from 1 on. It is good as long as the graph is there.
int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long*, void**, void* const** last,
                              size_t* last_count) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuStreamGetCaptureInfo_v2")) return result;
  static thread_local void* node;
  const Stream* captured = static_cast<Stream*>(stream);
  *status = captured->capturing;
  *last_count = !captured->captured.empty();
  node = reinterpret_cast<void*>(captured->captured.size());
  *last = &node;
  return kOk;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kOk;
}

int cuEventCreate(void** event, unsigned) {
  *event = new Event;
  return kOk;
}

int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kOk;
}

// The clock goes on by 10 microseconds with every recorded event.
int cuEventRecord(void* event, void*) {
  const Lock lock(fake().mutex);
  static_cast<Event*>(event)->microseconds = fake().clock_microseconds += 10;
  return kOk;
}

int cuEventSynchronize(void*) {
  const Lock lock(fake().mutex);
  return unless_capturing("cuEventSynchronize");
}

int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  const double elapsed = static_cast<Event*>(end)->microseconds - static_cast<Event*>(start)->microseconds;
  *milliseconds = static_cast<float>(elapsed / 1e3);
  return kOk;
}

int cuGraphDestroy(void* graph) {
  const Lock lock(fake().mutex);
  fake().graphs.erase(static_cast<Graph*>(graph));
  delete static_cast<Graph*>(graph);
  return kOk;
}

int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  const Lock lock(fake().mutex);
  if (const int result = planned("cuGraphInstantiateWithFlags")) return result;
  *executable = new Graph{static_cast<Graph*>(graph)->launches, static_cast<Graph*>(graph)};
  return kOk;
}

int cuGraphLaunch(void* executable, void*) {
  if (launches_are_free()) return kOk;
  const Lock lock(fake().mutex);
  for (const Launched& launched : static_cast<Graph*>(executable)->launches) {
    note("graph " + launched.line);
    execute(launched);
  }
  return kOk;
}

int cuGraphExecKernelNodeSetParams_v2(void* executable, void* node, const quern::CuKernelNode* kernel) {
  if (launches_are_free()) return kOk;
  const Lock lock(fake().mutex);
  if (const int result = planned("cuGraphExecKernelNodeSetParams_v2")) return result;
  if (!fake().graphs.contains(static_cast<Graph*>(executable)->source)) return kInvalidValue;
  std::vector<Launched>& launches = static_cast<Graph*>(executable)->launches;
  const auto index = reinterpret_cast<uintptr_t>(node) - 1;
  if (index >= launches.size()) return kInvalidValue;
  const std::vector<CuLaunchAttribute> attributes = launches[index].attributes;
  CuLaunchConfig config{{}, {}, kernel->shared_bytes, nullptr, attributes.data(),
                        static_cast<uint32_t>(attributes.size())};
  std::copy_n(kernel->grid, 3, config.grid);
  std::copy_n(kernel->block, 3, config.block);
  launches[index] = launched_by(config, *static_cast<Function*>(kernel->function), kernel->arguments);
  return kOk;
}

int cuGraphExecDestroy(void* executable) {
  delete static_cast<Graph*>(executable);
  return kOk;
}

}  // extern "C"
