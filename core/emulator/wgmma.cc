#include "core/emulator/wgmma.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/dtype.h"

namespace quern::emulated {

namespace {

constexpr int kDepth = 16, kGroupWarps = 4, kUnit = 16;

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// Where element (row, k) lies: `row` counts rows of A or columns of B.
uintptr_t element_address(const WgmmaOperand& operand, int row, int k) {
  const int along = operand.turned ? row : k, down = operand.turned ? k : row, width = operand.swizzle / 2;
  const uintptr_t at =
      address_of(operand.at) + static_cast<uintptr_t>(along % width * 2 + along / width * operand.panel +
                                                      down % 8 * operand.swizzle + down / 8 * operand.step);
  return at ^ (at >> 3 & static_cast<uintptr_t>(operand.swizzle - 1) & 0x70);
}

std::string check_operand(const WgmmaOperand& operand, int rows, const Memory& memory) {
  const uintptr_t at = address_of(operand.at), swizzle = static_cast<uintptr_t>(operand.swizzle);
  const std::string where = "wgmma: operand at " + memory.locate(at);
  if (at % kUnit != 0) return where + " is not aligned to 16 bytes";
  if (at % (8 * swizzle) >= swizzle) return where + " does not begin at the first of eight rows";
  if (!operand.turned && at % swizzle + 2 * kDepth > swizzle)
    return where + " runs over the end of its panel";
  if (operand.turned && at % swizzle != 0) return where + " begins within a row";
  if (operand.turned && rows * 2 > operand.swizzle && operand.panel == 0)
    return where + " has more rows than its panel, and no other follows";
  return "";
}

float value_of(uint16_t bits, bool bf16) {
  return static_cast<float>(narrow_value(bf16 ? DType::bf16 : DType::f16, bits));
}

}  // namespace

void Wgmmas::begin_cluster(const std::vector<char*>& stack_tops, int block_threads) {
  stack_tops_ = stack_tops;
  block_threads_ = block_threads;
  touched_.assign(stack_tops.size(), {});
  warps_.assign((stack_tops.size() + kWarpSize - 1) / kWarpSize, {});
  groups_.clear();
}

int Wgmmas::warpgroup_of(int thread) const {
  return thread / block_threads_ * (kMaxThreads / kWarpSize / kGroupWarps) +
         warp_in_block(thread) / kGroupWarps;
}

std::string Wgmmas::perform(Collective kind, const WarpOperands& operands, int first) {
  const int group_end = (warp_in_block(first) / kGroupWarps + 1) * kGroupWarps * kWarpSize;
  if (operands.mask != 0xffffffffu || touched_.empty() || group_end > block_threads_)
    return std::string(collective_name(kind)) + " needs whole warpgroups, and all lanes of each warp";
  Warp& warp = warp_of(first);
  switch (kind) {
    case Collective::wgmma_fence:
      warp.fenced = true;
      for (int lane = 0; lane < kWarpSize; ++lane) touched_[static_cast<size_t>(first + lane)].reset();
      return "";
    case Collective::wgmma_commit:
      ++warp.committed;
      return "";
    case Collective::wgmma_wait:
      return wait(static_cast<const WgmmaOperands*>(operands.lanes[0])->pending, first);
    default:
      return multiply(operands, first);
  }
}

std::string Wgmmas::touch(uintptr_t address, size_t size, bool is_write, int thread) {
  if (touched_.empty()) return "";
  const size_t from_top = address_of(stack_tops_[static_cast<size_t>(thread)]) - address;
  for (size_t slot = (from_top - size) / 4; slot <= (from_top - 1) / 4 && slot < kSlots; ++slot)
    touched_[static_cast<size_t>(thread)].set(slot);
  const Warp& warp = warp_of(thread);
  const size_t lane = static_cast<size_t>(thread % kWarpSize);
  auto meets = [&](const void* at, size_t bytes) {
    return address < address_of(at) + bytes && address_of(at) < address + size;
  };
  for (const Sums& sums : warp.sums)
    if (meets(sums.at[lane], static_cast<size_t>(sums.columns) * 2))
      return std::string(is_write ? "write to" : "read of") + " sums of a wgmma with no wgmma_wait before";
  for (const Fragments& fragments : warp.fragments)
    if (is_write && meets(fragments.at[lane], 16))
      return "write to registers that a wgmma reads, with no wgmma_wait before";
  return "";
}

std::string Wgmmas::use_registers(const void* at, size_t size, int thread) {
  const size_t from_top = address_of(stack_tops_[static_cast<size_t>(thread)]) - address_of(at);
  for (size_t slot = (from_top - size) / 4; slot <= (from_top - 1) / 4 && slot < kSlots; ++slot)
    if (touched_[static_cast<size_t>(thread)].test(slot))
      return "wgmma uses registers that were used before with no wgmma_fence between";
  return "";
}

// Marks what is read until the wait. Every lane must know that it was written; all bytes are looked at for
// one.
std::string Wgmmas::read_units(const WgmmaOperand& operand, int rows, const WarpOperands& operands,
                               int first) {
  Warp& warp = warp_of(first);
  if (std::string wrong = check_operand(operand, rows, memory_); !wrong.empty()) return wrong;
  for (int row = 0; row < rows; row += operand.turned ? 8 : 1)
    for (int k = 0; k < kDepth; k += operand.turned ? 1 : 8) {
      const uintptr_t at = element_address(operand, row, k);
      for (int lane = 0; lane < kWarpSize; ++lane)
        if (operands.mask >> lane & 1 && !memory_.read_beside(at, lane == 0 ? kUnit : 1, first + lane, true))
          return "wgmma: " + memory_.violation();
      memory_.hold(at, kUnit, "wgmma");
      warp.units.push_back({at, warp.committed});
    }
  return "";
}

// The order of summation is not documented; here it is by rising k, each step rounded to f32.
std::string Wgmmas::multiply(const WarpOperands& operands, int first) {
  Warp& warp = warp_of(first);
  const auto& own = *static_cast<const WgmmaOperands*>(operands.lanes[0]);
  const int columns = own.columns, index = warp_in_block(first) % kGroupWarps;
  if (columns < 8 || columns > 256 || columns % 8 != 0)
    return "wgmma has no shape of " + std::to_string(columns) + " columns";
  if (!warp.fenced) return "wgmma with no wgmma_fence before";
  const Shape shape{own.fragments ? 0 : address_of(own.a.at), address_of(own.b.at), columns};
  std::vector<Shape>& group = groups_[warpgroup_of(first)];
  const size_t number = static_cast<size_t>(warp.products++);
  if (number == group.size()) group.push_back(shape);
  if (!(group[number] == shape)) return "the warps of a warpgroup ask for different products";

  float a[16][kDepth], b[kDepth][256];
  const size_t bytes = static_cast<size_t>(columns) * 2;
  Fragments fragments{{}, warp.committed};
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto& each = *static_cast<const WgmmaOperands*>(operands.lanes[static_cast<size_t>(lane)]);
    if (std::string wrong = use_registers(each.sums, bytes, first + lane); !wrong.empty()) return wrong;
    if (!own.fragments) continue;
    if (std::string wrong = use_registers(each.fragments, 16, first + lane); !wrong.empty()) return wrong;
    fragments.at[static_cast<size_t>(lane)] = each.fragments;
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < 2; ++e)
        a[lane / 4 + r % 2 * 8][lane % 4 * 2 + e + r / 2 * 8] =
            value_of(static_cast<uint16_t>(each.fragments[r] >> (16 * e)), own.bf16);
  }
  auto read = [&](const WgmmaOperand& operand, int row, int k) {
    uint16_t bits;
    memcpy(&bits, reinterpret_cast<const void*>(element_address(operand, row, k)), 2);
    return value_of(bits, own.bf16);
  };
  if (own.fragments) {
    warp.fragments.push_back(fragments);
  } else {
    if (std::string wrong = read_units(own.a, 64, operands, first); !wrong.empty()) return wrong;
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < kDepth; ++k) a[row][k] = read(own.a, 16 * index + row, k);
  }
  if (std::string wrong = read_units(own.b, columns, operands, first); !wrong.empty()) return wrong;
  for (int k = 0; k < kDepth; ++k)
    for (int column = 0; column < columns; ++column) b[k][column] = read(own.b, column, k);

  auto at = std::find_if(warp.sums.begin(), warp.sums.end(),
                         [&](const Sums& sums) { return sums.at[0] == own.sums; });
  if (at == warp.sums.end()) {
    Sums sums{{}, columns, 0, std::vector<float>(static_cast<size_t>(kWarpSize * columns / 2))};
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      float* const lane_sums = static_cast<const WgmmaOperands*>(operands.lanes[lane])->sums;
      sums.at[lane] = lane_sums;
      memcpy(&sums.values[lane * static_cast<size_t>(columns / 2)], lane_sums, bytes);
      std::fill_n(lane_sums, columns / 2, std::numeric_limits<float>::quiet_NaN());
    }
    warp.sums.push_back(std::move(sums));
    at = std::prev(warp.sums.end());
  }
  at->group = warp.committed;
  if (!own.add) std::fill(at->values.begin(), at->values.end(), 0.0f);
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int r = 0; r < columns / 2; ++r) {
      const int row = lane / 4 + r / 2 % 2 * 8, column = r / 4 * 8 + lane % 4 * 2 + r % 2;
      float& sum = at->values[static_cast<size_t>(lane * columns / 2 + r)];
      for (int k = 0; k < kDepth; ++k) sum = std::fma(a[row][k], b[k][column], sum);
    }
  return "";
}

