#include "core/profile/idle.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "core/jit/library.h"

namespace quern {

namespace {

// From nvml.h.
struct ProcessSample {
  unsigned pid;
  unsigned long long time_us;  // since 1970
  unsigned sm, memory, encoder, decoder;
};
struct Utilization {
  unsigned gpu, memory;  // percent
};
constexpr int kSuccess = 0, kNotFound = 6, kInsufficientSize = 7;

}  // namespace

struct GpuMonitor::Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char* text, unsigned size) = nullptr;
  int (*device_by_bus)(const char* bus, void** device) = nullptr;
  int (*process_use)(void* device, ProcessSample* samples, unsigned* count,
                     unsigned long long since) = nullptr;
  int (*use)(void* device, Utilization* use) = nullptr;
  bool ready = false;

  Nvml() {
    const char* named = getenv("QUERN_LIBNVML");
    const auto library = Library::open(named && *named ? named : "libnvidia-ml.so.1");
    if (!library) return;
    const Status found[] = {library->bind("nvmlInit_v2", init),
                            library->bind("nvmlShutdown", shutdown),
                            library->bind("nvmlSystemGetDriverVersion", driver_version),
                            library->bind("nvmlDeviceGetHandleByPciBusId_v2", device_by_bus),
                            library->bind("nvmlDeviceGetProcessUtilization", process_use),
                            library->bind("nvmlDeviceGetUtilizationRates", use)};
    ready =
        std::all_of(std::begin(found), std::end(found), [](const Status& status) { return status.ok(); }) &&
        init() == kSuccess;
  }
  ~Nvml() {
    if (ready) shutdown();
  }
};

GpuMonitor::GpuMonitor(const Driver& driver, int ordinal) : nvml_(std::make_unique<Nvml>()) {
  if (!nvml_->ready) return;
  char text[96] = {};
  if (nvml_->driver_version(text, sizeof text - 1) == kSuccess) version_ = text;
  // NVML counts GPUs otherwise than CUDA does.
  int device = 0;
  char bus[32] = {};
  if (driver.api().device_get(&device, ordinal) != 0 ||
      driver.api().device_bus(bus, sizeof bus - 1, device) != 0 ||
      nvml_->device_by_bus(bus, &device_) != kSuccess)
    device_ = nullptr;
}

GpuMonitor::~GpuMonitor() = default;

std::optional<double> GpuMonitor::use_by_others(int milliseconds) const {
  if (!device_) return std::nullopt;
  using namespace std::chrono;
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  // Samples after that moment are not of this process, which gave the GPU nothing: process ids, which differ
  // from container to container, need not be known.
  unsigned count = 0;
  int result = nvml_->process_use(device_, nullptr, &count, static_cast<unsigned long long>(now));
  if (result == kNotFound || (result == kSuccess && count == 0)) return 0.0;
  if (result == kInsufficientSize) {
    std::vector<ProcessSample> samples(count);
    result = nvml_->process_use(device_, samples.data(), &count, static_cast<unsigned long long>(now));
    unsigned most = 0;
    for (unsigned i = 0; i < std::min<size_t>(count, samples.size()); ++i)
      if (samples[i].time_us >= static_cast<unsigned long long>(now)) most = std::max(most, samples[i].sm);
    if (result == kSuccess) return most / 100.0;
    if (result == kNotFound) return 0.0;
  }
  // Not every GPU counts by process.
  Utilization use{};
  if (nvml_->use(device_, &use) != kSuccess) return std::nullopt;
  return use.gpu / 100.0;
}

}  // namespace quern
