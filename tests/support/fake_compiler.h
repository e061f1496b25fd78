// A Compiler for tests of what stands above it: counts, refuses or delays as told.
#pragma once

#include <atomic>
#include <functional>

#include "core/jit/compiler.h"

namespace quern {

class FakeCompiler : public Compiler {
 public:
  // Called for each compile, possibly from several threads. Left empty: an ELF magic number, the target and
  // the source.
  std::function<Result<CompileOutput>(const CompileRequest&)> on_compile;
  std::string name = "fake compiler 1";
  std::atomic<int> compiles{0};

  Result<CompileOutput> compile(const CompileRequest& request) override {
    ++compiles;
    if (on_compile) return on_compile(request);
    return CompileOutput{"\177ELF" + request.target + "\n" + request.source, ""};
  }
  std::string fingerprint() const override { return name; }
};

}  // namespace quern
