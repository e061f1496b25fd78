// What a schedule makes of the operators of a kernel: how operands come to those who use them, and which
// warps make what.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/schedule/block_costs.h"
#include "core/schedule/cache_model.h"
#include "core/schedule/schedule.h"
#include "core/schedule/tile_access.h"
#include "core/schedule/tile_work.h"

namespace quern {

// Refers to all that it is made from.
class ScheduledBlock {
 public:
  ScheduledBlock(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                 const Target& target);

  const BlockOp& op(BlockValue value) const { return kernel_.ops[static_cast<size_t>(value)]; }
  double warps() const { return schedule_.workers() / 32.0; }
  bool in_loop(size_t i) const { return stages_[i] == Stage::loop; }
  bool is_elementwise(const BlockOp& each) const;

  // Whether a value is made from a product, element by element.
  bool is_of_product(BlockValue value) const { return product_[static_cast<size_t>(value)]; }
  // And from one by warpgroups that have several tiles of rows.
  bool has_split_rows(BlockValue value) const { return split_rows_[static_cast<size_t>(value)]; }

  bool is_from_memory(const BlockOp& load) const {
    return mugraph_.tensors[static_cast<size_t>(load.tensor())].numbered < 0;
  }
  int64_t bytes_each(BlockValue load) const {
    return int64_t(dtype_size(mugraph_.tensors[static_cast<size_t>(op(load).tensor())].type.dtype));
  }
  // Of its tile, as the tensor has them.
  double loaded_bytes(const BlockOp& load) const;
  bool is_staged_load(BlockValue value) const { return staged_[static_cast<size_t>(value)]; }
  // An extent of a tile as layouts have it, that of the last dimension but `from_end`: rounded up, but where
  // products by warpgroups end before.
  int64_t room(size_t i, size_t from_end) const {
    const Ints& shape = kernel_.ops[i].type.shape;
    const int64_t extent = shape[shape.size() - 1 - from_end];
    return unpadded_[i] >> from_end & 1 ? extent : padded(extent);
  }
  double padded_elements(size_t i) const;
  // Whether the lowering can leave out the registers and warps beyond such ends.
  bool ends_fit() const;
  // Of a load or store. The caller's tensors are taken to be dense.
  const TensorPlace& place(BlockValue access) const { return places_[static_cast<size_t>(access)]; }
  // Of what a load or store accesses: from and to DRAM.
  double dram_share(const BlockOp& access) const { return dram_shares_.at(access.tensor()); }

  // What of a tile's elements are neighbours in memory.
  struct Row {
    size_t dim = 0;
    bool whole = true;                   // it is the tensor's own, so that rows are neighbours too,
    bool apart = false;                  // but for other rows of the tile, which lie elsewhere
    double bytes = 0;                    // of a part of a row, or of whole rows that lie together
    int64_t alignment = kMostAlignment;  // bytes: where rows begin
  };
  static constexpr int64_t kMostAlignment = 128;
  Row memory_row(BlockValue access) const;
  // Rows that are not the tensor's own, or lie apart, are accessed in sectors of 32 bytes, and in DRAM in pairs of them:
  // bytes that are moved over bytes that are wanted. DRAM takes longer for short rows, as if they had more.
  struct SectorWaste {
    double l2 = 1, dram = 1;
  };
  static SectorWaste sector_waste(const Row& row);
  // A staged tile: its bytes in shared memory, and if TMA brings it the copies, each a panel of its rows, and
  // the parts of rows that lie in one line of the cache.
  struct StagedTile {
    double bytes = 0, copies = 0, lines = 0;
    double requests = 1;  // of the L2 cache for each line
  };
  StagedTile staged_tile(BlockValue load, const Row& row) const;
  // Bytes that one instruction of a thread brings: into a stage; into registers, as products take them or as
  // threads share a tile.
  double copy_width(BlockValue load) const;
  // Whether tensor cores take it straight from global memory, and nothing else has it otherwise.
  bool is_fragment(BlockValue load) const;
  // At most, however threads share the tile.
  double widest(BlockValue load) const;
  double load_width(BlockValue load) const;

  // Neighbours along the inner dimension of a product are neighbours in shared memory.
  bool is_by_inner(BlockValue operand, size_t side) const;

