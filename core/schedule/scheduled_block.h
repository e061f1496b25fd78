// What a schedule makes of the operators of a kernel: how operands come to those who use them, and which warps make what.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/schedule/block_costs.h"
#include "core/schedule/schedule.h"
#include "core/schedule/tile_work.h"

namespace quern {

// Of a tile whose extents are rounded up as in layouts.
double padded_elements(const TensorType& type);

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
  bool is_staged_load(BlockValue value) const {
    return schedule_.stages > 0 && op(value).is_load() && is_from_memory(op(value)) &&
           stages_[static_cast<size_t>(value)] == Stage::loop;
  }
  // From and to DRAM; what kernels leave to later ones stays in the L2 cache.
  bool comes(int32_t tensor) const;
  bool leaves(int32_t tensor) const {
    return std::find(mugraph_.outputs.begin(), mugraph_.outputs.end(), tensor) != mugraph_.outputs.end();
  }

  // What of a tile's elements are neighbours in memory.
  struct Row {
    size_t dim = 0;
    bool whole = true;  // it is the tensor's own, so that rows are neighbours too
    double bytes = 1e9;
    int64_t pitches = 0;                 // bytes from one to another, ORed: what divides this divides each
    int64_t alignment = kMostAlignment;  // bytes: where rows begin
  };
  static constexpr int64_t kMostAlignment = 128;
  Row memory_row(const BlockOp& access) const;
  // Rows that are not the tensor's own are accessed in sectors of 32 bytes, and in DRAM in pairs of them: bytes that are
  // moved over bytes that are wanted.
  struct SectorWaste {
    double l2 = 1, dram = 1;
  };
  static SectorWaste sector_waste(const Row& row);
  // Copies by TMA that bring a tile, each a panel of its rows, and the parts of rows that lie in one line of the cache.
  struct TmaCopies {
    double copies = 0, lines = 0;
  };
  TmaCopies tma_copies(const BlockOp& load, const Row& row) const;
  // Bytes that one instruction of a thread brings at most: rows, and tiles within them, begin where they may.
  static double load_width(const Row& row);

  // Neighbours along the inner dimension of a product are neighbours in shared memory.
  bool is_by_inner(BlockValue operand, size_t side) const;
  // By single elements, for a product without tensor cores.
  bool is_copied_turned(BlockValue load) const;

  int m_side() const { return schedule_.warps[0] >= 4 ? 0 : 1; }
  // Tiles of the iteration that all warps make of what is staged.
  bool is_made(BlockValue value) const;
  // Of a product that tensor cores compute; nothing for others.
  std::optional<DType> tensor_dtype(size_t i) const;
  bool is_by_warpgroups(size_t i) const;
  static int64_t least_inner(DType dtype) { return dtype == DType::f32 ? 8 : 16; }
  ProductParts parts_of(size_t i, DType dtype) const;
  // How many warps make a value, each for itself.
  double copies(size_t i) const { return copies_[i]; }
  // Of a tile that is made in registers for `user`, with those that several warps make.
  double elements_for(size_t user, BlockValue value) const {
    return padded_elements(op(value).type) * copies_[user];
  }

  // Whether a tile that is there once is reduced and used again: every thread has its part all the while.
  bool is_kept(size_t i) const;
  // Whether a tile of an iteration is used beside what goes into a reduction: every thread has its part until that is
  // complete. What products take and make is counted with them.
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
  // The left operand of a product by warps is made in registers, by every warp that has a part of its rows.
  void count_copies();
  bool uses_wgmma(const BlockOp& each) const;
  bool is_reduced(BlockValue value) const;
  bool lies_by_inner(BlockValue operand, size_t summed) const;
  // Threads that copy a tile of f32 for a product without tensor cores lay it along rows or columns.
  bool is_turned(BlockValue operand, size_t rank) const;
  // Without products the first warps have rows of their own.
  int row_warps() const { return has_product_ ? 1 : schedule_.warps[0]; }

  const bool has_product_;
  std::vector<char> product_, split_rows_;
  std::vector<double> copies_;
};

}  // namespace quern
