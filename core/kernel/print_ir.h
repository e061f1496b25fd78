// The kernel IR as text for readers: every statement on a line, with the types of what it names, the memory
// that it touches and who takes part. Expressions are written as in CUDA. Nobody parses it.
#pragma once

#include "core/kernel/ir.h"

namespace quern::ir {

std::string print_ir(const Body& body, int indent = 0);
std::string print_ir(const Kernel& kernel);
// "f32[4]", "global const f16*".
std::string type_text(const SymbolData& symbol);

}  // namespace quern::ir
