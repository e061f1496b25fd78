#include "core/emulator/tensor_map.h"

#include <cstring>

namespace quern::emulated {

template <class Visit>
void BoundTensorMap::for_each_element(const BoxPlace& at, Visit visit) const {
  const size_t rank = map->shape.size(), size = dtype_size(map->dtype);
  const int64_t count = map->box_bytes() / static_cast<int64_t>(size);
  for (int64_t number = 0; number < count; ++number) {
    int64_t left = number, offset = 0;
    bool inside = true;
    for (size_t i = 0; i < rank; ++i) {
      const size_t d = rank - 1 - i;
      const int64_t coordinate = at[i] + left % map->box[d];
      left /= map->box[d];
      inside &= coordinate >= 0 && coordinate < map->shape[d];
      offset += coordinate * map->strides[d];
    }
    if (!visit(inside ? base + static_cast<uintptr_t>(offset) * size : 0,
               static_cast<uintptr_t>(number) * size))
      return;
  }
}

bool BoundTensorMap::read_box(const BoxPlace& at, Memory& memory, int thread) const {
  bool good = true;
  for_each_element(at, [&](uintptr_t from, uintptr_t) {
    return good = from == 0 || memory.read(from, dtype_size(map->dtype), thread);
  });
  return good;
}

// 128 bytes: bits 4 to 6 are xored with bits 7 to 9; 64: two of them; 32: one.
uintptr_t BoundTensorMap::swizzled(uintptr_t begin, uintptr_t offset) const {
  const uintptr_t mask = map->swizzle ? (map->swizzle - 1) & 0x70 : 0;
  return (begin + offset) ^ ((begin + offset) >> 3 & mask);
}

void BoundTensorMap::copy_box(const BoxPlace& at, uintptr_t to) const {
  const size_t size = dtype_size(map->dtype);
  for_each_element(at, [&](uintptr_t from, uintptr_t offset) {
    const uintptr_t place = swizzled(to, offset);
    if (from)
      memcpy(reinterpret_cast<void*>(place), reinterpret_cast<const void*>(from), size);
    else
      memset(reinterpret_cast<void*>(place), 0, size);
    return true;
  });
}

bool BoundTensorMap::write_box(const BoxPlace& at, Memory& memory, int thread) const {
  bool good = true;
  for_each_element(at, [&](uintptr_t to, uintptr_t) {
    return good = to == 0 || memory.write(to, dtype_size(map->dtype), thread);
  });
  return good;
}

void BoundTensorMap::store_box(const BoxPlace& at, uintptr_t from) const {
  const size_t size = dtype_size(map->dtype);
  for_each_element(at, [&](uintptr_t to, uintptr_t offset) {
    if (to) memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(swizzled(from, offset)), size);
    return true;
  });
}

}  // namespace quern::emulated
