// The text form of a layout: a line with the dimensions and their sizes, then a line for each input dimension
// with what each of its bits adds to the outputs, lowest bit first:
//
//   register[4], lane[4] -> m[4], n[4]
//   register: (0, 1) (2, 0)
//   lane: (0, 2) (1, 0)
#pragma once

#include <string>

#include "core/schedule/layout.h"

namespace quern {

std::string print_layout(const Layout& layout);

}  // namespace quern
