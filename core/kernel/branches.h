// Values that are chosen from two, and what compilers make of them.
#pragma once

#include "core/kernel/ir.h"

namespace quern::ir {

// Whether compilers branch around one of two values that the expression chooses from, instead of computing both.
bool branches(const Expr& expr);

// The same with such values computed in front of the statements that choose, both of them, as far as they are
// arithmetic that may be done in vain: no loads, no quotients of integers.
Body without_branches(const Body& body);

}  // namespace quern::ir
