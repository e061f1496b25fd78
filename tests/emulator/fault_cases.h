// Kernels with a planted fault: the emulator must refuse them with a message that names the broken rule,
// whatever the order of threads; the same kernel put right must pass and compute the right values.
#pragma once

#include <span>
#include <string>

#include "tests/emulator/run_support.h"

namespace quern::emulated {

struct FaultCase {
  const char* name;
  std::string text;       // with pairs @RIGHT@WRONG@ of which one side is taken
  const char* rule;       // what the message must say about the wrong one
  float (*value)(int i);  // of y[i], where x[i] = i + 1
  uint32_t length = 128;  // of x and y
  Dim3 grid = {2}, block = {64};
  uint32_t shared_bytes = 0;
  uint64_t workspace_bytes = 0;
  Dim3 cluster = {1};
  int64_t box = 0;     // the last parameter is a tensor map of x with boxes of so many elements; 0: none
  bool twice = false;  // the kernel runs once more, and overlaps with itself
  bool first_overlaps = false;  // with what is in front of the plan
};

inline float x(int i) { return static_cast<float>(i + 1); }
inline float same(int i) { return x(i); }

// One test for each case; the exit status of the program.
int run_fault_cases(const char* group, std::span<const FaultCase> cases);

}  // namespace quern::emulated
