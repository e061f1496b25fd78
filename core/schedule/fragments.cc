#include "core/schedule/fragments.h"

#include <bit>

#include "core/base/status.h"

namespace quern {

namespace {

int log2_of(int size) {
  check(size > 0 && std::has_single_bit(static_cast<unsigned>(size)), "a layout's size is a power of two");
  return std::countr_zero(static_cast<unsigned>(size));
}

Layout with_all_inputs(Layout layout) {
  for (std::string_view name : {kRegister, kLane, kWarp})
    if (!layout.has_input(name)) layout = layout * Layout::zeros(name, 0);
  return layout;
}

// Inputs in the order register, lane, warp.
Layout in_usual_order(const Layout& layout, std::string_view first_output, std::string_view second_output) {
  const std::string_view inputs[] = {kRegister, kLane, kWarp};
  const std::string_view outputs[] = {first_output, second_output};
  return with_all_inputs(layout).reordered(inputs, outputs);
}

}  // namespace

Layout steps(std::string_view input, std::string_view output, int size) {
  return Layout::identity(input, output, log2_of(size));
}

Layout along_warps(const Layout& layout, std::string_view dim, int warps) {
  return layout * (dim.empty() ? Layout::zeros(kWarp, log2_of(warps)) : steps(kWarp, dim, warps));
}

Layout mma_a(MmaKind kind, std::string_view rows, std::string_view columns) {
  const int packed = kind == MmaKind::m16n8k16_16bit ? 2 : 1;
  Layout layout = steps(kRegister, columns, packed) * steps(kLane, columns, 4) * steps(kLane, rows, 8) *
                  steps(kRegister, rows, 2) * steps(kRegister, columns, 2);
  return in_usual_order(layout, rows, columns);
}

Layout mma_b(MmaKind kind, std::string_view rows, std::string_view columns) {
  const int packed = kind == MmaKind::m16n8k16_16bit ? 2 : 1;
  Layout layout = steps(kRegister, rows, packed) * steps(kLane, rows, 4) * steps(kLane, columns, 8) *
                  steps(kRegister, rows, 2);
  return in_usual_order(layout, rows, columns);
}

Layout mma_c(std::string_view rows, std::string_view columns) {
  Layout layout = steps(kRegister, columns, 2) * steps(kLane, columns, 4) * steps(kLane, rows, 8) *
                  steps(kRegister, rows, 2);
  return in_usual_order(layout, rows, columns);
}

Layout wgmma_a(MmaKind kind, std::string_view rows, std::string_view columns) {
  return along_warps(mma_a(kind, rows, columns), rows, 4);
}

Layout wgmma_accumulator(int n, std::string_view rows, std::string_view columns) {
  check(n >= 8 && n <= 256, "wgmma has 8 to 256 columns");
  return along_warps(mma_c(rows, columns) * steps(kRegister, columns, n / 8), rows, 4);
}

}  // namespace quern
