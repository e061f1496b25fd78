// Streams, events and captured graphs: what a profiler times launches with.
#pragma once

#include <functional>
#include <memory>

#include "core/jit/driver.h"

namespace quern {

// Copies of these share one driver object, destroyed with the last of them. All are made in the current
// context.

class Event {
 public:
  static Result<Event> create(std::shared_ptr<const Driver> driver);
  Status record(void* stream) const;
  // Blocks until the work recorded before it is done.
  Status wait() const;
  // Between two events that have both happened; the driver resolves about half a microsecond.
  Result<double> microseconds_since(const Event& start) const;

 private:
  std::shared_ptr<const Driver> driver_;
  std::shared_ptr<void> event_;
};

// Work recorded once and launched many times with the cost of one launch.
class CapturedGraph {
 public:
  // Runs `body` on a capturing `stream` and turns what it launched into a graph. The capture ends even when
  // body fails.
  static Result<CapturedGraph> capture(std::shared_ptr<const Driver> driver, void* stream,
                                       const std::function<Status()>& body);
  Status launch(void* stream) const;
  // For launches from now on: what was launched before keeps what it was given.
  Status update(void* node, const CuKernelNode& kernel) const;

 private:
  std::shared_ptr<const Driver> driver_;
  std::shared_ptr<void> graph_, executable_;  // nodes are the graph's, also where they name those of what is executed
};

// Lets this thread load modules and allocate although a stream, maybe of another thread, is being captured.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.api().capture_exchange_mode(&mode_);
  }
  ~RelaxedCapture() { driver_.api().capture_exchange_mode(&mode_); }

 private:
  const Driver& driver_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; then the mode that was set before
};

class Stream {
 public:
  // Does not wait for the default stream, nor the default stream for it.
  static Result<Stream> create(std::shared_ptr<const Driver> driver);
  void* handle() const { return stream_.get(); }  // a CUstream
  Status synchronize() const;
  Result<CapturedGraph> capture(const std::function<Status()>& body) const {
    return CapturedGraph::capture(driver_, handle(), body);
  }
  // In a capture: the node (a CUgraphNode) of what was put on the stream last; null before the first.
  Result<void*> last_captured() const;

 private:
  std::shared_ptr<const Driver> driver_;
  std::shared_ptr<void> stream_;
};

}  // namespace quern
