#include "core/codegen/register_layout.h"

#include <algorithm>
#include <bit>

namespace quern {

int bits_for(int64_t extent) {
  int bits = 0;
  while ((int64_t{1} << bits) < extent) ++bits;
  return bits;
}

bool is_beyond(const CoordBit& bit, const Ints& shape) {
  return bit.dim >= 0 && (int64_t{1} << bit.bit) >= shape[static_cast<size_t>(bit.dim)];
}

void append_bits(std::vector<CoordBit>& to, int dim, int first, int last) {
  for (int bit = first; bit < last; ++bit) to.push_back({dim, bit});
}

std::vector<CoordBit> coord_bits(int dim, int count) {
  std::vector<CoordBit> out;
  append_bits(out, dim, 0, count);
  return out;
}

int RegisterLayout::bits(int dim) const {
  int most = 0;
  auto look = [&](const CoordBit& bit) {
    if (bit.dim == dim) most = std::max(most, bit.bit + 1);
  };
  for (const CoordBit& bit : registers) look(bit);
  for (const CoordBit& bit : lanes) look(bit);
  for (const CoordBit& bit : warps) look(bit);
  for (const CoordBit& bit : ranks) look(bit);
  return most;
}

int64_t RegisterLayout::extent(int dim) const {
  const int64_t all = int64_t{1} << bits(dim);
  for (const CoordEnd& end : ends)
    if (end.dim == dim) return std::min(all, end.extent);
  return all;
}

bool RegisterLayout::ends_in_registers(const CoordEnd& end) const {
  const std::vector<CoordBit> counting = part_bits(end);
  return counting.size() <= registers.size() &&
         std::equal(counting.rbegin(), counting.rend(), registers.rbegin());
}

int RegisterLayout::count() const {
  const int all = 1 << registers.size();
  for (const CoordEnd& end : ends) {
    if (ends_in_registers(end)) return all / (1 << part_bits(end).size()) * static_cast<int>(end.parts());
    for (const CoordBit& bit : registers)
      check(bit.dim != end.dim || bit.bit < end.first_bit(), "registers that are there are the first ones");
  }
  return all;
}

std::vector<CoordBit> part_bits(const CoordEnd& end) {
  std::vector<CoordBit> out;
  append_bits(out, end.dim, end.first_bit(), bits_for(end.extent));
  return out;
}

Layout linear(const RegisterLayout& layout, const Ints& shape, size_t rank_bits) {
  std::vector<LayoutDim> dims;
  std::vector<int> shifts;
  int bits = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.push_back({std::to_string(d), bits_for(shape[d])});
    shifts.push_back(bits);
    bits += dims.back().bits;
  }
  F2Matrix matrix{bits, {}};
  auto append = [&](const CoordBit& bit) {
    const bool nothing = bit.dim < 0 || is_beyond(bit, shape);
    matrix.columns.push_back(nothing ? 0 : uint64_t{1} << (shifts[static_cast<size_t>(bit.dim)] + bit.bit));
  };
  for (const CoordBit& bit : layout.registers) append(bit);
  for (const CoordBit& bit : layout.lanes) append(bit);
  for (const CoordBit& bit : layout.warps) append(bit);
  for (size_t i = 0; i < rank_bits; ++i) append(i < layout.ranks.size() ? layout.ranks[i] : CoordBit{});
  return Layout({{std::string(kRegister), static_cast<int>(layout.registers.size())},
                 {std::string(kLane), kLaneBits},
                 {std::string(kWarp), static_cast<int>(layout.warps.size() + rank_bits)}},
                std::move(dims), std::move(matrix));
}

RegisterLayout fragment_layout(const Layout& fragment, const std::vector<FragmentDim>& dims) {
  auto bits_of = [&](std::string_view input) {
    std::vector<CoordBit> out;
    for (int bit = 0; bit < fragment.input_bits(input); ++bit) {
      out.emplace_back();
      for (const FragmentDim& dim : dims)
        if (const uint64_t moved = fragment.basis(input, bit, dim.name))
          out.back() = dim.bits[static_cast<size_t>(std::countr_zero(moved))];
    }
    return out;
  };
  RegisterLayout out{bits_of(kRegister), {}, bits_of(kWarp), {}, {}};
  const std::vector<CoordBit> lanes = bits_of(kLane);
  std::copy(lanes.begin(), lanes.end(), out.lanes.begin());
  return out;
}

RegisterLayout layout_in_order(const std::vector<CoordBit>& bits, int vector, int warp_bits, int rank_bits) {
  RegisterLayout layout;
  layout.registers.assign(bits.begin(), bits.begin() + vector);
  layout.warps.resize(static_cast<size_t>(warp_bits));
  layout.ranks.resize(static_cast<size_t>(rank_bits));
  size_t next = static_cast<size_t>(vector);
  for (CoordBit& lane : layout.lanes)
    if (next < bits.size()) lane = bits[next++];
  for (CoordBit& rank : layout.ranks)
    if (next < bits.size()) rank = bits[next++];
  for (CoordBit& warp : layout.warps)
    if (next < bits.size()) warp = bits[next++];
  layout.registers.insert(layout.registers.end(), bits.begin() + static_cast<long>(next), bits.end());
  return layout;
}

