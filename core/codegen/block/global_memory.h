// Straight between global memory and registers: loads that no ring stages, stores, and pointers to tiles.
#pragma once

#include <functional>

#include "core/codegen/block/values.h"

namespace quern {

// The order in which registers are handed over, and what moves once lanes have exchanged 2^`exchanged` words each;
// 2^`vector` elements in an access. Pairs of 16 bits, as tensor cores leave them, have neighbours in other lanes: lanes
// exchange words until each has up to 16 bytes that lie together. Of loads those outside of the loop that no product
// takes; the exchange is its own opposite.
struct AccessForm {
  RegisterLayout registers, moved;
  int vector = 0, exchanged = 0;
};
AccessForm access_form(const BlockFacts& facts, BlockValue access, RegisterLayout layout);
// Bytes that lie together in memory, of which neighbouring lanes have 2^`vector` elements each.
int64_t run_bytes(const BlockFacts& facts, BlockValue access, const RegisterLayout& layout, int vector);

// What a tile is loaded from: its tensor, or pieces of it, which lie in [begin, end) of the dimension in
// which it has them.
struct TilePiece {
  const TensorPlace* place;
  Symbol from;  // where the tile would begin, were it all in this piece
  int64_t begin, end;
};

class GlobalMemory : BlockPart {
 public:
  GlobalMemory(const BlockFacts& facts, BlockBody& body, TileBounds& bounds, Values& values)
      : BlockPart(facts, body), bounds_(bounds), values_(values) {}

  // `as_it_is`: nobody converts it.
  void load(BlockValue value, const RegisterLayout& layout, bool as_it_is = true);
  void store(BlockValue value);

  // `written`: even if no store of the block does.
  Symbol pointer(int32_t tensor, const TensorPlace& place, bool written = false);
  // Of a load's or store's tile, in its tensor's memory: where the first element lies.
  Expr tile_begin(BlockValue access, const TensorPlace& place) const;
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
  const Body& fetch() const { return fetch_; }
  Body take_fetch() { return std::move(fetch_); }
  Body take_next() { return std::move(next_); }

 private:
  // A pointer to the tensor's first element of the tile, defined in `to`.
  Symbol tile_pointer(Builder& to, const std::string& prefix, BlockValue access, const TensorPlace& place,
                      int64_t begin = 0);
  bool pieces_hold_tiles(BlockValue load, const std::vector<TilePiece>& pieces) const;
  // Asks for a chunk of registers; and, when it is there, hands it to the lanes that want it, where others asked.
  struct ChunkLoad {
    using Write = std::function<void(Builder&, const Expr& chunk)>;
    Write ask, hand_over;
    int registers = 1;
    int64_t ahead() const;  // chunks that are asked for before they are used
  };
  // The store that is being written, and loads in the order of its registers that nobody else asks for: as they come chunk by
  // chunk, they need not all be in registers at a time.
  struct InStore {
    BlockValue store;
    const AccessForm& form;
    std::vector<ChunkLoad> loads = {};
  };
  ChunkLoad chunk_load(BlockValue value, const AccessForm& form, bool words, const Symbol& to,
                       std::vector<TilePiece> from);
  bool comes_late(BlockValue load, const RegisterTile& tile) const;
  bool is_for_store_alone(BlockValue load) const;
  void place_load(BlockValue value, RegisterTile tile, const Symbol& to, Body fetch);
  Expr storing_block(const BlockOp& op, const RegisterLayout& layout) const;

  TileBounds& bounds_;
  Values& values_;
  std::vector<Parameter> parameters_;
  Body fetch_, next_;
  InStore* in_store_ = nullptr;
};

}  // namespace quern
