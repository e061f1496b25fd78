// Errors of a benchmark end it; files that it reads.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

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

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) stop(Status(ErrorCode::NOT_FOUND, path.string() + " cannot be read"));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace quern