RegisterLayout blocked_layout(const Ints& shape, int inner, int vector, int warp_bits, int rank_bits,
                              int row_bits) {
  std::vector<CoordBit> bits;
  auto append = [&](int dim) { append_bits(bits, dim, 0, bits_for(shape[static_cast<size_t>(dim)])); };
  if (!shape.empty()) append(inner);
  const auto inner_bits = static_cast<std::ptrdiff_t>(bits.size());
  for (int dim = static_cast<int>(shape.size()) - 1; dim >= 0; --dim)
    if (dim != inner) append(dim);
  row_bits = std::min(row_bits, static_cast<int>(bits.size()) - static_cast<int>(inner_bits));
  if (const int first = vector + kLaneBits + rank_bits + warp_bits - row_bits; first < inner_bits)
    std::rotate(bits.begin() + first, bits.begin() + inner_bits, bits.begin() + inner_bits + row_bits);
  return layout_in_order(bits, vector, warp_bits, rank_bits);
}

bool put_first(RegisterLayout& layout, const CoordBit& bit) {
  auto& registers = layout.registers;
  const auto at = std::find(registers.begin(), registers.end(), bit);
  if (at == registers.end()) return false;
  std::rotate(registers.begin(), at, at + 1);
  return true;
}

void put_first(RegisterLayout& layout, int dim, int first, int last) {
  for (int bit = last; bit-- > first;) put_first(layout, CoordBit{dim, bit});
}

int leading_bits(const RegisterLayout& layout, int dim, int most) {
  int bits = 0;
  while (bits < most && static_cast<size_t>(bits) < layout.registers.size() &&
         layout.registers[static_cast<size_t>(bits)] == CoordBit{dim, bits})
    ++bits;
  return bits;
}

RegisterLayout chunks_of(RegisterLayout layout, int vector) {
  layout.registers.erase(layout.registers.begin(), layout.registers.begin() + vector);
  return layout;
}

std::vector<int> operand_dims(const Ints& result, const Ints& operand) {
  std::vector<int> dims(result.size(), -1);
  const size_t shift = result.size() - operand.size();
  for (size_t d = shift; d < result.size(); ++d)
    if (operand[d - shift] != 1 || result[d] == 1) dims[d] = static_cast<int>(d - shift);
  return dims;
}

RegisterLayout renumbered(const RegisterLayout& layout, const std::vector<int>& dims) {
  auto one = [&](const CoordBit& bit) {
    const int dim = bit.dim < 0 ? -1 : dims[static_cast<size_t>(bit.dim)];
    return dim < 0 ? CoordBit{} : CoordBit{dim, bit.bit};
  };
  RegisterLayout out;
  for (const CoordBit& bit : layout.registers)
    if (const CoordBit moved = one(bit); moved.dim >= 0) out.registers.push_back(moved);
  for (size_t i = 0; i < layout.lanes.size(); ++i) out.lanes[i] = one(layout.lanes[i]);
  for (const CoordBit& bit : layout.warps) out.warps.push_back(one(bit));
  for (const CoordBit& bit : layout.ranks) out.ranks.push_back(one(bit));
  for (const CoordEnd& end : layout.ends)
    if (const int dim = dims[static_cast<size_t>(end.dim)]; dim >= 0) out.ends.push_back({dim, end.extent});
  return out;
}

bool serves(const RegisterLayout& have, const RegisterLayout& want, const Ints& shape) {
  auto same = [&](const CoordBit& has, const CoordBit& wants) {
    return has == wants || is_beyond(wants, shape);
  };
  for (size_t i = 0; i < have.lanes.size(); ++i)
    if (!same(have.lanes[i], want.lanes[i])) return false;
  for (size_t i = 0; i < have.warps.size(); ++i)
    if (!same(have.warps[i], want.warps[i])) return false;
  for (size_t i = 0; i < std::max(have.ranks.size(), want.ranks.size()); ++i)
    if (!same(i < have.ranks.size() ? have.ranks[i] : CoordBit{},
              i < want.ranks.size() ? want.ranks[i] : CoordBit{}))
      return false;
  for (const CoordEnd& end : have.ends)
    if (want.extent(end.dim) > end.extent) return false;
  return std::all_of(want.registers.begin(), want.registers.end(), [&](const CoordBit& bit) {
    return is_beyond(bit, shape) ||
           std::find(have.registers.begin(), have.registers.end(), bit) != have.registers.end();
  });
}

}  // namespace quern
