// One GPU as the programs of one graph see it: it loads them, checks their outputs and times them. An
// interface: the GPU itself is behind it (device_bench.h), a process of its own with that GPU
// (bench_process.h), or a test's fake.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/base/status.h"

namespace quern {

// Errors of all calls: WORKER when a program hung or faulted and the GPU is there again for others; NO_DEVICE
// when it is gone for good; anything else concerns the one program. Calls come from one thread.
class Bench {
 public:
  struct Check {
    double error = 0;    // ||actual - exact|| / ||exact|| on random inputs
    double largest = 0;  // error of an element over its own bound (core/verify/reference.h), on all inputs
    uint64_t compared = 0,
             elements = 0;  // of the outputs, on each inputs; fewer than all where time or memory is short
    std::string inputs;     // "random, masked, ...": what it ran on
    std::string wrong;      // the first thing that was; empty: right
  };
  // Microseconds of one launch, a round each. Programs timed by one call share their rounds.
  struct Time {
    std::vector<double> cold, hot;
  };

  virtual ~Bench() = default;
  // All that a timing depends on: "NVIDIA H200, driver 13000".
  virtual const std::string& device() const = 0;
  // Loads a plan with its code. `tf32`: it computes f32 products in tf32. What is timed are the launches of `timed`, behind those in
  // front of them; check() is for whole plans alone.
  virtual Result<uint32_t> add(const Plan& plan, bool tf32, const LaunchRange& timed = {}) = 0;
  virtual void remove(uint32_t plan) = 0;
  // Runs it once on random inputs and once on inputs of every hostile class, its outputs and workspace
  // poisoned.
  virtual Result<Check> check(uint32_t plan) = 0;
  // Interleaved: each round times every plan once.
  virtual Result<std::vector<Time>> time(std::span<const uint32_t> plans, int rounds) = 0;
  // What others use of the GPU, or its own jitter if that is larger: a share from 0 to 1.
  virtual Result<double> disturbance() = 0;
};

}  // namespace quern
