// Errors of a benchmark end it.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "core/base/status.h"

namespace quern {

[[noreturn]] inline void stop(const Status& status) {
  std::fprintf(stderr, "%s: %s\n", error_name(status.code()), status.message().c_str());
  std::exit(1);
}
template <class T>
T need(Result<T> result) {
  if (!result) stop(result.status());
  return std::move(*result);
}
inline void need(const Status& status) {
  if (!status.ok()) stop(status);
}

}  // namespace quern
