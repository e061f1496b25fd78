#include "core/emulator/collective.h"

#include <cmath>
#include <cstring>

#include "core/base/dtype.h"

namespace quern::emulated {

namespace {

int source_lane(Collective kind, int lane, int operand) {
  switch (kind) {
    case Collective::shuffle_xor:
      return (lane ^ operand) & (kWarpSize - 1);
    case Collective::shuffle_down:
      return lane + operand < kWarpSize ? lane + operand : lane;
    default:
      return operand & (kWarpSize - 1);
  }
}

std::string shuffle(Collective kind, const WarpOperands& warp) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!(warp.mask >> lane & 1)) continue;
    auto* own = static_cast<ShuffleOperands*>(warp.lanes[lane]);
    const int source = source_lane(kind, lane, own->lane);
    if (!(warp.mask >> source & 1))
      return std::string(collective_name(kind)) + " reads lane " + std::to_string(source) + " from lane " +
             std::to_string(lane) + ", which does not take part";
    own->result = static_cast<ShuffleOperands*>(warp.lanes[source])->value;
  }
  return "";
}

void ballot(const WarpOperands& warp) {
  unsigned votes = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (warp.mask >> lane & 1 && static_cast<ShuffleOperands*>(warp.lanes[lane])->value) votes |= 1u << lane;
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (warp.mask >> lane & 1) static_cast<ShuffleOperands*>(warp.lanes[lane])->result = votes;
  }
}

// What the hardware reads of a register with tf32. PTX leaves open what the other bits do, so they must be 0:
// an operand that to_tf32 has not made would be cut off, not rounded.
constexpr unsigned kTf32Bits = 0xffffe000u;

std::string check_tf32(const WarpOperands& warp) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto* own = static_cast<const MmaOperands*>(warp.lanes[lane]);
    for (int r = 0; r < 4; ++r)
      if (own->a[r] & ~kTf32Bits || (r < 2 && own->b[r] & ~kTf32Bits))
        return "mma_m16n8k8_tf32: an operand of lane " + std::to_string(lane) +
               " has more bits than tf32: to_tf32 makes operands";
  }
  return "";
}

// Element `index` of a register that holds one tf32 or two 16-bit elements.
float element(Collective kind, const unsigned* registers, int index) {
  if (kind == Collective::mma_tf32) {
    const unsigned bits = registers[index] & kTf32Bits;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  const auto bits = static_cast<uint16_t>(registers[index / 2] >> (index % 2 * 16));
  return static_cast<float>(narrow_value(kind == Collective::mma_f16 ? DType::f16 : DType::bf16, bits));
}

// The fragment layouts of core/codegen/device/mma.cuh. The tensor core's order of summation is not
// documented; here it is by rising k, each step rounded to f32.
void multiply(Collective kind, const WarpOperands& warp) {
  const int elements = kind == Collective::mma_tf32 ? 1 : 2;  // in a register
  const int depth = 8 * elements;
  float a[16][16], b[16][8];
  auto operands = [&](int lane) { return static_cast<const MmaOperands*>(warp.lanes[lane]); };
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int group = lane / 4, pair = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int e = 0; e < elements; ++e) {
        const int k = pair * elements + e + r / 2 * 4 * elements;
        a[group + r % 2 * 8][k] = element(kind, operands(lane)->a, r * elements + e);
        if (r < 2)
          b[pair * elements + e + r * 4 * elements][group] =
              element(kind, operands(lane)->b, r * elements + e);
      }
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const int row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
      float sum = operands(lane)->d[r];
      for (int k = 0; k < depth; ++k) sum = std::fma(a[row][k], b[k][column], sum);
      operands(lane)->d[r] = sum;
    }
  }
}

// That lanes name rows of as many matrices, which `access(row, thread)` permits.
template <class Operands, class Access>
std::string judge_rows(const std::string& name, const std::string& verb, const WarpOperands& warp,
                       int first_thread, const Memory& memory, const Access& access) {
  const int count = static_cast<Operands*>(warp.lanes[0])->count;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto* own = static_cast<Operands*>(warp.lanes[lane]);
    if (own->count != count) return name + ": the lanes of a warp " + verb + " different numbers of matrices";
    if (lane >= 8 * count) continue;
    const auto row = reinterpret_cast<uintptr_t>(own->row);
    if (row % 16 != 0)
      return name + ": misaligned row of lane " + std::to_string(lane) + ": not at a multiple of 16 bytes";
    if (!access(row, first_thread + lane))
      return name + ", row of lane " + std::to_string(lane) + ": " + memory.violation();
  }
  return "";
}

