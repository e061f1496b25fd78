// The texts that reference programs are made of; made from the files of the same name by embed.py.
#pragma once

#include <string_view>

namespace quern {

std::string_view reference_shim_text();    // device_shim.cuh
std::string_view value_real_text();        // core/lang/value_real.h
std::string_view noisy_text();             // core/verify/noisy.h, noisy_steps.h and demand.h
std::string_view reference_device_text();  // reference_device.cuh

}  // namespace quern
