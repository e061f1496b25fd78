// One kernel of a baseline program and how it is launched; what the emitters of the kinds of kernels give.
#pragma once

#include "core/base/target.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

struct BaselineKernel {
  const char* kind = "";  // "points", "rows", "matmul": part of the kernel's name
  ir::Kernel kernel;      // without a name
  Dim3 grid;
  uint32_t cluster = 1;  // blocks
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

// What the kernels of a program have in common. `overlapped`: each begins while the one in front of it ends.
struct BaselineProgram {
  const Graph& graph;
  const Partition& partition;
  const Storage& storage;
  const Target& target;
  bool overlapped = false;
};

BaselineKernel emit_rows(const BaselineProgram& program, const Kernel& kernel);
BaselineKernel emit_matmul(const BaselineProgram& program, const Kernel& kernel);

}  // namespace quern
