#include "core/emulator/async_copy.h"

#include <algorithm>
#include <cstring>

namespace quern::emulated {

namespace {

constexpr int64_t kUnit = 16;  // bytes that swizzles keep together

}  // namespace

template <class Visit>
bool Copy::for_each_part(Visit visit) const {
  if (map.map) return for_each_part_of_box(visit);
  if (global_bytes > 0 && !visit(global, shared, global_bytes)) return false;
  return global_bytes == bytes || visit(0, shared + global_bytes, bytes - global_bytes);
}

template <class Visit>
bool Copy::for_each_part_of_box(Visit visit) const {
  const TensorMap& tensor = *map.map;
  const size_t rank = tensor.shape.size(), size = dtype_size(tensor.dtype);
  const int64_t row = tensor.box.back(), extent = tensor.shape.back(),
                unit = kUnit / static_cast<int64_t>(size);
  for (int64_t number = 0; number < static_cast<int64_t>(bytes / size); number += row) {
    int64_t left = number / row, offset = 0;
    bool inside = true;
    for (size_t i = 1; i < rank; ++i) {
      const size_t d = rank - 1 - i;
      const int64_t coordinate = at[i] + left % tensor.box[d];
      left /= tensor.box[d];
      inside &= coordinate >= 0 && coordinate < tensor.shape[d];
      offset += coordinate * tensor.strides[d];
    }
    for (int64_t i = 0, end = 0; i < row; i = end) {
      const int64_t x = at[0] + i;
      end = std::min(row, (i / unit + 1) * unit);
      if (x < 0) end = std::min(end, i - x);
      if (x < extent) end = std::min(end, i + extent - x);
      const bool there = inside && x >= 0 && x < extent;
      if (!visit(there ? map.base + static_cast<uintptr_t>(offset + x) * size : 0,
                 swizzled(static_cast<uintptr_t>(number + i) * size), static_cast<size_t>(end - i) * size))
        return false;
    }
  }
  return true;
}

// 128 bytes: bits 4 to 6 are xored with bits 7 to 9; 64: two of them; 32: one.
uintptr_t Copy::swizzled(uintptr_t offset) const {
  const uintptr_t mask = map.map->swizzle ? (map.map->swizzle - 1) & 0x70 : 0;
  return (shared + offset) ^ ((shared + offset) >> 3 & mask);
}

std::string Copy::begin(Memory& memory, int thread) const {
  const auto alignment = static_cast<uintptr_t>(instruction->alignment);
  const bool loads = instruction->loads;
  auto misaligned = [&](bool to, uintptr_t place) {
    return std::string("misaligned ") + instruction->name + (to ? " to " : " from ") + memory.locate(place) +
           ", which is not aligned to " + std::to_string(alignment) + " bytes";
  };
  if (shared % alignment != 0) return misaligned(loads, shared);
  if (global_bytes > 0 && global % alignment != 0) return misaligned(!loads, global);
  if (!loads && !memory.read_beside(shared, bytes, thread, instruction->proxy)) return memory.violation();
  const bool good = for_each_part([&](uintptr_t there, uintptr_t, size_t size) {
    return there == 0 ||
           (loads ? memory.read_global(there, size, thread) : memory.write(there, size, thread));
  });
  if (!good || (loads && !memory.begin_copy(shared, bytes, thread, instruction->proxy)))
    return memory.violation();
  if (!loads) memory.hold(shared, bytes, instruction->name);
  return "";
}

std::string Copy::end(Memory& memory, Stamp stamp) const {
  const bool loads = instruction->loads;
  const bool good = for_each_part([&](uintptr_t there, uintptr_t here, size_t size) {
    // The hardware may read the source until its thread has waited.
    if (loads && there && instruction->group && !memory.read_global(there, size, static_cast<int>(stamp.who)))
      return false;
    void* const to = reinterpret_cast<void*>(loads ? here : there);
    if (there)
      memcpy(to, reinterpret_cast<const void*>(loads ? there : here), size);
    else if (loads)
      memset(to, 0, size);
    return true;
  });
  if (!good) return memory.violation();
  if (loads)
    memory.end_copy(shared, bytes, stamp, instruction->proxy);
  else
    memory.release(shared, bytes);
  return "";
}

std::string CopyGroups::wait(int pending, Memory& memory, Stamp stamp) {
  auto is_due = [&](const Asked& each) { return each.group < committed_ - pending; };
  for (const Asked& each : copies_)
    if (is_due(each))
      if (std::string wrong = each.copy.end(memory, stamp); !wrong.empty()) return wrong;
  std::erase_if(copies_, is_due);
  return "";
}

}  // namespace quern::emulated
