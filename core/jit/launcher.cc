#include "core/jit/launcher.h"

#include <algorithm>
#include <mutex>

#include "core/base/few.h"
#include "core/jit/spread.h"
#include "core/jit/stream.h"

namespace quern {

namespace {

// From cuda.h.
constexpr int kPreferredSharedCarveout = 9;         // CUfunction_attribute
constexpr int kMostShared = 100;                    // CUshared_carveout, percent
constexpr int kNonPortableClusterSizeAllowed = 14;  // CUfunction_attribute
constexpr uint64_t kPortableClusterBlocks = 8;      // CUDA C++ Programming Guide, "Thread Block Clusters"

constexpr uint64_t kBufferAlignment = 16, kWorkspaceAlignment = 256;  // what plan.h promises to kernels

// Handles of the default streams: null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD. They belong to the current
// context.
bool is_default_stream(void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// Makes a context current for a scope, where it is not already.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, void* stream) : driver_(driver) {
    const DriverApi& api = driver.api();
    void* current = nullptr;
    if (const int result = api.context_current(&current)) status_ = driver.check(result, "cuCtxGetCurrent");
    context_ = current;
    if (status_.ok() && !is_default_stream(stream))
      if (const int result = api.stream_context(stream, &context_))
        status_ = driver.check(result, "cuStreamGetCtx");
    if (status_.ok() && !context_)
      status_ =
          Status(ErrorCode::CUDA,
                 "no CUDA context is current in this thread: call cuCtxSetCurrent or cudaSetDevice first");
    if (status_.ok() && context_ != current) {
      status_ = driver.check(api.context_push(context_), "cuCtxPushCurrent");
      pushed_ = status_.ok();
    }
  }
  ~CurrentContext() {
    void* popped = nullptr;
    if (pushed_) driver_.api().context_pop(&popped);
  }
  const Status& status() const { return status_; }
  void* context() const { return context_; }

 private:
  const Driver& driver_;
  Status status_;
  void* context_ = nullptr;
  bool pushed_ = false;
};

Status check_buffer(const char* kind, size_t index, const TensorDesc& tensor, uint64_t address) {
  if (address % kBufferAlignment == 0 && (address != 0 || tensor.span() == 0)) return Status();
  return Status(ErrorCode::INVALID_ARGUMENT, std::string(kind) + " " + std::to_string(index) + " (" +
                                                 tensor.name + ") " +
                                                 (address ? "is not 16-byte aligned" : "is a null pointer"));
}

uint64_t value_of(const LaunchArg& arg, const LaunchBuffers& buffers) {
  const size_t index = static_cast<size_t>(arg.value);
  if (arg.kind == LaunchArg::Kind::input) return buffers.inputs[index];
  if (arg.kind == LaunchArg::Kind::output) return buffers.outputs[index];
  return arg.kind == LaunchArg::Kind::workspace ? buffers.workspace + index
                                                : static_cast<uint64_t>(arg.value);
}

}  // namespace

// One launch() of the plan.
class Launcher::Call final : public Replays::Work {
 public:
  Call(std::span<const uint64_t> addresses, Launcher& launcher, const Loaded& loaded, const LaunchBuffers& buffers)
      : Work(addresses), launcher_(launcher), loaded_(loaded), buffers_(buffers) {}
  size_t kernels() const override { return launcher_.plan_->launches.size(); }
  Status enqueue(size_t kernel, void* stream) override;
  Status update(size_t kernel, const CapturedGraph& graph, void* node) override;

 private:
  Launcher& launcher_;
  const Loaded& loaded_;
  const LaunchBuffers& buffers_;
};

Launcher::Prepared::Prepared(const Launch& launch) : attributes{} {
  if (launch.cluster.count() > 1) attributes[attribute_count++] = cluster_attribute(launch);
  if (launch.overlaps) {
    CuLaunchAttribute& overlap = attributes[attribute_count++];
    overlap.id = CuLaunchAttribute::kProgrammaticStreamSerialization;
    overlap.programmatic_serialization = 1;
  }
  for (const LaunchArg& arg : launch.args) map_count += arg.kind == LaunchArg::Kind::tensor_map;
}

Launcher::Launcher(std::shared_ptr<const Driver> driver, std::shared_ptr<const Plan> plan)
    : driver_(std::move(driver)),
      plan_(std::move(plan)),
      prepared_(plan_->launches.begin(), plan_->launches.end()),
      overlaps_(std::any_of(plan_->launches.begin(), plan_->launches.end(),
                            [](const Launch& launch) { return launch.overlaps; })),
      tensor_maps_(driver_, plan_->tensor_maps) {}

// A context that is gone took its module and its graphs with it; pushing it then fails, and nothing is left to do.
Launcher::~Launcher() {
  const DriverApi& api = driver_->api();
  for (auto& [id, loaded] : loaded_) {
    unsigned long long now = 0;
    void* popped = nullptr;
    if (api.context_id(loaded.context, &now) != 0 || now != id || api.context_push(loaded.context) != 0) {
      static_cast<void>(loaded.replays.release());
      continue;
    }
    loaded.replays.reset();
    api.module_unload(loaded.module);
    api.context_pop(&popped);
  }
}

