#include "core/codegen/spread.h"

#include <algorithm>

namespace quern {

using ir::Expr;

int bits_for(int64_t extent) {
  int bits = 0;
  while ((int64_t{1} << bits) < extent) ++bits;
  return bits;
}

bool is_beyond(const CoordBit& bit, const Ints& shape) {
  return bit.dim >= 0 && (int64_t{1} << bit.bit) >= shape[static_cast<size_t>(bit.dim)];
}

int Spread::bits(int dim) const {
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

Layout to_layout(const Spread& spread, const Ints& shape, size_t rank_bits) {
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
  for (const CoordBit& bit : spread.registers) append(bit);
  for (const CoordBit& bit : spread.lanes) append(bit);
  for (const CoordBit& bit : spread.warps) append(bit);
  for (size_t i = 0; i < rank_bits; ++i) append(i < spread.ranks.size() ? spread.ranks[i] : CoordBit{});
  return Layout({{std::string(kRegister), static_cast<int>(spread.registers.size())},
                 {std::string(kLane), kLaneBits},
                 {std::string(kWarp), static_cast<int>(spread.warps.size() + rank_bits)}},
                std::move(dims), std::move(matrix));
}

Spread spread_in_order(const std::vector<CoordBit>& bits, int vector, int warp_bits, int rank_bits) {
  Spread spread;
  spread.registers.assign(bits.begin(), bits.begin() + vector);
  spread.warps.resize(static_cast<size_t>(warp_bits));
  spread.ranks.resize(static_cast<size_t>(rank_bits));
  size_t next = static_cast<size_t>(vector);
  for (CoordBit& lane : spread.lanes)
    if (next < bits.size()) lane = bits[next++];
  for (CoordBit& rank : spread.ranks)
    if (next < bits.size()) rank = bits[next++];
  for (CoordBit& warp : spread.warps)
    if (next < bits.size()) warp = bits[next++];
  spread.registers.insert(spread.registers.end(), bits.begin() + static_cast<long>(next), bits.end());
  return spread;
}

Spread blocked_spread(const Ints& shape, int inner, int vector, int warp_bits, int rank_bits, int row_bits) {
  std::vector<CoordBit> bits;
  auto append = [&](int dim) {
    for (int bit = 0; bit < bits_for(shape[static_cast<size_t>(dim)]); ++bit) bits.push_back({dim, bit});
  };
  if (!shape.empty()) append(inner);
  const auto inner_bits = static_cast<std::ptrdiff_t>(bits.size());
  for (int dim = static_cast<int>(shape.size()) - 1; dim >= 0; --dim)
    if (dim != inner) append(dim);
  row_bits = std::min(row_bits, static_cast<int>(bits.size()) - static_cast<int>(inner_bits));
  if (const int first = vector + kLaneBits + rank_bits + warp_bits - row_bits; first < inner_bits)
    std::rotate(bits.begin() + first, bits.begin() + inner_bits, bits.begin() + inner_bits + row_bits);
  return spread_in_order(bits, vector, warp_bits, rank_bits);
}

Spread chunks_of(Spread spread, int vector) {
  spread.registers.erase(spread.registers.begin(), spread.registers.begin() + vector);
  return spread;
}

std::vector<int> operand_dims(const Ints& result, const Ints& operand) {
  std::vector<int> dims(result.size(), -1);
  const size_t shift = result.size() - operand.size();
  for (size_t d = shift; d < result.size(); ++d)
    if (operand[d - shift] != 1 || result[d] == 1) dims[d] = static_cast<int>(d - shift);
  return dims;
}

Spread renumbered(const Spread& spread, const std::vector<int>& dims) {
  auto one = [&](const CoordBit& bit) {
    const int dim = bit.dim < 0 ? -1 : dims[static_cast<size_t>(bit.dim)];
    return dim < 0 ? CoordBit{} : CoordBit{dim, bit.bit};
  };
  Spread out;
  for (const CoordBit& bit : spread.registers)
    if (const CoordBit moved = one(bit); moved.dim >= 0) out.registers.push_back(moved);
  for (size_t i = 0; i < spread.lanes.size(); ++i) out.lanes[i] = one(spread.lanes[i]);
  for (const CoordBit& bit : spread.warps) out.warps.push_back(one(bit));
  for (const CoordBit& bit : spread.ranks) out.ranks.push_back(one(bit));
  return out;
}

Expr renumbered_index(const Expr& variable, const Spread& spread, const std::vector<int>& dims) {
  std::vector<BitMove> moves;
  for (size_t i = 0; i < spread.registers.size(); ++i)
    if (dims[static_cast<size_t>(spread.registers[i].dim)] >= 0)
      moves.push_back({static_cast<int>(i), static_cast<int>(moves.size())});
  if (moves.size() == spread.registers.size()) return moves.empty() ? Expr(0) : variable;
  return move_bits(variable, std::move(moves));
}

bool serves(const Spread& have, const Spread& want, const Ints& shape) {
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
  return std::all_of(want.registers.begin(), want.registers.end(), [&](const CoordBit& bit) {
    return is_beyond(bit, shape) ||
           std::find(have.registers.begin(), have.registers.end(), bit) != have.registers.end();
  });
}

std::string add_text(const std::string& a, const std::string& b) {
  if (a == "0") return b;
  return b == "0" ? a : a + " + " + b;
}

namespace {

ir::Symbol built_in(const char* name) {
  return std::make_shared<const ir::SymbolData>(
      ir::SymbolData{name, ir::Space::variable, ir::Scalar::i32, 1, false, false, nullptr});
}

}  // namespace

const ir::Symbol& lane() {
  static const ir::Symbol symbol = built_in("lane");
  return symbol;
}
const ir::Symbol& warp() {
  static const ir::Symbol symbol = built_in("warp");
  return symbol;
}
const ir::Symbol& rank() {
  static const ir::Symbol symbol = built_in("rank");
  return symbol;
}

Expr move_bits(const Expr& variable, std::vector<BitMove> moves) {
  std::sort(moves.begin(), moves.end(), [](const BitMove& a, const BitMove& b) { return a.from < b.from; });
  Expr out = 0;
  for (size_t i = 0; i < moves.size();) {
    size_t end = i + 1;
    while (end < moves.size() && moves[end].from == moves[end - 1].from + 1 &&
           moves[end].to == moves[end - 1].to + 1)
      ++end;
    const int mask = (1 << (end - i)) - 1, from = moves[i].from, to = moves[i].to;
    out = out + (variable >> from & mask) * (1 << to);
    i = end;
  }
  return out;
}

Expr register_index(const Expr& variable, const Spread& have, const Spread& want) {
  std::vector<BitMove> moves;
  for (size_t i = 0; i < want.registers.size(); ++i) {
    const auto at = std::find(have.registers.begin(), have.registers.end(), want.registers[i]);
    if (at != have.registers.end())
      moves.push_back({static_cast<int>(i), static_cast<int>(at - have.registers.begin())});
  }
  const bool whole = moves.size() == want.registers.size() &&
                     std::all_of(moves.begin(), moves.end(), [](BitMove m) { return m.from == m.to; });
  return whole ? (want.registers.empty() ? Expr(0) : variable) : move_bits(variable, std::move(moves));
}

Expr thread_part(const Spread& spread, int dim) {
  std::vector<BitMove> lanes, warps, ranks;
  for (size_t i = 0; i < spread.lanes.size(); ++i)
    if (spread.lanes[i].dim == dim) lanes.push_back({static_cast<int>(i), spread.lanes[i].bit});
  for (size_t i = 0; i < spread.warps.size(); ++i)
    if (spread.warps[i].dim == dim) warps.push_back({static_cast<int>(i), spread.warps[i].bit});
  for (size_t i = 0; i < spread.ranks.size(); ++i)
    if (spread.ranks[i].dim == dim) ranks.push_back({static_cast<int>(i), spread.ranks[i].bit});
  return move_bits(lane(), lanes) + move_bits(warp(), warps) + move_bits(rank(), ranks);
}

Expr register_part(const Expr& variable, const Spread& spread, int dim) {
  std::vector<BitMove> moves;
  for (size_t i = 0; i < spread.registers.size(); ++i)
    if (spread.registers[i].dim == dim) moves.push_back({static_cast<int>(i), spread.registers[i].bit});
  return move_bits(variable, std::move(moves));
}

Expr leaders(const Spread& spread) {
  int lanes = 0, warps = 0;
  for (size_t i = 0; i < spread.lanes.size(); ++i)
    if (spread.lanes[i].dim < 0) lanes |= 1 << i;
  for (size_t i = 0; i < spread.warps.size(); ++i)
    if (spread.warps[i].dim < 0) warps |= 1 << i;
  const Expr first_lane = lanes ? equal(Expr(lane()) & lanes, 0) : ir::truth(true),
             first_warp = warps ? equal(Expr(warp()) & warps, 0) : ir::truth(true);
  return both(first_lane, first_warp);
}

}  // namespace quern
