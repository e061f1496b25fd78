// Executes conversions thread by thread, as the hardware manual describes the instructions: what the plans
// claim is checked against what happens here.
#pragma once

#include <cstdint>
#include <vector>

#include "core/schedule/conversion.h"

namespace quern {

// values[warp][lane][register]; kNothing is a register that was never written.
using RegisterFile = std::vector<std::vector<std::vector<int64_t>>>;
inline constexpr int64_t kNothing = -1;

// Each register holds the number (flat tensor point) of its element.
RegisterFile fill(const Layout& layout);
RegisterFile empty_registers(const Layout& layout);

void run_shuffle(const ShufflePlan& plan, const std::vector<int>& filled, const RegisterFile& from,
                 RegisterFile& to);

// What all warps did together, wavefronts counted bank by bank.
struct Traffic {
  int64_t warps = 0;  // that took part
  int64_t wavefronts = 0;
  int64_t instructions = 0;
};
// memory[offset] is an element number. A store of an element that is already there fails the test, and so
// does a vector that is not aligned.
Traffic run_store(const SharedAccess& access, const RegisterFile& from, int element_bytes,
                  std::vector<int64_t>& memory);
Traffic run_load(const SharedAccess& access, const std::vector<int64_t>& memory, int element_bytes,
                 RegisterFile& to);

// That with the fewest wavefronts, then instructions.
SharedAccess best_access(const Layout& registers, const Layout& memory, int element_bytes, AccessKind kind);

void run_copies(const std::vector<int>& copy_of, RegisterFile& registers);

}  // namespace quern
