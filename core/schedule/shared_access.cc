#include "core/schedule/shared_access.h"

#include <algorithm>
#include <bit>

#include "core/base/status.h"

namespace quern {

namespace {

constexpr int kBankBits = 5;

int log2_bytes(int element_bytes) {
  check(element_bytes == 1 || element_bytes == 2 || element_bytes == 4, "elements have 1, 2 or 4 bytes");
  return std::countr_zero(static_cast<unsigned>(element_bytes));
}

// Cycles for one served group: the words that share a bank, from the offsets (in elements) that the group's
// bits add.
int bank_conflicts(const std::vector<uint64_t>& offsets, int element_bytes) {
  std::vector<uint64_t> words, banks;
  for (uint64_t offset : offsets) {
    words.push_back(offset >> word_element_bits(element_bytes));
    banks.push_back(words.back() & ((1 << kBankBits) - 1));
  }
  return 1 << (f2_rank(words) - f2_rank(banks));
}

// The bit of the register's number that adds offset 1 << place.
std::optional<int> register_bit(const Layout& offsets, const UsedBits& used, int place) {
  for (int bit : used.registers)
    if (offsets.basis(kRegister, bit, kOffset) == uint64_t{1} << place) return bit;
  return std::nullopt;
}

uint64_t unused_mask(int bits, const std::vector<int>& used) {
  uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int bit : used) mask &= ~(uint64_t{1} << bit);
  return mask;
}

// The offset columns of the bits that do not move within a lane's vector must keep it whole.
bool keeps_vectors_whole(const std::vector<uint64_t>& offsets, int vector_bits) {
  return std::all_of(offsets.begin(), offsets.end(),
                     [&](uint64_t offset) { return (offset & ((uint64_t{1} << vector_bits) - 1)) == 0; });
}

std::vector<int> without(const std::vector<int>& bits, const std::vector<int>& taken) {
  std::vector<int> result;
  for (int bit : bits)
    if (std::find(taken.begin(), taken.end(), bit) == taken.end()) result.push_back(bit);
  return result;
}

Layout address_layout(const std::vector<uint64_t>& instructions, const std::vector<uint64_t>& lanes,
                      const std::vector<uint64_t>& warps, int offset_bits) {
  F2Matrix matrix{offset_bits, instructions};
  matrix.columns.insert(matrix.columns.end(), lanes.begin(), lanes.end());
  matrix.columns.insert(matrix.columns.end(), warps.begin(), warps.end());
  return Layout({{std::string(kRegister), static_cast<int>(instructions.size())},
                 {std::string(kLane), static_cast<int>(lanes.size())},
                 {std::string(kWarp), static_cast<int>(warps.size())}},
                {{std::string(kOffset), offset_bits}}, std::move(matrix));
}

std::vector<uint64_t> pick(const std::vector<uint64_t>& columns, const std::vector<int>& bits) {
  std::vector<uint64_t> result;
  for (int bit : bits) result.push_back(columns[bit]);
  return result;
}

}  // namespace

std::optional<SharedAccess> shared_access(const Layout& registers, const Layout& memory, int element_bytes,
                                          AccessKind kind, int vector_bits) {
  const Layout offsets = registers.then(memory);
  const UsedBits used = used_bits(offsets, kind);
  SharedAccess access{.kind = kind, .vector_bits = vector_bits};
  for (int place = 0; place < vector_bits; ++place) {
    std::optional<int> bit = register_bit(offsets, used, place);
    if (!bit) return std::nullopt;
    access.element_bits.push_back(*bit);
  }
  access.instruction_bits = without(used.registers, access.element_bits);
  const std::vector<uint64_t> instructions = pick(offsets.columns(kRegister), access.instruction_bits);
  std::vector<uint64_t> lanes = offsets.columns(kLane), warps = offsets.columns(kWarp);
  // What idle threads would add does not matter; 0 keeps the address simple.
  access.idle_lanes = unused_mask(static_cast<int>(lanes.size()), used.lanes);
  access.idle_warps = unused_mask(static_cast<int>(warps.size()), used.warps);
  for (size_t i = 0; i < lanes.size(); ++i)
    if (access.idle_lanes >> i & 1) lanes[i] = 0;
  for (size_t i = 0; i < warps.size(); ++i)
    if (access.idle_warps >> i & 1) warps[i] = 0;
  for (const auto& columns : {instructions, lanes, warps})
    if (!keeps_vectors_whole(columns, vector_bits)) return std::nullopt;
  access.address = address_layout(instructions, lanes, warps, offsets.output_bits());

  const int together = std::min<int>(together_lane_bits(vector_bits, element_bytes), lanes.size());
  std::vector<uint64_t> group(lanes.begin(), lanes.begin() + together);
  for (int place = 0; place < vector_bits; ++place) group.push_back(uint64_t{1} << place);
  access.instructions = 1 << instructions.size();
  access.conflicts = bank_conflicts(group, element_bytes);
  // Groups of idle lanes only take no time.
  const auto groups =
      std::count_if(used.lanes.begin(), used.lanes.end(), [&](int bit) { return bit >= together; });
  access.wavefronts = access.instructions * access.conflicts << groups;
  return access;
}

int word_element_bits(int element_bytes) { return 2 - log2_bytes(element_bytes); }

int together_lane_bits(int vector_bits, int element_bytes) {
  const int bytes_bits = vector_bits + log2_bytes(element_bytes);
  return kBankBits - std::max(0, bytes_bits - 2);
}

UsedBits used_bits(const Layout& registers, AccessKind kind) {
  UsedBits used;
  if (kind != AccessKind::store) {
    used.registers = registers.independent_bits(kRegister);
    for (int bit = 0; bit < registers.input_bits(kLane); ++bit) used.lanes.push_back(bit);
    for (int bit = 0; bit < registers.input_bits(kWarp); ++bit) used.warps.push_back(bit);
    return used;
  }
  // Threads before registers, so that few threads are idle and each stores little.
  F2Span stored;
  auto keep = [&](std::string_view input, std::vector<int>& bits) {
    int bit = 0;
    for (uint64_t column : registers.columns(input)) {
      if (stored.add(column)) bits.push_back(bit);
      ++bit;
    }
  };
  keep(kLane, used.lanes);
  keep(kWarp, used.warps);
  keep(kRegister, used.registers);
  return used;
}

}  // namespace quern
