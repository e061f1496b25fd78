// Horizontal fusion: kernels that do not depend on each other, in one launch.
//
// The grid has the blocks of the first part, behind them those of the second, and so on. Each part is printed
// as a function that finds its blocks numbered from 0, as if it were launched by itself:
//
//   __device__ __forceinline__ void q0_block(const f16* __restrict__ t0, ...) { ... }
//   extern "C" __global__ void __launch_bounds__(128) q0_joined(const f16* __restrict__ t0_0, ...) {
//     if (blockIdx.x < 96u) return q0_block(t0_0, ...);
//     q1_block(t0_1, ...);
//   }
//
// So each part is verified and proved as the kernel that it is (core/prove): no block runs two of them. That
// no part touches what another one writes is for the caller to know.
#pragma once

#include "core/base/plan.h"
#include "core/base/status.h"
#include "core/kernel/ir.h"

namespace quern::ir {

struct KernelPart {
  Kernel kernel;
  Dim3 grid, cluster;
};

struct JoinedKernel {
  std::string name;
  std::vector<KernelPart> parts;  // in the order of their blocks, which they find numbered from 0
  Dim3 grid, cluster;
  int64_t shared_bytes = 0;
};

// UNSUPPORTED where parts differ in their threads or clusters, declare shared memory themselves, or are too
// many for a launch.
Result<JoinedKernel> join_kernels(std::string name, std::vector<KernelPart> parts);

// The functions of the parts, then the kernel; its parameters are those of the parts, one after the other.
std::string print_cuda(const JoinedKernel& kernel);

}  // namespace quern::ir