Status Launcher::load(void* stream) {
  const CurrentContext current(*driver_, stream);
  if (!current.status().ok()) return current.status();
  return loaded_in(current.context()).status();
}

// Calls use(call, loaded).
template <class Use>
Status Launcher::with_call(const LaunchBuffers& buffers, void* stream, const Use& use) {
  Status status = check_buffers(buffers);
  if (!status.ok()) return status;
  const CurrentContext current(*driver_, stream);
  if (!current.status().ok()) return current.status();
  const Result<const Loaded*> loaded = loaded_in(current.context());
  if (!loaded) return loaded.status();
  const size_t inputs = buffers.inputs.size(), outputs = buffers.outputs.size();
  Few<uint64_t, 32> addresses(inputs + outputs + 1);
  std::copy(buffers.inputs.begin(), buffers.inputs.end(), addresses.data());
  std::copy(buffers.outputs.begin(), buffers.outputs.end(), addresses.data() + inputs);
  addresses[inputs + outputs] = buffers.workspace;
  Call call({addresses.data(), inputs + outputs + 1}, *this, **loaded, buffers);
  return use(call, **loaded);
}

Status Launcher::launch(const LaunchBuffers& buffers, void* stream) {
  return with_call(buffers, stream,
                   [&](Call& call, const Loaded& loaded) { return loaded.replays->launch(call, stream); });
}

Status Launcher::launch_some(const LaunchRange& range, const LaunchBuffers& buffers, void* stream) {
  return with_call(buffers, stream, [&](Call& call, const Loaded&) {
    Status status;
    for (size_t i = range.first; i < std::min(range.end, plan_->launches.size()) && status.ok(); ++i)
      status = call.enqueue(i, stream);
    return status;
  });
}

Status Launcher::check_buffers(const LaunchBuffers& buffers) const {
  if (buffers.inputs.size() != plan_->inputs.size() || buffers.outputs.size() != plan_->outputs.size())
    return Status(ErrorCode::INVALID_ARGUMENT, "the plan takes " + std::to_string(plan_->inputs.size()) +
                                                   " inputs and " + std::to_string(plan_->outputs.size()) +
                                                   " outputs, not " + std::to_string(buffers.inputs.size()) +
                                                   " and " + std::to_string(buffers.outputs.size()));
  Status status;
  for (size_t i = 0; i < plan_->inputs.size() && status.ok(); ++i)
    status = check_buffer("input", i, plan_->inputs[i], buffers.inputs[i]);
  for (size_t i = 0; i < plan_->outputs.size() && status.ok(); ++i)
    status = check_buffer("output", i, plan_->outputs[i], buffers.outputs[i]);
  if (status.ok() && plan_->workspace_bytes > 0 &&
      (!buffers.workspace || buffers.workspace % kWorkspaceAlignment))
    return Status(ErrorCode::INVALID_ARGUMENT, "the plan needs a workspace of " +
                                                   std::to_string(plan_->workspace_bytes) +
                                                   " bytes, 256-byte aligned");
  return status;
}

Result<const Launcher::Loaded*> Launcher::loaded_in(void* context) {
  unsigned long long id = 0;
  if (const int result = driver_->api().context_id(context, &id)) return driver_->check(result, "cuCtxGetId");
  if (const Loaded* last = last_.load(std::memory_order_acquire); last && last->id == id) return last;
  {
    const std::shared_lock lock(mutex_);
    const auto found = loaded_.find(id);
    if (found != loaded_.end()) {
      last_.store(&found->second, std::memory_order_release);
      return &found->second;
    }
  }
  const std::unique_lock lock(mutex_);  // held while loading: a second thread waits and finds it there
  const auto found = loaded_.find(id);
  if (found != loaded_.end()) return &found->second;
  Loaded loaded;
  loaded.id = id;
  loaded.context = context;
  loaded.replays = std::make_unique<Replays>(driver_);
  Status status = load_module(&loaded);
  if (!status.ok()) return status;
  return &loaded_.emplace(id, std::move(loaded)).first->second;
}

Status Launcher::load_module(Loaded* loaded) const {
  const DriverApi& api = driver_->api();
  const RelaxedCapture relaxed(*driver_);
  Status status = driver_->check(api.module_load(&loaded->module, plan_->cubin.data()),
                                 "loading code for " + plan_->target);
  if (!status.ok()) return status;
  const Result<Multiprocessors> sms = overlaps_ ? multiprocessors(*driver_) : Multiprocessors();
  if (status.ok()) status = sms.status();
  for (size_t i = 0; i < plan_->launches.size() && status.ok(); ++i) {
    const Launch& launch = plan_->launches[i];
    Function function;
    status = driver_->check(api.module_function(&function.handle, loaded->module, launch.kernel.c_str()),
                            "kernel " + launch.kernel);
    if (status.ok()) status = prefer_shared_memory(launch, function.handle);
    if (status.ok()) function.shared_bytes = evenly_spread_bytes(*driver_, *sms, launch, function.handle);
    loaded->functions.push_back(function);
  }
  for (size_t i = 0; i < plan_->launches.size() && status.ok(); ++i) status = allow_shared_memory(*loaded, i);
  if (!status.ok()) api.module_unload(loaded->module);
  return status;
}

