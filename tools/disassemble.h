// SASS of a cubin, by whichever disassembler of CUDA is installed.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace quern {

// nvdisasm or else cuobjdump, in $PATH or $CUDA_HOME/bin. IO when neither is there, or it refuses
// the cubin.
Result<std::string> disassemble(std::string_view cubin);

}  // namespace quern
