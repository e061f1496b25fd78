// A folder of the system's temporary ones that goes with the process, also when a signal ends it.
#pragma once

#include <string>

#include "core/base/status.h"

namespace quern::emulated {

// Makes one. IO. Where SIGINT, SIGTERM or SIGHUP would end the process they first remove all such folders
// with the files in them.
Result<std::string> make_temporary_folder();
// With the files in it; a folder that is gone is no error.
void remove_temporary_folder(const std::string& path);

}  // namespace quern::emulated
