#include <cstdio>

#include "core/kernel/count.h"

namespace quern::ir {

const char* path_name(Path path) {
  constexpr const char* kNames[kPaths] = {"global load",  "global store", "cp.async", "shared load",
                                          "shared store", "cluster load", "ldmatrix"};
  return kNames[static_cast<size_t>(path)];
}

std::string print_counts(const Counts& counts) {
  std::string out;
  auto line = [&](const std::string& what, std::initializer_list<std::pair<double, const char*>> numbers) {
    if (numbers.begin()->first == 0) return;
    std::string text;
    for (const auto& [number, unit] : numbers) {
      char part[64];
      std::snprintf(part, sizeof part, "%s%.10g %s", text.empty() ? "" : ", ", number, unit);
      text += part;
    }
    out += "  " + what + ": " + text + "\n";
  };
  for (size_t p = 0; p < kPaths; ++p) {
    const bool global = p <= static_cast<size_t>(Path::cp_async);
    for (const auto& [width, count] : counts.accesses[p])
      line(std::string(path_name(static_cast<Path>(p))) + " of " + std::to_string(width) + " bytes",
           {{count.instructions, "instructions of warps"},
            {static_cast<double>(width) * count.accesses, "bytes"},
            {count.moved, global ? "sectors" : "wavefronts"}});
  }
  line("TMA loads", {{counts.tma_loads, "copies"}, {counts.tma_load_bytes, "bytes"}});
  line("TMA stores", {{counts.tma_stores, "copies"}, {counts.tma_store_bytes, "bytes"}});
  line("products",
       {{counts.mma_flops + counts.wgmma_flops, "FLOP"}, {counts.mma, "mma"}, {counts.wgmma, "wgmma"}});
  line("arithmetic", {{counts.simple + counts.special + counts.slow, "instructions of warps"},
                      {counts.special, "special"},
                      {counts.slow, "slow"}});
  line("shuffles", {{counts.shuffles, "instructions of warps"}});
  line("barriers", {{counts.barriers + counts.cluster_barriers + counts.mbarrier_waits, "waits"},
                    {counts.cluster_barriers, "of clusters"},
                    {counts.mbarrier_waits, "mbarriers"}});
  return out;
}

}  // namespace quern::ir
