// Runs and times compiled programs of one graph on a GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/jit/compiler.h"
#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "core/verify/reference.h"
#include "tools/bench/gpu/contestants.h"

namespace quern {

// All contestants compute `graph`, which must outlive the trial as they must.
class Trial {
 public:
  Trial(const Graph& graph, std::vector<Contestant>& contestants);

  // Compares all elements with the f64 reference, with `hostile` also on inputs of every hostile class; or,
  // for shapes where that takes minutes, with the baseline emitter's program. Fills in `error` (on random
  // inputs) and `wrong`, which names the class.
  void check(bool hostile);
  void check_baseline(Compiler& compiler, const Target& target);
  // Interleaved, captured in CUDA graphs: `hot` with the same inputs again and again, `cold` with inputs that
  // rotate over more than four times the L2 cache.
  void time(int rounds);
  size_t input_bytes() const;

 private:
  // One set of inputs and outputs on the device.
  struct Buffers {
    std::vector<DeviceMemory> memory;
    std::vector<uint64_t> inputs, outputs;
  };

  void need_driver(int result, const char* what) const;
  Buffers make_buffers();
  void compare_outputs(Contestant& contestant, const std::string& inputs,
                       const std::vector<Expected>& expected);
  void upload(const std::vector<std::string>& inputs);
  std::vector<std::string> run_once(const Plan& plan);
  void* capture(Launcher& launcher, size_t launches, size_t sets);
  double run_graph(void* executable);

  const Graph& graph_;
  std::vector<Contestant>& contestants_;
  std::shared_ptr<const Driver> driver_;
  std::unique_ptr<Device> device_;
  std::vector<std::string> host_;  // the inputs: random ones
  std::vector<Buffers> sets_;
  DeviceMemory workspace_;
  void *stream_ = nullptr, *start_ = nullptr, *stop_ = nullptr;
};

}  // namespace quern
