// Compiles emitted CUDA text with the host's C++ compiler, many programs at a time: a compiler start costs
// more than a small program.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/emulator/program_library.h"

namespace quern::emulated {

// What the code generator emits after the prelude, and the kernels in it that will be launched. The text
//  - declares kernels as extern "C" __global__ void NAME(...), whose parameters are pointers or 64-bit
//  integers,
//  - has static __shared__ arrays inside kernels (aligned by __align__, not alignas) and gets dynamic shared
//  memory from
//    dynamic_shared<T>(),
//  - uses PTX, shuffles and votes only through the prelude, and of CUDA's functions those in
//  host_functions.h.
struct ProgramSource {
  std::string text;
  std::vector<std::string> kernels;
};

struct Program {
  std::string text;
  std::shared_ptr<ProgramLibrary> library;
  int index = 0;  // within the library
};

// One Program for each source, in order. Uses $CXX, else g++. NOT_FOUND if it cannot be started; COMPILE with
// its messages, whose lines are those of the text, if it refuses one of the texts. `processors`: compilers at
// a time, 0 for all that the machine has.
Result<std::vector<Program>> compile_programs(std::span<const ProgramSource> sources, size_t processors = 0);
Result<Program> compile_program(const ProgramSource& source);

}  // namespace quern::emulated
