// One kernel of a baseline program and how it is launched; what the emitters of the kinds of kernels give.
#pragma once

#include "core/codegen/kernel_writer.h"

namespace quern {

struct BaselineKernel {
  const char* kind = "";  // "points", "rows", "matmul": part of the kernel's name
  ir::Kernel kernel;      // without a name
  Dim3 grid;
  std::vector<LaunchArg> args;
  LaunchWork work;
};

// A one-dimensional grid of `blocks` blocks, folded into two dimensions when there are too many, and the
// number of a block in it; a folded grid may have a few blocks too many.
struct BlockGrid {
  Dim3 grid;
  ir::Expr number = 0;  // unsigned, or wider
  bool exact = true;
};
BlockGrid block_grid(int64_t blocks);

BaselineKernel emit_rows(const Graph& graph, const Kernel& kernel, const Partition& partition,
                         const Storage& storage);
BaselineKernel emit_matmul(const Graph& graph, const Kernel& kernel, const Partition& partition,
                           const Storage& storage);

}  // namespace quern
