// The difference of two texts, line by line.
#pragma once

#include <string>
#include <string_view>

namespace quern {

// Lines only in `a` after "-", lines only in `b` after "+", equal lines next to them after a space; "" for
// equal texts.
std::string diff_lines(std::string_view a, std::string_view b);

}  // namespace quern
