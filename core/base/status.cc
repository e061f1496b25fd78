#include "core/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace quern {

const char* error_name(ErrorCode code) {
  switch (code) {
#define QUERN_ERROR(name, value, meaning) \
  case ErrorCode::name:                   \
    return #name;
#include "core/base/errors.def"
#undef QUERN_ERROR
  }
  return "UNKNOWN";
}

const char* error_meaning(ErrorCode code) {
  switch (code) {
#define QUERN_ERROR(name, value, meaning) \
  case ErrorCode::name:                   \
    return meaning;
#include "core/base/errors.def"
#undef QUERN_ERROR
  }
  return "an error code that this version does not know";
}

Status Status::with_context(std::string_view context) const {
  return Status(code_, std::string(context) + ": " + message_);
}

void fatal(const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "quern: internal error at %s:%d: %.*s\n", file, line, static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace quern
