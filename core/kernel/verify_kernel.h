// Rules that every kernel of the IR keeps, whoever made it. They look at its structure alone, in
// microseconds; what depends on extents and indices is proved by core/prove.
//
//   names      are defined before their uses, once in a scope; what is assigned to may be written
//   operands   are of the kinds that instructions.def says, and as many; vectors have registers enough
//   barriers   stand where all threads of their level come, with the number of those that do
//   copies     are committed before they are waited for, and waited for before the kernel ends; so are wgmma
//   mbarriers  are initialised before they are used, and the block has waited for that
//   shared     memory that a thread wrote is read after a barrier
#pragma once

#include "core/base/status.h"
#include "core/kernel/ir.h"

namespace quern::ir {

// INTERNAL says which statement breaks which rule.
Status verify_kernel(const Kernel& kernel);

// The two halves of it.
Status verify_names(const Kernel& kernel);
Status verify_order(const Kernel& kernel);

// The first line of the statement, as it is printed.
std::string statement_text(const Stmt& stmt);

}  // namespace quern::ir
