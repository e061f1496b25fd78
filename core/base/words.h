// Lines of words, as manifests have them: words are separated by blanks, stand in double quotes where they
// hold some, with \" and \\ inside, and "#" outside of quotes starts a comment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace quern {

// INVALID_ARGUMENT for a quote that does not end.
Result<std::vector<std::string>> split_words(std::string_view line);
// In quotes where it needs them.
std::string quoted_word(std::string_view word);

}  // namespace quern
