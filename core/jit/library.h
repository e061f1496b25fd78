// A shared library of the CUDA world, loaded with dlopen: Quern builds and starts without any of them.
#pragma once

#include <string>

#include "core/base/status.h"

namespace quern {

// Stays loaded until the process ends: neither NVRTC nor the driver promises to survive dlclose. Copies are
// cheap.
class Library {
 public:
  // `name` is a path, or a bare file name for the loader's own search. NOT_FOUND with the loader's reason.
  static Result<Library> open(const std::string& name);

  // The file it was loaded from.
  const std::string& path() const { return path_; }
  // Sets `function` to the entry point `name`; UNSUPPORTED when the library has none.
  template <class F>
  Status bind(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(find(name));
    return function ? Status() : missing(name);
  }

 private:
  void* find(const char* name) const;
  Status missing(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace quern
