// From CUDA C++ text to a cubin, behind an interface so that tests can stand in for NVRTC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace quern {

struct CompileRequest {
  std::string source;                // complete: includes nothing
  std::string target;                // "sm_90a"
  std::vector<std::string> options;  // beyond --gpu-architecture and the language standard
};

struct CompileOutput {
  std::string cubin;
  std::string log;  // warnings; may be empty
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // COMPILE with the compiler's log when the program is refused. May be called again after any failure.
  virtual Result<CompileOutput> compile(const CompileRequest& request) = 0;
  // Names everything about the toolchain that can change its output, such as "nvrtc 13.0 build 36424714".
  // Part of the key.
  virtual std::string fingerprint() const = 0;
};

// NVRTC 12.4 or later, loaded with dlopen: `path` if it is not empty, else the usual places (see the .cc).
// NO_COMPILER with every place that was tried, and why it did not do, when there is none.
Result<std::unique_ptr<Compiler>> open_nvrtc(const std::string& path);

}  // namespace quern
