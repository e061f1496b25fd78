// The same statements with other expressions.
#pragma once

#include "core/kernel/ir.h"

namespace quern::ir {

Body replaced(const Body& body, const Replacement& by);
// With another array's name; declarations stay as they are.
Body renamed(const Body& body, const Symbol& from, const Symbol& to);

}  // namespace quern::ir
