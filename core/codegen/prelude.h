// The device prelude (device/*.cuh) as text: every program given to NVRTC is prelude_text() followed by its
// kernels.
#pragma once

#include <string_view>

namespace quern {

std::string_view prelude_text();
// What follows it for targets that have a copy engine and mbarriers (Target::tma).
std::string_view prelude_hopper_text();

// The two parts of it that hold no PTX; the emulator puts its own versions of the functions between them.
std::string_view prelude_types_text();
std::string_view prelude_composed_text();

}  // namespace quern
