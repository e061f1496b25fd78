// How matrix products of a block are taken: by mma, by warpgroups (wgmma) or without tensor cores, and which
// layout that wants of their operands and gives their sums. Decided before anything is written.
#pragma once

#include <set>

#include "core/codegen/block/facts.h"
#include "core/schedule/fragments.h"
#include "core/schedule/tile_work.h"

namespace quern {

// On tensor cores: whole fragments, in the order in which mma counts registers.
struct MatmulPlan {
  bool tensor_cores = false;
  std::optional<FmaTile> fma;  // without them
  DType dtype = DType::f16;    // f32: tf32
  bool tf32x3 = false;         // operands come in f32, each the sum of two numbers in tf32
  MmaKind mma_kind() const {
    return is_packed_in_pairs(dtype) ? MmaKind::m16n8k16_16bit : MmaKind::m16n8k8_tf32;
  }
  bool rounds_to_tf32() const { return !is_packed_in_pairs(dtype) && !tf32x3; }
  // Register bits within a word.
  int pair_bits() const { return is_packed_in_pairs(dtype) ? 1 : 0; }
  RegisterLayout a, b, d;
  const RegisterLayout& operand(int side) const { return side == 0 ? a : b; }
  bool low_rows = false;  // at most 8 rows: registers of the upper rows are not there in `a`
  int words_of_fragment(int side) const { return side == 0 && !low_rows ? 4 : 2; }
  int down = 1, across = 1, steps = 1, batch = 1;
  int batch_a = 1, batch_b = 1;  // 1 if the operand is the same for all
  unsigned partial_warps = 0;
  // By warpgroups: which operands tensor cores read from shared memory, which one gives the 64 rows of an
  // instruction, and how many columns it has.
  bool wgmma = false;
  std::array<bool, 2> shared = {false, false};
  int m_side = 0, columns = 0;
  int filled_steps = 0;  // of the steps, those that the inner dimension reaches: the others would add zeros
  int n_side() const { return 1 - m_side; }
  std::array<bool, 2> cooperative = {false, false};  // the operands
  // Where warps of their own make the N operand in the stage: it, and what they make it of.
  std::set<BlockValue> transforms;
  // Whether those that compute find the operand in the stage.
  bool is_in_stage(int side) const {
    const size_t s = static_cast<size_t>(side);
    return shared[s] && (!cooperative[s] || (side == n_side() && !transforms.empty()));
  }
  bool keeps_m = false;  // that of the rows is put into shared memory in front of the loop, cooperatively
};

// The dimension of operand `side` of a product that is summed over; and the one that is not, -1 of a vector.
inline int summed_dim(int side, int rank) { return rank == 1 ? 0 : rank - (side == 0 ? 1 : 2); }
inline int free_dim(int side, int rank) { return rank == 1 ? -1 : rank - (side == 0 ? 2 : 1); }

// Without tensor cores operands may be vectors: dimensions of the result that tell matrices of a batch apart,
// and such a dimension of it in an operand of this rank; negative where that has none.
inline int fma_batch_dims(const BlockProgram& program, BlockValue product) {
  int dims = program.op(product).type.rank();
  for (BlockValue operand : program.op(product).operands) dims -= program.shape(operand).size() > 1;
  return dims;
}
inline int fma_batch_dim(int dim, int rank, int batch_dims) {
  return dim + std::max(0, rank - 2) - batch_dims;
}

class ProductPlans {
 public:
  explicit ProductPlans(const BlockFacts& facts);

  const std::map<BlockValue, MatmulPlan>& all() const { return plans_; }
  const MatmulPlan& of(BlockValue product) const { return plans_.at(product); }
  bool contains(BlockValue value) const { return plans_.contains(value); }
  // The layout in which a product takes or gives the value, or null.
  const RegisterLayout* demand(BlockValue value) const;
  // Of an operand that wgmma reads from its stage: the least extents of its tile; or null.
  const Ints* panel_extents(BlockValue load) const;
  // Of a staged tile that has its neighbours along another dimension than memory: that one.
  std::optional<int> turned(BlockValue load) const;
  // In which layout an operand of a product is computed; and in which one all warps make it together.
  RegisterLayout operand_layout(BlockValue product, int side) const;
  RegisterLayout cooperative_layout(BlockValue value, DType dtype) const;

  // The operand that warps of their own make of the value, or that is the value; -1: threads that compute make it.
  BlockValue transforms(BlockValue value) const;

  // The product that is software-pipelined, and the one of its iteration that is waited for first; -1: none.
  struct Pipelined {
    BlockValue value = -1, behind = -1;
  };
  const Pipelined& pipelined() const { return pipelined_; }
  BlockValue pipelined_n_operand() const;

 private:
  void note_demands(BlockValue product, const MatmulPlan& plan);
  bool is_cooperative(BlockValue value, DType dtype, const RegisterLayout& fragments) const;
  bool plan_batch(BlockValue product, MatmulPlan& plan) const;
  void find_pipelined();

  // Of rows, columns and the inner dimension, that warps leave to registers and lanes.
  struct ProductBits {
    int m, n, k;
  };

  // plan_mma.cc
  struct InnerBits {
    std::vector<int> lanes, registers;
  };
  MatmulPlan plan_matmul(BlockValue product) const;
  ProductBits share_among_warps(BlockValue product, MatmulPlan& plan) const;
  InnerBits inner_bits(BlockValue product, const MatmulPlan& plan, int k_left) const;
  void place_fragments(BlockValue product, MatmulPlan& plan, const ProductBits& bits, const InnerBits& inner,
                       int vector) const;
  const MatmulPlan* earlier_product(BlockValue product) const;
  bool loads_directly(BlockValue load, int dim) const;

  // plan_fma.cc
  int shared_inner(BlockValue operand, int side, bool staged) const;
  bool is_turned(BlockValue operand, int side) const;
  MatmulPlan plan_fma(BlockValue product) const;
  void plan_fma_batch(BlockValue product, MatmulPlan& plan) const;
  void note_fma_operands(BlockValue product, const MatmulPlan& plan);

  // plan_wgmma.cc
  bool is_panel_operand(BlockValue value, DType dtype) const;
  bool columns_end_early(BlockValue product, const CoordEnd& end, const MatmulPlan& plan) const;
  bool is_cooperative_panel(BlockValue value, DType dtype) const;
  bool is_kept_panel(BlockValue product, const MatmulPlan& plan) const;
  struct WgmmaDims;
  bool plan_wgmma(BlockValue product, MatmulPlan& plan) const;
  void share_among_warpgroups(BlockValue product, MatmulPlan& plan, int n_least, ProductBits& left) const;
  void place_panels(BlockValue product, MatmulPlan& plan, const ProductBits& bits) const;
  bool plan_ends(BlockValue product, MatmulPlan& plan) const;
  void note_panels(BlockValue product, const MatmulPlan& plan);

  const BlockFacts& facts_;
  const BlockProgram& program_;
  const KernelSchedule& schedule_;
  const Target& target_;
  const int warp_bits_;
  std::map<BlockValue, MatmulPlan> plans_;
  std::map<BlockValue, RegisterLayout> demands_;
  std::map<BlockValue, Ints> panels_;
  std::map<BlockValue, int> turned_;
  std::map<BlockValue, BlockValue> transforms_;  // by value: the operand
  Pipelined pipelined_;
};

}  // namespace quern
