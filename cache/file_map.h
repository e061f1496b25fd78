// A file mapped for reading, whose faults are errors: a file that is cut short, or a disk that fails, ends a
// process that reads a plain mapping with SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/status.h"

namespace quern {

class FileMap {
 public:
  // `bytes` may reach beyond the end of the file, which may grow into them. Where the address space has no
  // room, the file is read without a mapping. Keeps a descriptor of its own.
  static Result<std::shared_ptr<const FileMap>> map(int fd, uint64_t bytes);
  ~FileMap();
  FileMap(const FileMap&) = delete;

  uint64_t bytes() const { return bytes_; }
  // Copies; false when not all of it can be read. From any thread.
  bool read(uint64_t at, size_t size, void* to) const;

 private:
  FileMap(int fd, uint64_t bytes) : fd_(fd), bytes_(bytes) {}

  const int fd_;
  const uint64_t bytes_;
  const char* start_ = nullptr;  // null: not mapped
};

}  // namespace quern
