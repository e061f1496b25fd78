// Values that are in registers, but not in those where they are needed: moved as core/schedule's conversions
// say, by registers of their own, shuffles, or shared memory.
#pragma once

#include "core/codegen/block/values.h"
#include "core/schedule/conversion.h"

namespace quern {

class Conversions : BlockPart {
 public:
  Conversions(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, Values& values)
      : BlockPart(facts, body), bounds_(bounds), values_(values) {}

  // Has registers hold the value, which others hold, as `want` says.
  void convert(BlockValue value, const RegisterLayout& want);
  // Issue cycles of a warp, over all iterations, of what was converted.
  int64_t cycles() const { return cycles_; }

 private:
  void move_registers(const Conversion& plan, const RegisterTile& from, const RegisterTile& to);
  void shuffle(const ShufflePlan& plan, const RegisterTile& from, const RegisterTile& to);
  void exchange(const SharedExchange& plan, const RegisterTile& from, const RegisterTile& to);
  Body put(const SharedExchange& plan, const RegisterTile& from, const RegisterTile& to, const Symbol& buffer,
           int64_t size, const std::vector<BitMove>& parts);
  Body get(const SharedExchange& plan, const RegisterTile& from, const RegisterTile& to, const Symbol& buffer,
           int64_t size, int64_t copies);
  // The number that terms over (the register `index`, lane, warp, block) give; what threads decide stands in
  // front.
  Expr address(const Layout& layout, std::string_view output, const Expr& index);

  TileBounds& bounds_;
  Values& values_;
  int64_t cycles_ = 0;
};

// What convert() will emit, in issue cycles of a warp; nothing if it cannot be done.
std::optional<int64_t> move_cycles(const BlockFacts& facts, BlockValue value, RegisterTile from,
                                   const RegisterLayout& want);
// The same for a load that comes as `from` says and is moved to `want`: where it would come in pieces of less than a
// sector, and so does not. Nothing for others, which are loaded as they are wanted.
std::optional<int64_t> moved_load_cycles(const BlockFacts& facts, BlockValue load, const RegisterLayout& from,
                                         const RegisterLayout& want);

}  // namespace quern
