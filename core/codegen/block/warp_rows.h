// Fragments of products that warps store row by row: lanes exchange 16 rows of 64 numbers of 16 bits at a time in shared memory
// that their warp has for itself, and then eight lanes next to each other have 128 bytes. Where rows in memory are columns of wgmma,
// 64 of them have 16 numbers each, which are 32 bytes. With residuals, too, ptxas ran out of registers.
#pragma once

#include "core/codegen/block/access_form.h"
#include "core/codegen/block/shared_tiles.h"

namespace quern {

// The form of a store in which this is done; nothing if it cannot be, as of loads.
std::optional<AccessForm> form_by_warp_rows(const BlockFacts& facts, BlockValue store,
                                            const RegisterLayout& layout);

class WarpRows : BlockPart {
 public:
  WarpRows(const BlockFacts& facts, BlockBody& body, SharedTiles& shared)
      : BlockPart(facts, body), shared_(shared) {}

  // A step of fragments, of which `number(r)` is register r, to rows; `row` is given each access of the step and what it stores.
  using Row = std::function<void(Builder&, const Expr& access, const Symbol& elements)>;
  void store(Builder& to, BlockValue store, const AccessForm& form, const SharedTiles::Number& number,
             const Row& row);

 private:
  // The rows of the warp.
  SharedTile tile(Builder& to, BlockValue store, const AccessForm& form);

  SharedTiles& shared_;
  Symbol memory_;  // of all warps
};

}  // namespace quern
