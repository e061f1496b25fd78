// Programs compiled for the emulator, loaded as a shared object: their kernels, their shared arrays and their
// lines.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/emulator/runtime.h"

namespace quern::emulated {

// A range of addresses within the shared object.
struct ProgramSection {
  std::string name;
  uintptr_t begin = 0;
  size_t size = 0;
};

class ProgramLibrary {
 public:
  // Loads `directory`/programs.so and takes the directory over: it is removed with the ProgramLibrary.
  static Result<std::shared_ptr<ProgramLibrary>> open(const std::string& directory);
  ~ProgramLibrary();
  ProgramLibrary(const ProgramLibrary&) = delete;
  ProgramLibrary& operator=(const ProgramLibrary&) = delete;

  // Null if program `program` has no such kernel.
  const Kernel* find_kernel(int program, std::string_view name) const;
  // The __shared__ arrays declared in a kernel.
  std::vector<ProgramSection> shared_arrays(int program, std::string_view kernel) const;
  // Read-only data: tables of the programs and of the compiler.
  const std::vector<ProgramSection>& constants() const { return constants_; }
  // The line in the text of `program` of the instruction before `site`; 0 if it cannot be told.
  int find_line(int program, const void* site);
  void set_runtime(const Runtime* runtime) { *runtime_ = runtime; }

 private:
  explicit ProgramLibrary(std::string directory) : directory_(std::move(directory)) {}
  Status load();
  Status read_sections();

  std::string directory_;
  void* handle_ = nullptr;
  uintptr_t base_ = 0;  // where address 0 of the file was mapped
  const Runtime** runtime_ = nullptr;
  std::vector<ProgramSection> variables_,
      constants_;                     // names of variables as in C++: "program_0::kernel(...)::tile"
  std::map<const void*, int> lines_;  // what find_line has found
};

}  // namespace quern::emulated