// An SM divides its memory anew into L1 cache and shared memory only where no block runs. With programmatic dependent
// launches there always is one, and the kernel that came first decides how many blocks of the next one an SM takes.
// So all kernels of such a plan ask for the same division, the one that has room for most blocks.
Status Launcher::prefer_shared_memory(const Launch& launch, void* function) const {
  const DriverApi& api = driver_->api();
  const uint64_t cluster_blocks = launch.cluster.count();
  Status status;
  if (overlaps_)
    status = driver_->check(api.function_set(function, kPreferredSharedCarveout, kMostShared),
                            "kernel " + launch.kernel + ": a preferred share of shared memory");
  if (status.ok() && cluster_blocks > kPortableClusterBlocks)
    status = driver_->check(
        api.function_set(function, kNonPortableClusterSizeAllowed, 1),
        "kernel " + launch.kernel + ": clusters of " + std::to_string(cluster_blocks) + " blocks");
  return status;
}

// Dynamic shared memory must be opted into when it exceeds 48 KiB together with the kernel's static part,
// which is not known here; so always. A kernel that is launched twice gets the greatest of what its launches
// need.
Status Launcher::allow_shared_memory(const Loaded& loaded, size_t index) const {
  const std::string& kernel = plan_->launches[index].kernel;
  uint32_t shared_bytes = 0;
  for (size_t i = 0; i < plan_->launches.size(); ++i)
    if (plan_->launches[i].kernel == kernel)
      shared_bytes = std::max(shared_bytes, loaded.functions[i].shared_bytes);
  if (shared_bytes == 0) return Status();
  return driver_->check(driver_->api().function_set(loaded.functions[index].handle, kMaxDynamicSharedBytes,
                                                    static_cast<int>(shared_bytes)),
                        "kernel " + kernel + ": " + std::to_string(shared_bytes) + " bytes of shared memory");
}

// Calls use(arguments). Neither allocates nor makes text, unless something is wrong.
template <class Use>
Status Launcher::with_arguments(size_t index, const LaunchBuffers& buffers, const Use& use) {
  const Launch& launch = plan_->launches[index];
  Few<uint64_t, 32> values(launch.args.size());
  Few<void*, 32> arguments(launch.args.size());
  Few<CuTensorMap, 4> maps(prepared_[index].map_count);
  size_t map = 0;
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const LaunchArg& arg = launch.args[i];
    if (arg.kind != LaunchArg::Kind::tensor_map) {
      values[i] = value_of(arg, buffers);
      arguments[i] = &values[i];
      continue;
    }
    const size_t number = static_cast<size_t>(arg.value);
    const uint64_t address = value_of(plan_->tensor_maps[number].buffer, buffers);
    if (const Status encoded = tensor_maps_.encode(number, address, maps[map]); !encoded.ok())
      return encoded.with_context("launching " + launch.kernel);
    arguments[i] = &maps[map++];
  }
  return use(arguments.data());
}

Status Launcher::Call::enqueue(size_t kernel, void* stream) {
  const Launch& launch = launcher_.plan_->launches[kernel];
  if (launch.grid.count() == 0) return Status();  // no blocks, no work; the driver would refuse it
  const Prepared& prepared = launcher_.prepared_[kernel];
  const CuLaunchConfig config = {{launch.grid.x, launch.grid.y, launch.grid.z},
                                 {launch.block.x, launch.block.y, launch.block.z},
                                 loaded_.functions[kernel].shared_bytes,
                                 stream,
                                 prepared.attributes.data(),
                                 prepared.attribute_count};
  const Driver& driver = *launcher_.driver_;
  return launcher_.with_arguments(kernel, buffers_, [&](void** arguments) {
    const int result = driver.api().launch(&config, loaded_.functions[kernel].handle, arguments, nullptr);
    return result == 0 ? Status() : driver.check(result, "launching " + launch.kernel);
  });
}

Status Launcher::Call::update(size_t kernel, const CapturedGraph& graph, void* node) {
  const Launch& launch = launcher_.plan_->launches[kernel];
  return launcher_.with_arguments(kernel, buffers_, [&](void** arguments) {
    return graph.update(node, {.function = loaded_.functions[kernel].handle,
                               .grid = {launch.grid.x, launch.grid.y, launch.grid.z},
                               .block = {launch.block.x, launch.block.y, launch.block.z},
                               .shared_bytes = loaded_.functions[kernel].shared_bytes,
                               .arguments = arguments});
  });
}

}  // namespace quern
