#include "core/emulator/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/base/status.h"

namespace quern::emulated {

namespace {

// Farther than a wrong index usually goes; address space only, never touched.
constexpr size_t kRedZone = size_t{1} << 20;
constexpr int kPoison = 0xcd;

}  // namespace

GuardedBuffer::GuardedBuffer(size_t size, size_t alignment)
    : mapped_(size + 2 * kRedZone + 4096), size_(size) {
  mapping_ =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(mapping_ != MAP_FAILED, "there is memory for the buffers of a plan");
  uintptr_t begin = reinterpret_cast<uintptr_t>(mapping_) + kRedZone;
  data_ = reinterpret_cast<char*>((begin & ~uintptr_t{2047}) + 2048 + alignment);
  memset(data_, kPoison, size);
}

GuardedBuffer::~GuardedBuffer() {
  if (mapping_) munmap(mapping_, mapped_);
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(other.mapped_),
      size_(other.size_),
      data_(other.data_) {}

}  // namespace quern::emulated
