// Files and directories that nobody else may have made or may change: what the daemon serves from, locks and
// writes to.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/status.h"

namespace quern {

// PERMISSION, saying what to do, unless `path` is a directory of this user, of root or of one of `trusted`,
// in which nobody else can make or replace files. The path may lead through links of whoever owns them.
Status check_private_directory(const std::string& path, const std::vector<uid_t>& trusted = {});
// PERMISSION unless `path` is missing, or a regular file of this user or of root that nobody else may write,
// under this one name.
Status check_private_file(const std::string& path);
// Opens such a file with open()'s `flags`, made with mode 0600 where they say O_CREAT; never follows a link
// at its end. A descriptor that is closed on exec, or -1 with errno; EPERM when check_private_file() refuses
// it.
int open_private_file(const std::string& path, int flags);

}  // namespace quern
