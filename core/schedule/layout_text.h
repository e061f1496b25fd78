// The text form of a layout: a line with the dimensions and their sizes, then a line for each input dimension
// with what each of its bits adds to the outputs, lowest bit first:
//
//   register[4], lane[4] -> m[4], n[4]
//   register: (0, 1) (2, 0)
//   lane: (0, 2) (1, 0)
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/schedule/layout.h"

namespace quern {

std::string print_layout(const Layout& layout);
// Exactly what print_layout gives parses, with any spacing within a line. INVALID_ARGUMENT says the line.
Result<Layout> parse_layout(std::string_view text);

}  // namespace quern
