#include "tools/exit_code.h"

namespace quern {

namespace {

constexpr ExitCodeInfo kExitCodes[] = {
    {kExitOk, "it was done, and what was checked holds"},
    {kExitNo, "what was checked does not hold, or there is no such file, key or plan"},
    {kExitUsage, "the command line is wrong"},
    {kExitNoDaemon, "the daemon cannot be reached, started or trusted"},
    {kExitGraph, "the graph or the target is not valid"},
    {kExitFailed, "it could not be done: compiler, worker, GPU, disk, ..."},
    {kExitPending, "not ready yet: asked not to wait, or the time is up; ask again"},
};

}  // namespace

std::span<const ExitCodeInfo> all_exit_codes() { return kExitCodes; }

ExitCode exit_code(const Status& status) {
  switch (status.code()) {
    case ErrorCode::OK:
      return kExitOk;
    case ErrorCode::NOT_FOUND:
    case ErrorCode::CORRUPT:
      return kExitNo;
    case ErrorCode::INVALID_ARGUMENT:
      return kExitUsage;
    case ErrorCode::NO_DAEMON:
    case ErrorCode::DISCONNECTED:
    case ErrorCode::PERMISSION:
      return kExitNoDaemon;
    case ErrorCode::INVALID_GRAPH:
    case ErrorCode::LIMIT:
    case ErrorCode::UNSUPPORTED:
      return kExitGraph;
    case ErrorCode::PENDING:
    case ErrorCode::TIMEOUT:
      return kExitPending;
    default:
      return kExitFailed;
  }
}

}  // namespace quern
