#include "core/codegen/layout_expr.h"

#include <algorithm>

namespace quern {

using ir::Expr;

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

Expr renumbered_index(const Expr& variable, const RegisterLayout& layout, const std::vector<int>& dims) {
  std::vector<BitMove> moves;
  for (size_t i = 0; i < layout.registers.size(); ++i)
    if (dims[static_cast<size_t>(layout.registers[i].dim)] >= 0)
      moves.push_back({static_cast<int>(i), static_cast<int>(moves.size())});
  if (moves.size() == layout.registers.size()) return moves.empty() ? Expr(0) : variable;
  return move_bits(variable, std::move(moves));
}

Expr register_index(const Expr& variable, const RegisterLayout& have, const RegisterLayout& want) {
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

Expr thread_part(const RegisterLayout& layout, int dim) {
  std::vector<BitMove> lanes, warps, ranks;
  for (size_t i = 0; i < layout.lanes.size(); ++i)
    if (layout.lanes[i].dim == dim) lanes.push_back({static_cast<int>(i), layout.lanes[i].bit});
  for (size_t i = 0; i < layout.warps.size(); ++i)
    if (layout.warps[i].dim == dim) warps.push_back({static_cast<int>(i), layout.warps[i].bit});
  for (size_t i = 0; i < layout.ranks.size(); ++i)
    if (layout.ranks[i].dim == dim) ranks.push_back({static_cast<int>(i), layout.ranks[i].bit});
  return move_bits(lane(), lanes) + move_bits(warp(), warps) + move_bits(rank(), ranks);
}

Expr register_part(const Expr& variable, const RegisterLayout& layout, int dim) {
  std::vector<BitMove> moves;
  for (size_t i = 0; i < layout.registers.size(); ++i)
    if (layout.registers[i].dim == dim) moves.push_back({static_cast<int>(i), layout.registers[i].bit});
  return move_bits(variable, std::move(moves));
}

Expr leaders(const RegisterLayout& layout) {
  int lanes = 0, warps = 0;
  for (size_t i = 0; i < layout.lanes.size(); ++i)
    if (layout.lanes[i].dim < 0) lanes |= 1 << i;
  for (size_t i = 0; i < layout.warps.size(); ++i)
    if (layout.warps[i].dim < 0) warps |= 1 << i;
  const Expr first_lane = lanes ? equal(Expr(lane()) & lanes, 0) : ir::truth(true),
             first_warp = warps ? equal(Expr(warp()) & warps, 0) : ir::truth(true);
  return both(first_lane, first_warp);
}

}  // namespace quern
