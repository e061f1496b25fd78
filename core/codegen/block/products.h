// The instructions of matrix products: mma.sync, wgmma, or multiplications and additions of every thread.
#pragma once

#include "core/codegen/block/operands.h"
#include "core/codegen/wgmma_text.h"

namespace quern {

class Products : BlockPart {
 public:
  Products(const BlockFacts& facts, BlockBody& body, const ProductPlans& plans, TileBounds& bounds,
           SharedTiles& shared, StagedTiles& staged, Values& values, Operands& operands)
      : BlockPart(facts, body),
        plans_(plans),
        bounds_(bounds),
        shared_(shared),
        staged_(staged),
        values_(values),
        operands_(operands) {}

  // Adds the product to `sums`, which those of wgmma have once they have landed.
  void add(BlockValue product, const Symbol& sums, Stage stage);
  // The instructions of a product by wgmma, as one group. The M operand is in `words` if it comes from
  // registers; `previous`: the cooperatively produced tile is that of the iteration before.
  Body wgmma_group(BlockValue product, const Symbol& sums, const Symbol& words, bool previous);
  // What comes behind the loop takes the sums in vectors; the loop need not have them so.
  void free_of_vectors(const Symbol& sums);

  // Instructions of wgmma that are used.
  const std::set<WgmmaShape>& shapes() const { return shapes_; }

 private:
  using WriteFragment =
      std::function<void(Builder&, const Expr& z, const Expr& k, const Expr& m, const Expr& n)>;
  // `load` for every step of every matrix, `write` for every fragment.
  static void loops(Builder& to, const MatmulPlan& plan, const LoadStep& load, const WriteFragment& write);
  void mma(BlockValue product, const Symbol& sums, Stage stage);
  static Expr word_index(const MatmulPlan& plan, int side, const Fragments& from, const Expr& z,
                         const Expr& k, const Expr& tile);
  void mma_tf32x3(Builder& to, const MatmulPlan& plan, const std::array<Fragments, 2>& operands,
                  const LoadStep& load, const Symbol& sums);
  void wgmma(BlockValue product, const Symbol& sums, Stage stage);

  // fma.cc
  struct FmaOperand;
  void fma(BlockValue product, const Symbol& sums, Stage stage);
  FmaOperand fma_operand(BlockValue product, int side);
  const SharedTile& fma_tile(BlockValue operand, bool staged, DType dtype);
  Body fill_fma_tile(const SharedTile& tile, RegisterLayout layout, DType dtype);
  static void load_fma(Builder& to, const FmaOperand& operand, Scalar type, const Expr& z, const Expr& step);
  static void fma_group(Builder& to, const MatmulPlan& plan, const std::vector<FmaOperand>& operands,
                        const Symbol& sums, const Expr& z, const Expr& g);

  const ProductPlans& plans_;
  TileBounds& bounds_;
  SharedTiles& shared_;
  StagedTiles& staged_;
  Values& values_;
  Operands& operands_;
  std::map<std::pair<BlockValue, Stage>, SharedTile> fma_tiles_;
  std::set<WgmmaShape> shapes_;
};

}  // namespace quern