std::string Wgmmas::wait(int pending, int first) {
  Warp& warp = warp_of(first);
  auto done = [&](const auto& each) { return each.group < warp.committed - pending; };
  for (const Sums& sums : warp.sums)
    if (done(sums))
      for (size_t lane = 0; lane < kWarpSize; ++lane)
        memcpy(sums.at[lane], &sums.values[lane * static_cast<size_t>(sums.columns / 2)],
               static_cast<size_t>(sums.columns) * 2);
  for (const Unit& unit : warp.units)
    if (done(unit)) {
      memory_.release(unit.at, kUnit);
      if (!memory_.read_shared(unit.at, kUnit, first)) return "wgmma: " + memory_.violation();
    }
  std::erase_if(warp.sums, done);
  std::erase_if(warp.fragments, done);
  std::erase_if(warp.units, done);
  return "";
}

std::string Wgmmas::end_thread(int thread) const {
  if (touched_.empty()) return "";
  const Warp& warp = warps_[static_cast<size_t>(thread / kWarpSize)];
  if (warp.busy()) return "the thread ends with products that it did not wait for (wgmma_commit, wgmma_wait)";
  const auto group = groups_.find(warpgroup_of(thread));
  if (group != groups_.end() && group->second.size() != static_cast<size_t>(warp.products))
    return "the warps of a warpgroup ask for different numbers of products";
  return "";
}

}  // namespace quern::emulated
