#include "core/schedule/shared_access.h"

#include <algorithm>
#include <bit>

#include "core/base/status.h"

namespace quern {

namespace {

constexpr int kBankBits = 5;

bool is_matrix(AccessKind kind) { return kind == AccessKind::ldmatrix || kind == AccessKind::ldmatrix_trans; }

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

// Finds which bit of which input adds offset 1 << place for the places of one row or vector.
class PlaceFinder {
 public:
  PlaceFinder(const Layout& offsets, const UsedBits& used) : offsets_(offsets), used_(used) {}

  std::optional<int> register_bit(int place) const {
    for (int bit : used_.registers)
      if (offsets_.basis(kRegister, bit, kOffset) == uint64_t{1} << place) return bit;
    return std::nullopt;
  }
  uint64_t at(std::string_view input, int bit) const { return offsets_.basis(input, bit, kOffset); }
  bool lane_is_at(int lane_bit, int place) const { return at(kLane, lane_bit) == uint64_t{1} << place; }

 private:
  const Layout& offsets_;
  const UsedBits& used_;
};

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

std::optional<SharedAccess> vector_access(const Layout& offsets, int element_bytes, AccessKind kind,
                                          int vector_bits) {
  const UsedBits used = used_bits(offsets, kind);
  const PlaceFinder finder(offsets, used);
  SharedAccess access{.kind = kind, .vector_bits = vector_bits};
  for (int place = 0; place < vector_bits; ++place) {
    std::optional<int> bit = finder.register_bit(place);
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

// ldmatrix, as shared_access.h and the PTX ISA describe it: a 32-bit unit of a row goes to a lane, the units
// of a row to lane bits 0 and 1, the rows to lane bits 2, 3 and 4. With .trans (16-bit elements only) a lane
// gets the same column of two neighbouring rows: lane bits 2, 3, 4 go along a row, register bit 0 and lane
// bits 0, 1 across rows.
std::optional<SharedAccess> matrix_access(const Layout& offsets, int element_bytes, AccessKind kind) {
  const UsedBits used = used_bits(offsets, kind);
  const int word = word_element_bits(element_bytes), row = word + 2;
  const bool transposed = kind == AccessKind::ldmatrix_trans;
  if (offsets.input_bits(kLane) != 5 || (transposed && element_bytes != 2)) return std::nullopt;
  // The elements of a lane's 32 bits are its lowest registers, in order: that is how mma wants them.
  for (int bit = 0; bit < word; ++bit)
    if (std::find(used.registers.begin(), used.registers.end(), bit) == used.registers.end())
      return std::nullopt;
  SharedAccess access{.kind = kind, .vector_bits = row};
  for (int bit = 0; bit < word; ++bit) access.element_bits.push_back(bit);
  const std::vector<uint64_t> registers = offsets.columns(kRegister), lanes = offsets.columns(kLane),
                              warps = offsets.columns(kWarp);
  std::vector<uint64_t> along, rows;
  for (int bit = 0; bit < word; ++bit) (transposed ? rows : along).push_back(registers[bit]);
  for (int bit = 0; bit < 2; ++bit) (transposed ? rows : along).push_back(lanes[bit]);
  for (int bit = 2; bit < 5; ++bit) (transposed ? along : rows).push_back(lanes[bit]);
  for (int place = 0; place < row; ++place)
    if (along[place] != uint64_t{1} << place) return std::nullopt;

  std::vector<int> matrices = without(used.registers, access.element_bits);
  const size_t in_one = std::min<size_t>(matrices.size(), 2);
  std::vector<uint64_t> given = rows;  // the addresses: lane bits 0 to 2 give rows, 3 and 4 matrices
  for (size_t i = 0; i < 2; ++i) given.push_back(i < in_one ? registers[matrices[i]] : 0);
  access.element_bits.insert(access.element_bits.end(), matrices.begin(), matrices.begin() + in_one);
  access.instruction_bits.assign(matrices.begin() + in_one, matrices.end());
  const std::vector<uint64_t> instructions = pick(registers, access.instruction_bits);
  for (const auto& columns : {instructions, given, warps})
    if (!keeps_vectors_whole(columns, row)) return std::nullopt;
  access.address = address_layout(instructions, given, warps, offsets.output_bits());
  std::vector<uint64_t> group = rows;
  group.insert(group.end(), along.begin(), along.end());
  access.instructions = 1 << instructions.size();
  access.conflicts = bank_conflicts(group, element_bytes);
  access.wavefronts = access.conflicts << matrices.size();
  return access;
}

void keep_better(std::optional<SharedAccess>& best, const std::optional<SharedAccess>& other) {
  if (!other) return;
  if (!best || other->wavefronts < best->wavefronts ||
      (other->wavefronts == best->wavefronts && other->instructions < best->instructions))
    best = other;
}

SharedAccess best_vector(const Layout& registers, const Layout& memory, int element_bytes, AccessKind kind,
                         std::optional<SharedAccess> best) {
  for (int bits = 4 - log2_bytes(element_bytes); bits >= 0; --bits)
    keep_better(best, shared_access(registers, memory, element_bytes, kind, bits));
  return *best;
}

}  // namespace

const char* access_kind_name(AccessKind kind) {
  constexpr const char* kNames[] = {"store", "load", "ldmatrix", "ldmatrix.trans"};
  return kNames[static_cast<int>(kind)];
}

int SharedAccess::register_of(int instruction, int element) const {
  int result = 0;
  for (size_t i = 0; i < element_bits.size(); ++i) result |= (element >> i & 1) << element_bits[i];
  for (size_t i = 0; i < instruction_bits.size(); ++i)
    result |= (instruction >> i & 1) << instruction_bits[i];
  return result;
}

int SharedAccess::matrices() const {
  check(is_matrix(kind), "only ldmatrix loads matrices");
  return 1 << (element_bits.size() - (vector_bits - 2));
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

std::optional<SharedAccess> shared_access(const Layout& registers, const Layout& memory, int element_bytes,
                                          AccessKind kind, int vector_bits) {
  const Layout offsets = registers.then(memory);
  if (is_matrix(kind)) return matrix_access(offsets, element_bytes, kind);
  return vector_access(offsets, element_bytes, kind, vector_bits);
}

SharedAccess best_store(const Layout& registers, const Layout& memory, int element_bytes) {
  return best_vector(registers, memory, element_bytes, AccessKind::store, std::nullopt);
}

SharedAccess best_load(const Layout& registers, const Layout& memory, int element_bytes,
                       bool permit_ldmatrix) {
  std::optional<SharedAccess> best;
  if (permit_ldmatrix)
    for (AccessKind kind : {AccessKind::ldmatrix, AccessKind::ldmatrix_trans})
      keep_better(best, shared_access(registers, memory, element_bytes, kind, 0));
  return best_vector(registers, memory, element_bytes, AccessKind::load, best);
}

}  // namespace quern