std::string load_matrices(Collective kind, const WarpOperands& warp, int first_thread, Memory& memory) {
  if (std::string wrong = judge_rows<LdmatrixOperands>(
          "ldmatrix", "load", warp, first_thread, memory,
          [&](uintptr_t row, int thread) { return memory.read_shared(row, 16, thread); });
      !wrong.empty())
    return wrong;
  const int count = static_cast<LdmatrixOperands*>(warp.lanes[0])->count;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int group = lane / 4, pair = lane % 4;
    for (int matrix = 0; matrix < count; ++matrix) {
      auto at = [&](int row, int column) {
        auto* elements =
            static_cast<const uint16_t*>(static_cast<LdmatrixOperands*>(warp.lanes[8 * matrix + row])->row);
        return static_cast<unsigned>(elements[column]);
      };
      static_cast<LdmatrixOperands*>(warp.lanes[lane])->registers[matrix] =
          kind == Collective::ldmatrix ? at(group, 2 * pair) | at(group, 2 * pair + 1) << 16
                                       : at(2 * pair, group) | at(2 * pair + 1, group) << 16;
    }
  }
  return "";
}

std::string store_matrices(Collective kind, const WarpOperands& warp, int first_thread, Memory& memory) {
  if (std::string wrong = judge_rows<StmatrixOperands>(
          "stmatrix", "store", warp, first_thread, memory,
          [&](uintptr_t row, int thread) { return memory.write_shared(row, 16, thread); });
      !wrong.empty())
    return wrong;
  auto own = [&](int lane) { return static_cast<StmatrixOperands*>(warp.lanes[lane]); };
  const int count = own(0)->count;
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int matrix = 0; matrix < count; ++matrix)
      for (int e = 0; e < 2; ++e) {
        const int group = lane / 4, at = lane % 4 * 2 + e;
        const int row = kind == Collective::stmatrix ? group : at,
                  column = kind == Collective::stmatrix ? at : group;
        static_cast<uint16_t*>(own(8 * matrix + row)->row)[column] =
            static_cast<uint16_t>(own(lane)->registers[matrix] >> 16 * e);
      }
  return "";
}

}  // namespace

const char* collective_name(Collective kind) {
  static constexpr const char* kNames[] = {
      "__syncwarp",        "shuffle_xor",        "shuffle_down",     "shuffle",  "warp_ballot",
      "mma_m16n8k16<f16>", "mma_m16n8k16<bf16>", "mma_m16n8k8_tf32", "ldmatrix", "ldmatrix_trans",
      "stmatrix",          "stmatrix_trans",     "wgmma_fence",      "wgmma",    "wgmma_commit",
      "wgmma_wait"};
  return kNames[static_cast<int>(kind)];
}

std::string perform(Collective kind, const WarpOperands& operands, int first_thread, Memory& memory) {
  switch (kind) {
    case Collective::sync_warp:
      return "";
    case Collective::shuffle_xor:
    case Collective::shuffle_down:
    case Collective::shuffle:
      return shuffle(kind, operands);
    case Collective::ballot:
      ballot(operands);
      return "";
    default:
      break;
  }
  if (operands.mask != 0xffffffffu)
    return std::string(collective_name(kind)) + " needs all 32 lanes of the warp";
  if (kind == Collective::ldmatrix || kind == Collective::ldmatrix_trans)
    return load_matrices(kind, operands, first_thread, memory);
  if (kind == Collective::stmatrix || kind == Collective::stmatrix_trans)
    return store_matrices(kind, operands, first_thread, memory);
  if (kind == Collective::mma_tf32)
    if (std::string wrong = check_tf32(operands); !wrong.empty()) return wrong;
  multiply(kind, operands);
  return "";
}

}  // namespace quern::emulated
