// Who holds a lock of flock().
#pragma once

#include <string>

namespace quern {

// "process 123": the live holder of a lock on this open file, by what the kernel says, else by the number
// that the file holds; "another process" when neither names one that lives.
std::string lock_holder(int fd);

}  // namespace quern
