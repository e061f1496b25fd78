// The Bench over a process of its own, so that a program which hangs or faults costs that process and nothing
// else: it is killed and started again, and what was loaded is loaded again.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/jit/compiler.h"
#include "core/profile/bench.h"
#include "core/profile/device_bench.h"

namespace quern {

struct BenchProcessOptions {
  std::vector<std::string> command;  // such as {"/usr/libexec/quern/quern-worker", "--bench", "0"}
  DeviceBenchOptions bench;          // but for its device, which the command names
  // What makes the reference that runs on the GPU; without it the CPU's serves, which compares a sample of
  // what is large.
  Compiler* compiler = nullptr;
  const Target* target = nullptr;
  // A call hangs when it takes longer than `least` and four times what the longest like it took that was
  // answered; as long as there was none, longer than `first`.
  std::chrono::milliseconds least{2000}, first{60000};
};

// Starts the process. NO_DEVICE when it has no usable GPU, OUT_OF_MEMORY when the graph's tensors do not fit
// there.
Result<std::unique_ptr<Bench>> open_bench(const Graph& graph, const BenchProcessOptions& options);

// The inside of that process: serves a bench over the socket until its end; the exit status. It dies with its
// parent.
using OpenBench = std::function<Result<std::unique_ptr<Bench>>(const Graph&, const DeviceBenchOptions&)>;
int serve_bench(int socket, const OpenBench& open);

}  // namespace quern
