// The Bench on a GPU, in this process: for a process that may die of what it runs (bench_process.h), and for
// tools.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/graph/graph.h"
#include "core/jit/driver.h"
#include "core/profile/bench.h"

namespace quern {

struct DeviceBenchOptions {
  int device = 0;
  double memory_share = 0.25;  // of what is free there; given back with the bench
  unsigned threads = 4;        // for inputs and the reference
  bool tf32 = false;           // programs that compute in tf32 may come
  // As encode_reference() writes it: what outputs should be is computed on the GPU, for all elements. Empty,
  // or where memory is short: on the CPU.
  std::string reference = {};
  // For computing on the CPU what outputs should be. Where that is too little, a sample of the elements is
  // compared.
  std::chrono::milliseconds reference_limit{10000};
};

// What a timing on this GPU depends on: "NVIDIA H200, driver 580.159.04".
std::string device_text(const Driver& driver, const DeviceInfo& device);

// `graph` must be valid. NO_DEVICE when there is no such GPU; OUT_OF_MEMORY when the graph's tensors do not
// fit the share.
Result<std::unique_ptr<Bench>> open_device_bench(const Graph& graph, const DeviceBenchOptions& options);

}  // namespace quern
