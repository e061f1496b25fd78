// Bank conflicts of staged tiles, counted: all shapes that tiles can have, read by matrices and written by 16
// bytes.
#include <algorithm>
#include <set>

#include "tests/schedule/layouts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr int kMostPanel = 128, kUnit = 16, kUnits = 8;  // bytes; that banks serve at once

struct Shape {
  int element_bytes, row_bytes, rows;

  int panel() const { return std::min(row_bytes, kMostPanel); }
  int in_row() const { return row_bytes / element_bytes; }
  Layout memory() const {
    return swizzled_panels(element_bytes, panel(), {"inner", in_row()}, {"rows", rows});
  }
};

std::vector<Shape> shapes() {
  std::vector<Shape> out;
  for (int element_bytes : {2, 4})
    for (int row_bytes = 16; row_bytes <= 512; row_bytes *= 2)
      for (int rows = 1; rows <= 256; rows *= 2) out.push_back({element_bytes, row_bytes, rows});
  return out;
}

uint64_t byte_of(const Shape& shape, const Layout& memory, int row, int byte) {
  const uint64_t point[] = {static_cast<uint64_t>(byte / shape.element_bytes), static_cast<uint64_t>(row)};
  return memory.apply(point)[0] * static_cast<uint64_t>(shape.element_bytes);
}

size_t unit_banks(const std::vector<uint64_t>& bytes) {
  std::set<uint64_t> banks;
  for (uint64_t byte : bytes) banks.insert(byte / kUnit % kUnits);
  return banks.size();
}

void matrices_are_read_without_conflicts(void**) {
  for (const Shape& shape : shapes()) {
    const Layout memory = shape.memory();
    for (int first = 0; first < shape.rows; first += 8)
      for (int byte = 0; byte < shape.row_bytes; byte += kUnit) {
        std::vector<uint64_t> bytes;
        for (int row = first; row < std::min(first + 8, shape.rows); ++row)
          bytes.push_back(byte_of(shape, memory, row, byte));
        assert_int_equal(unit_banks(bytes), bytes.size());
      }
  }
}

// Neighbouring lanes write what lies in the order of a panel before its swizzle.
void copies_are_written_without_conflicts(void**) {
  for (const Shape& shape : shapes()) {
    const Layout memory = shape.memory();
    std::vector<uint64_t> bytes;
    for (int panel = 0; panel < shape.row_bytes; panel += shape.panel())
      for (int row = 0; row < shape.rows; ++row)
        for (int byte = 0; byte < shape.panel(); byte += kUnit) {
          bytes.push_back(byte_of(shape, memory, row, panel + byte));
          if (bytes.size() < kUnits) continue;
          assert_int_equal(unit_banks(bytes), kUnits);
          bytes.clear();
        }
  }
}

// As the emitted kernels compute it: swizzled<mask>.
void swizzles_are_one_mask(void**) {
  for (const Shape& shape : shapes()) {
    const Layout memory = shape.memory();
    const int size = shape.element_bytes;
    const int mask = shape.panel() >= 32 ? (shape.panel() - 1) / size & 0x70 / size : 0;
    for (int row = 0; row < shape.rows; ++row)
      for (int at = 0; at < shape.in_row(); ++at) {
        const int in_panel = shape.panel() / size, panel = at / in_panel;
        const int dense = panel * in_panel * shape.rows + row * in_panel + at % in_panel;
        assert_int_equal(byte_of(shape, memory, row, at * size), (dense ^ (dense >> 3 & mask)) * size);
      }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(matrices_are_read_without_conflicts),
                              cmocka_unit_test(copies_are_written_without_conflicts),
                              cmocka_unit_test(swizzles_are_one_mask)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
