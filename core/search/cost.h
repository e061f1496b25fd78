// The cost model (DESIGN section 8): how long a kernel with given roles and tile counts takes, from what it
// moves and computes. Constants are those of the target and of the table at the top of cost.cc.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/search/derive.h"
#include "core/search/precision.h"

namespace quern {

struct Cost {
  double us = 0;
  // What it is made of: the bounds by bandwidth and by arithmetic, and what does not overlap.
  double dram_us = 0, l2_us = 0, compute_us = 0, fixed_us = 0;
  int64_t blocks = 0;
  double shared_bytes = 0;  // of a block
  double dram_bytes = 0;
};

// Time to move this many bytes through DRAM once, at best.
double dram_floor_us(double bytes, const Target& target);

// What a DAG computes on the whole target if nothing is computed twice: its operators' arithmetic.
double arithmetic_us(const Dag& dag, const Terms& terms, const Target& target);

class KernelModel {
 public:
  // `element_bytes` of tensors, by number.
  KernelModel(const KernelDag& kernel, const Roles& roles, const std::vector<Dims>& tensors,
              const std::vector<double>& element_bytes, const Terms& terms, const Target& target);

  // Nothing when a block does not fit its registers or shared memory. Chooses sizes.threads.
  std::optional<Cost> evaluate(Sizes& sizes) const;
  // Whether one product is all that the loop is for: then schedules choose into how many iterations it is cut (tile_k).
  bool is_one_product() const {
    return std::count_if(work_.begin(), work_.end(), [](const Work& work) { return work.contraction; }) ==
               1 &&
           std::any_of(work_.begin(), work_.end(),
                       [](const Work& work) { return work.contraction && work.looped; });
  }

 private:
  struct Work {
    std::vector<Label> labels;                                  // of the result and reduced
    bool looped = false;                                        // once an iteration
    double rate = 0;                                            // us for one element on one SM
    Label row = kNoLabel, column = kNoLabel, inner = kNoLabel;  // of a contraction
    bool contraction = false;
    bool wgmma = false;  // the operands and the target allow it
    LabelSet outer() const { return (row < 0 ? 0 : label_bit(row)) | (column < 0 ? 0 : label_bit(column)); }
  };
  struct Access {
    std::vector<Label> labels;
    bool looped = false;
    double bytes = 0;  // of an element
    Label row = kNoLabel;  // along which elements are neighbours in memory
    double whole = 0;      // bytes of the tensor
  };
  using Tiles = std::array<int64_t, kMaxLabels>;

  void add_work(const KernelDag& kernel, const Roles& roles, const Terms& terms,
                const std::vector<Precision>& precision, size_t at);
  Tiles tiles(const Sizes& sizes) const;
  // Bytes that are moved over bytes that are wanted, where tiles cut rows into less than a sector or a pair of them.
  struct Waste {
    double l2 = 1, dram = 1;
  };
  Waste waste(const Access& access, const Tiles& tile) const;
  int64_t longest(const Tiles& tile, LabelSet outer) const;

  const Roles& roles_;
  const Target& target_;
  LabelSet common_outer_ = ~LabelSet{0};  // rows or columns of all contractions
  std::vector<int64_t> extents_;
  std::vector<Work> work_;
  std::vector<Access> loads_, stores_, accumulators_, values_;
  std::vector<Access> loaded_again_;  // whole (whole.h)
};

// The best sizes of a kernel, best first, at most `count` with different numbers of blocks or iterations.
// `allowed` may refuse sizes (constraints of the caller).
struct SizedKernel {
  Sizes sizes;
  Cost cost;
};
std::vector<SizedKernel> best_sizes(const KernelModel& model, const Roles& roles, const Terms& terms,
                                    const Target& target, size_t count,
                                    const std::function<bool(const Sizes&)>& allowed);

}  // namespace quern