  int m_side() const { return schedule_.warps[0] >= 4 ? 0 : 1; }
  // Tiles of the iteration that all warps make of what is staged.
  bool is_made(BlockValue value) const;
  // The load that a value is made of, element by element; -1: none.
  BlockValue root_load(BlockValue value) const { return quern::root_load(kernel_.ops, value); }
  // Neighbours in memory are neighbours along the columns, or rows, of the product that a load is this
  // operand of.
  bool is_by_free(BlockValue load, size_t side) const;
  // The operand of a product that is put into shared memory in front of the loop (shared_a); -1: none. And whether it is made
  // of this load, or is it.
  BlockValue kept_operand(size_t product) const;
  bool is_kept(BlockValue load) const;
  // Whether wgmma reads the value from its stage.
  bool is_panel_operand(BlockValue value, DType dtype) const;
  // Of a product that tensor cores compute; nothing for others.
  std::optional<DType> tensor_dtype(size_t i) const { return dtypes_[i]; }
  // Three products in tf32 take the place of one of f32 operands.
  bool is_in_three(size_t i) const;
  bool is_by_warpgroups(size_t i) const;
  // What a product is made into where it lies.
  bool is_beside_product(const BlockOp& each) const;
  static int64_t least_inner(DType dtype) { return dtype == DType::f32 ? 8 : 16; }
  ProductParts parts_of(size_t i, DType dtype) const;
  // Of a product by wgmma: M, N and K of it, and how warpgroups share them.
  struct WarpgroupProduct {
    WarpgroupTile tile;
    ProductParts parts;
    // How many warpgroups have each row of the M operand, for columns of their own.
    double m_copies = 1;
  };
  WarpgroupProduct by_warpgroups(size_t i) const;
  // Of the inner dimension of a product: concatenated rows times concatenated columns are a sum of products.
  Ints inner_extents(const BlockOp& product) const;
  int64_t least_of_part(const BlockOp& product, size_t part, DType dtype) const;
  // Fragments that the warps of a block multiply, of one matrix of the batch.
  double fragments_of(size_t i, DType dtype) const;
  // How many warps make a value, each for itself.
  double copies(size_t i) const { return copies_[i]; }
  // Of a tile that is made in registers for `user`, with those that several warps make.
  double elements_for(size_t user, BlockValue value) const {
    return padded_elements(static_cast<size_t>(value)) * copies_[user];
  }

  // Whether a tile that is there once is reduced and used again, in the loop or behind it where there is one: every thread has its
  // part all the while.
  bool is_kept(size_t i) const;
  bool is_used_behind(size_t i) const;  // the loop
  // Whether a tile of an iteration is used beside what goes into a reduction: every thread has its part until
  // that is complete. What products take and make is counted with them.
  bool lives_on(BlockValue value) const;
  // Sums over the loop stay in parts until its end.
  bool is_summed(size_t i) const;
  ReducedParts parts_of_reduction(const BlockOp& each) const;

 protected:
  const MuGraph& mugraph_;
  const MuKernel& kernel_;
  const KernelSchedule& schedule_;
  const Target& target_;
  const std::vector<Stage> stages_;

 private:
  void find_products();
  // Which dimensions end where no power of two does, counted from the last.
  void find_unpadded();
  unsigned unpadded_of_product(size_t product) const;
  // Whether each warpgroup has one tile of wgmma's rows, of the M operand's `m`.
  bool has_one_tile_each(int64_t m) const;
  bool columns_end_early(size_t product, size_t side, int64_t extent) const;
  bool product_ends_fit(size_t product) const;
  bool is_unpadded_load(BlockValue load) const;
  bool has_three_warpgroups() const;
  // The left operand of a product by warps is made in registers, by every warp that has a part of its rows.
  void count_copies();
  bool uses_wgmma(const BlockOp& each, DType dtype) const;
  // Of the tile of a staged load: what products that read it there have room for.
  Ints least_extents(BlockValue load) const;
  // Elements that a thread loads at once of what comes straight from global memory as an operand of tensor
  // cores; 0 if `product` does not take it so.
  int64_t fragment_vector(BlockValue load, size_t product) const;
  bool joins_product(BlockValue load) const;
  // Of the tile that a broadcast load is used for.
  const Ints& shape_of_use(BlockValue load) const;
  // Of a product without tensor cores: the ring has the operand with neighbours along its rows or columns.
  std::optional<int> turned_dim(BlockValue load) const;
  bool is_reduced(BlockValue value) const;
  // Threads that copy a tile for a product without tensor cores lay it along rows or columns.
  bool is_turned(BlockValue operand, size_t side) const;
  // Without products the first warps have rows of their own.
  int row_warps() const { return has_product_ ? 1 : schedule_.warps[0]; }

  const bool has_product_;
  const std::map<int32_t, double> dram_shares_;  // by tensor (cache_model.h)
  std::vector<TensorPlace> places_;              // of loads and stores
  std::vector<bool> staged_;                     // loads
  std::vector<std::optional<DType>> dtypes_;     // of products by tensor cores
  std::vector<char> product_, split_rows_;
  std::vector<unsigned> unpadded_;
  std::vector<double> copies_;
};

}  // namespace quern
