#include "tests/schedule/layout_samples.h"

#include "tests/schedule/layouts.h"

namespace quern {

std::vector<LayoutSample> register_samples(int rows, int columns, int warps) {
  std::vector<LayoutSample> result;
  const std::vector<DimSize> sizes = {{"n", columns}, {"m", rows}};
  const std::string_view inputs[] = {kRegister, kLane, kWarp}, outputs[] = {"m", "n"};
  auto add = [&](const std::string& name, const Layout& tile) {
    result.push_back({name, cover(tile, sizes).reordered(inputs, outputs)});
  };
  auto add_blocked = [&](const std::string& name, std::vector<BlockedDim> dims) { add(name, blocked(dims)); };
  add_blocked("rows of 8", {{"n", 8, 2, 1}, {"m", 1, 16, warps}});
  add_blocked("rows of 4", {{"n", 4, 4, 1}, {"m", 1, 8, warps}});
  add_blocked("rows of 2", {{"n", 2, 8, 1}, {"m", 2, 4, warps}});
  add_blocked("single elements", {{"n", 1, 16, 1}, {"m", 1, 2, warps}});
  add_blocked("columns of 8", {{"m", 8, 2, 1}, {"n", 1, 16, warps}});
  add_blocked("columns of 4", {{"m", 4, 4, 1}, {"n", 1, 8, warps}});
  add_blocked("warps side by side", {{"n", 2, 4, warps}, {"m", 1, 8, 1}});
  for (MmaKind kind : {MmaKind::m16n8k16_16bit, MmaKind::m16n8k8_tf32}) {
    const std::string k = " k" + std::to_string(mma_k(kind));
    add("mma A" + k, along_warps(mma_a(kind, "m", "n"), "m", warps));
    add("mma B" + k, along_warps(mma_b(kind, "m", "n"), "n", warps));
    add("mma A transposed" + k, copied_to_warps(mma_a(kind, "n", "m"), warps));
    add("mma B transposed" + k, copied_to_warps(mma_b(kind, "n", "m"), warps));
    if (warps == 4) add("wgmma A" + k, wgmma_a(kind, "m", "n"));
  }
  add("mma C", along_warps(mma_c("m", "n"), "m", warps));
  add("mma C transposed", along_warps(mma_c("n", "m"), "n", warps));
  if (warps == 4) add("wgmma accumulator", wgmma_accumulator(16, "m", "n"));
  // What a row reduction leaves, spread over the columns again: lanes hold copies.
  const Layout reduced = mma_c("m", "n").without_output("n");
  add("copies along a row", along_warps(reduced, "m", warps) * Layout::identity(kRegister, "n", 0));
  // Direct to registers: fragments with 16 contiguous bytes of 16-bit elements.
  const Layout wide = mma_a(MmaKind::m16n8k16_16bit, "m", "n") * Layout::identity(kRegister, "n", 1);
  if (columns >= 32) add("direct A", along_warps(wide.then(contiguous_permutation(wide, "n")), "m", warps));
  return result;
}

Layout random_layout(std::mt19937_64& random, int register_bits, int lane_bits, int warp_bits, int m_bits,
                     int n_bits) {
  F2Matrix matrix{m_bits + n_bits, {}};
  for (int i = 0; i < register_bits + lane_bits + warp_bits; ++i)
    matrix.columns.push_back(random() & ((uint64_t{1} << (m_bits + n_bits)) - 1));
  return Layout({{"register", register_bits}, {"lane", lane_bits}, {"warp", warp_bits}},
                {{"m", m_bits}, {"n", n_bits}}, std::move(matrix));
}

Layout random_bijection(std::mt19937_64& random, int register_bits, int lane_bits, int warp_bits, int m_bits,
                        int n_bits) {
  for (;;) {
    Layout layout = random_layout(random, register_bits, lane_bits, warp_bits, m_bits, n_bits);
    if (layout.is_surjective() && layout.is_injective()) return layout;
  }
}

}  // namespace quern
