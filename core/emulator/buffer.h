// A buffer with the least alignment a kernel may count on, far from every other mapping.
#pragma once

#include <cstddef>

namespace quern::emulated {

class GuardedBuffer {
 public:
  // `size` bytes of poison at a multiple of `alignment` (a power of two, at most 1024) that is none of twice
  // as much.
  GuardedBuffer(size_t size, size_t alignment);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0, size_ = 0;
  char* data_ = nullptr;
};

}  // namespace quern::emulated
