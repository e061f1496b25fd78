// Ending an evaluation in the middle of it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace quern {

// Whether to stop: asked now and then, and once that is so, it stays so.
class Stop {
 public:
  Stop() = default;  // never
  explicit Stop(std::function<bool()> ask) : ask_(std::move(ask)) {}

  bool now() { return stopped_ = stopped_ || (ask_ && ask_()); }
  // For loops, in front of so many elements.
  bool before(int64_t elements) {
    left_ -= elements;
    if (left_ >= 0 || stopped_) return stopped_;
    left_ = kInterval;
    return now();
  }

 private:
  static constexpr int64_t kInterval = 1024;  // elements: a millisecond at most
  std::function<bool()> ask_;
  int64_t left_ = 0;
  bool stopped_ = false;
};

// A domain of evaluate.h whose evaluations end early. Whoever evaluates asks afterwards whether they did.
template <class Domain>
class Stoppable : public Domain {
 public:
  template <class... Arguments>
  explicit Stoppable(Stop& stop, Arguments&&... arguments)
      : Domain(std::forward<Arguments>(arguments)...), stop_(stop) {}
  bool stopped_before(int64_t elements) { return stop_.before(elements); }

 private:
  Stop& stop_;
};

}  // namespace quern
