// The exit codes of `quern`, and which errors they stand for.
#pragma once

#include <span>

#include "core/base/status.h"

namespace quern {

// Scripts depend on the values: never change one.
enum ExitCode {
  kExitOk = 0,
  kExitNo = 1,
  kExitUsage = 2,
  kExitNoDaemon = 3,
  kExitGraph = 4,
  kExitFailed = 5,
  kExitPending = 6,
};

struct ExitCodeInfo {
  ExitCode code;
  const char* meaning;
};
std::span<const ExitCodeInfo> all_exit_codes();

ExitCode exit_code(const Status& status);

}  // namespace quern
