// The texts that stand before every program the emulator compiles; made from the files of the same name by
// embed.py.
#pragma once

#include <string_view>

namespace quern::emulated {

std::string_view runtime_text();         // runtime.h
std::string_view host_words_text();      // host_words.h
std::string_view host_functions_text();  // host_functions.h

}  // namespace quern::emulated
