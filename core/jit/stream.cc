#include "core/jit/stream.h"

namespace quern {

namespace {

constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureThreadLocal = 1;  // other threads may go on allocating while this one captures

// A driver object that is destroyed with its last owner, and keeps the driver alive until then.
std::shared_ptr<void> own(std::shared_ptr<const Driver> driver, void* handle, int (*destroy)(void*)) {
  return std::shared_ptr<void>(handle, [driver, destroy](void* owned) { destroy(owned); });
}

}  // namespace

Result<Event> Event::create(std::shared_ptr<const Driver> driver) {
  void* handle = nullptr;
  const Status status = driver->check(driver->api().event_create(&handle, 0), "cuEventCreate");
  if (!status.ok()) return status;
  Event event;
  event.driver_ = driver;
  event.event_ = own(driver, handle, driver->api().event_destroy);
  return event;
}

Status Event::record(void* stream) const {
  return driver_->check(driver_->api().event_record(event_.get(), stream), "cuEventRecord");
}

Status Event::wait() const {
  return driver_->check(driver_->api().event_synchronize(event_.get()), "waiting for an event");
}

Result<double> Event::microseconds_since(const Event& start) const {
  float milliseconds = 0;
  const int result = driver_->api().event_elapsed(&milliseconds, start.event_.get(), event_.get());
  const Status status = driver_->check(result, "cuEventElapsedTime");
  if (!status.ok()) return status;
  return milliseconds * 1e3;
}

Result<CapturedGraph> CapturedGraph::capture(std::shared_ptr<const Driver> driver, void* stream,
                                             const std::function<Status()>& body) {
  const DriverApi& api = driver->api();
  Status status = driver->check(api.capture_begin(stream, kCaptureThreadLocal), "cuStreamBeginCapture");
  if (!status.ok()) return status;
  status = body();
  void *graph = nullptr, *executable = nullptr;
  const Status ended = driver->check(api.capture_end(stream, &graph), "cuStreamEndCapture");
  if (status.ok()) status = ended;
  if (status.ok()) status = driver->check(api.graph_instantiate(&executable, graph, 0), "cuGraphInstantiate");
  CapturedGraph captured;
  captured.driver_ = driver;
  if (graph) captured.graph_ = own(driver, graph, driver->api().graph_destroy);
  if (!status.ok()) return status;
  captured.executable_ = own(driver, executable, api.graph_executable_destroy);
  return captured;
}

Status CapturedGraph::launch(void* stream) const {
  return driver_->check(driver_->api().graph_launch(executable_.get(), stream), "cuGraphLaunch");
}

Status CapturedGraph::update(void* node, const CuKernelNode& kernel) const {
  const int result = driver_->api().graph_update_kernel(executable_.get(), node, &kernel);
  return result == 0 ? Status() : driver_->check(result, "cuGraphExecKernelNodeSetParams");
}

Result<Stream> Stream::create(std::shared_ptr<const Driver> driver) {
  void* handle = nullptr;
  const Status status =
      driver->check(driver->api().stream_create(&handle, kStreamNonBlocking), "cuStreamCreate");
  if (!status.ok()) return status;
  Stream stream;
  stream.driver_ = driver;
  stream.stream_ = own(driver, handle, driver->api().stream_destroy);
  return stream;
}

Result<void*> Stream::last_captured() const {
  int capture = 0;
  unsigned long long id = 0;
  size_t count = 0;
  void* const* nodes = nullptr;
  const Status status =
      driver_->check(driver_->api().capture_info(handle(), &capture, &id, nullptr, &nodes, &count),
                     "cuStreamGetCaptureInfo");
  if (!status.ok()) return status;
  return count ? nodes[0] : nullptr;
}

Status Stream::synchronize() const {
  return driver_->check(driver_->api().stream_synchronize(handle()), "waiting for the GPU");
}

}  // namespace quern
