// The device prelude (device/*.cuh) as text: every program given to NVRTC is prelude_text() followed by its
// kernels.
#pragma once

#include <string_view>

namespace quern {

std::string_view prelude_text();
// What follows it for targets that have TMA and mbarriers (Target::tma).
std::string_view prelude_hopper_text();
// What follows that for programs that use wgmma (Target::wgmma), in front of the shapes that they use
// (wgmma_text.h).
std::string_view prelude_wgmma_text();

// The two parts of it that hold no PTX; the emulator puts its own versions of the functions between them.
std::string_view prelude_types_text();
std::string_view prelude_composed_text();

}  // namespace quern
