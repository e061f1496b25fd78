// Operands of tensor cores: from shared memory into the registers in which mma takes them, as descriptors of
// wgmma, and tiles that all warps of a block make together because several of them need the same.
#pragma once

#include "core/codegen/block/staged_tiles.h"

namespace quern {

// A cooperatively produced tile, in a shared buffer: `copies` of it, which iterations take one after the
// other.
struct CooperativeTile {
  SharedTile tile;
  Symbol buffer, previous_memory;
  int copies = 1;
  bool is_made = false;
};

// What a step k of matrix z of a product loads first.
using LoadStep = std::function<void(Builder&, const Expr& z, const Expr& k)>;
// An operand in words of two 16-bit elements or one of tf32 or f32: all of it, or, if there is a `load`, what this
// brings for step k of matrix z.
struct Fragments {
  Symbol registers;
  LoadStep load;
};

class Operands : BlockPart {
 public:
  Operands(const BlockFacts& facts, BlockBody& body, const ProductPlans& plans, TileBounds& bounds,
           SharedTiles& shared, StagedTiles& staged, Values& values)
      : BlockPart(facts, body),
        plans_(plans),
        bounds_(bounds),
        shared_(shared),
        staged_(staged),
        values_(values) {}

  // An operand of a product. What lies in shared memory as matrices comes step by step, unless other products
  // want the same.
  Fragments fragments(BlockValue product, int side);
  // The value in words, in exactly this order of registers.
  Symbol packed(BlockValue value, const RegisterLayout& layout, const MatmulPlan& plan, int summed_dim);
  // What tensor cores take in a word: elements `index` and `index` + 1 of a value in 16 bits, or one in tf32,
  // or the f32 number of which two in tf32 are made; zeros behind the edges of a dimension that a product
  // sums over.
  Expr word_of(BlockValue value, const RegisterLayout& layout, const MatmulPlan& plan, int summed_dim,
               const Expr& index);
  // The descriptor of instruction `index`; `previous`: of the tile of the iteration before.
  Expr panel_operand(BlockValue product, int side, const Expr& index, bool previous);
  CooperativeTile& cooperative_tile(BlockValue product, int side);
  const CooperativeTile& make_cooperatively(BlockValue product, int side);

 private:
  bool is_load_of(BlockValue value, DType dtype) const;
  bool fill_by_matrices(Builder& to, BlockValue value, const RegisterLayout& layout, const MatmulPlan& plan,
                        const Symbol& registers);
  // Word `w` of a layout, out of a tile of words in another order.
  static Expr rearranged_word(const RegisterTile& tile, const RegisterLayout& layout, const Expr& w);
  // The staged tile that is an operand of one product as it lies; null if the operand is none.
  const SharedTile* matrices_of(BlockValue value, DType dtype);
  std::optional<Fragments> by_steps(BlockValue product, int side, const SharedTile& tile);
  void place_cooperative_tile(CooperativeTile& made, BlockValue value, const MatmulPlan& plan, bool in_stage);

  const ProductPlans& plans_;
  TileBounds& bounds_;
  SharedTiles& shared_;
  StagedTiles& staged_;
  Values& values_;
  // By how products take them: their dtype, whether by wgmma or as f32, and the dimension that is summed over.
  std::map<std::tuple<BlockValue, DType, bool, bool, int>, CooperativeTile> cooperative_tiles_;
  std::map<std::string, Symbol> packed_;
};

}  // namespace quern
