// The text of one kernel and how it is launched; what the emitters of the kinds of kernels give.
#pragma once

#include "core/codegen/kernel_writer.h"

namespace quern {

struct KernelText {
  const char* kind = "";  // "points", "rows", "matmul": part of the kernel's name
  std::string signature;  // between the kernel's name and its body: "(const float* p0, ...)"
  std::string body;       // lines, without the braces
  int threads = 0;
  Dim3 grid;
  std::vector<LaunchArg> args;
  LaunchWork work;
};

// A one-dimensional grid of `blocks` blocks, folded into two dimensions when there are too many, and the
// number of a block in it; a folded grid may have a few blocks too many.
struct BlockGrid {
  Dim3 grid;
  std::string number;  // "blockIdx.x"
  bool exact = true;
};
BlockGrid block_grid(int64_t blocks);

KernelText emit_rows(const Graph& graph, const Kernel& kernel, const Partition& partition,
                     const Storage& storage);
KernelText emit_matmul(const Graph& graph, const Kernel& kernel, const Partition& partition,
                       const Storage& storage);

}  // namespace quern
