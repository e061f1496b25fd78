// Straight between global memory and registers: loads that no ring stages, stores, and pointers to tiles.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "core/codegen/block/values.h"
#include "core/codegen/block/warp_rows.h"

namespace quern {

// What a tile is loaded from: its tensor, or pieces of it, which lie in [begin, end) of the dimension in
// which it has them.
struct TilePiece {
  const TensorPlace* place;
  Symbol from;  // where the tile would begin, were it all in this piece
  int64_t begin, end;
};

class GlobalMemory : BlockPart {
 public:
  GlobalMemory(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, SharedTiles& shared,
               Values& values)
      : BlockPart(facts, body), bounds_(bounds), rows_(facts, body, shared), values_(values) {}

  // `as_it_is`: nobody converts it.
  void load(BlockValue value, const RegisterLayout& layout, bool as_it_is = true);
  // With those behind it that are made of the same values, in the same form.
  void store(BlockValue value);
  // Has the store that is being written make a tile of its layout chunk by chunk, if nobody else asks for it; else false.
  using Assign = std::function<void(Builder&, const Expr& index)>;
  bool make_in_store(BlockValue value, const RegisterTile& tile, const Assign& assign);

  // `written`: even if no store of the block does.
  Symbol pointer(int32_t tensor, const TensorPlace& place, bool written = false);
  // Of a load's or store's tile, in its tensor's memory: where the first element lies.
  Expr tile_begin(BlockValue access, const TensorPlace& place) const;
  // A pointer to the tensor's first element of the tile, defined in `to`.
  Symbol tile_pointer(Builder& to, const std::string& prefix, BlockValue access, const TensorPlace& place,
                      int64_t begin = 0);
  std::vector<TilePiece> pieces(Builder& to, BlockValue load);
  // Calls `read` for the piece that the chunk is in: once, or under a condition for each piece.
  using ReadPiece = std::function<void(Builder&, const TilePiece&)>;
  void read_pieces(Builder& to, BlockValue load, const RegisterLayout& chunks, const Expr& chunk,
                   const std::vector<TilePiece>& pieces, const ReadPiece& read);

  // What pointers were asked for, in order.
  struct Parameter {
    const TensorPlace* place;  // of a tensor, or one of its pieces
    Symbol symbol;
  };
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // An iteration's loads into registers; and what makes those of the next iteration those of this one.
  Body take_fetch() { return std::move(fetch_); }
  Body take_next() { return std::move(next_); }

 private:
  bool pieces_hold_tiles(BlockValue load, const std::vector<TilePiece>& pieces) const;
  // Asks for a chunk of registers; and, when it is there, hands it to the lanes that want it, where others asked.
  struct ChunkLoad {
    using Write = std::function<void(Builder&, const Expr& chunk)>;
    Write ask, hand_over;
    int registers = 1;
    int64_t ahead() const;  // chunks that are asked for before they are used
  };
  // The stores that are being written, and what is loaded or computed in the order of their registers and nobody else asks for:
  // as it comes chunk by chunk, not all of it need be in registers at a time.
  struct InStore {
    std::vector<BlockValue> stores;
    const AccessForm& form;
    std::vector<ChunkLoad> loads = {};
    Body declared = {}, made = {};  // of what is computed: its registers, and a chunk of them
    std::optional<Expr> chunk = {};
  };
  ChunkLoad chunk_load(BlockValue value, const AccessForm& form, bool words, const Symbol& to,
                       std::vector<TilePiece> from);
  bool comes_late(BlockValue load, const RegisterTile& tile) const;
  bool is_for_stores_alone(BlockValue value) const;
  // What a value is computed from element by element, as far as it is not in registers; false: not all of it is.
  bool reaches(BlockValue value, std::set<BlockValue>& reached) const;
  std::vector<BlockValue> stored_together(BlockValue first, const AccessForm& form) const;
  void store_chunk(Builder& to, BlockValue store, const Symbol& begin, const RegisterLayout& chunks,
                   const Expr& chunk);
  void place_load(BlockValue value, RegisterTile tile, const Symbol& to, Body fetch);
  Expr storing_block(const BlockOp& op, const RegisterLayout& layout) const;

  TileBounds& bounds_;
  WarpRows rows_;
  Values& values_;
  std::vector<Parameter> parameters_;
  Body fetch_, next_;
  InStore* in_store_ = nullptr;
  std::set<BlockValue> stored_;
};

}  // namespace quern
