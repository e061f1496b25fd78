// muGraphs: what one or more kernels do, at kernel and block level, and where each part of a tensor goes.
//
// A muGraph is a list of kernels over tensors in global memory. A kernel is either one operator over whole
// tensors (left to a library or to the baseline), or a block graph: what every block of a grid does with
// tiles, in a loop. The terms are those of Mirage (OSDI'25, arXiv 2405.05751, section 2): a load says along
// which dimension each grid axis cuts its tensor (imap) and along which the loop does (fmap), a store says
// where each grid axis puts its tile (omap).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/mugraph/block_op.h"

namespace quern {

// A reader of a `max` accumulator that is itself in the loop sees the running maximum, this iteration
// included; others see the final one.

// One kernel: an operator over whole tensors, or a block graph.
struct MuKernel {
  bool custom = false;
  // not custom
  OpCode code = OpCode::constant;
  Attrs attrs;
  std::vector<int32_t> operands;  // tensors
  int32_t result = -1;            // tensor
  bool keeps_precision = false;   // a cast (kept_casts.h)
  // custom
  std::array<int64_t, kGridAxes> grid = {1, 1, 1, 1};  // extents of x, y, z, cluster
  int64_t trip_count = 1;                              // of the loop
  // Elements of a part along what each axis and, the last number, the loop cut; 0: parts are as even as they
  // can be.
  std::array<int64_t, kGridAxes + 1> tiles = {};
  int threads = 128;
  std::vector<BlockOp> ops;  // operands before users

  // Parts into which axis `axis` of the grid or, for kGridAxes, the loop cuts.
  int64_t parts(int axis) const { return axis < kGridAxes ? grid[static_cast<size_t>(axis)] : trip_count; }
  // Elements of a part away from the end. A tile that would give another number of parts is for other
  // extents.
  int64_t part(int axis, int64_t extent) const;
  bool operator==(const MuKernel&) const = default;
};

// Where a tensor lies in the memory of another one, whatever strides that has.
struct TensorView {
  struct Dim {
    // The source's dimension that it goes along; -1: none, all its coordinates are the same.
    int source = -1;
    int64_t stride = 0;  // coordinates of that from one coordinate of this to the next
    // So many coordinates of this are one of that, as heads of queries that share one of keys.
    int64_t repeats = 1;
    bool operator==(const Dim&) const = default;
  };
  int32_t source = -1;  // a tensor in memory; -1: this is no view
  std::vector<Dim> dims;
  Ints first;  // the source's coordinates of the first element
  bool operator==(const TensorView&) const = default;
};

// What a concatenation makes of tensors in memory: views of them, one behind the other along dimension
// `axis`.
struct PiecedView {
  int axis = -1;  // -1: this is none
  std::vector<TensorView> pieces;
  Ints extents;  // of the pieces, along it
  bool operator==(const PiecedView&) const = default;
};

struct MuTensor {
  std::string name;
  TensorType type;
  double number = 0;  // of a literal: an operand of operators over whole tensors that has no memory
  // Input only: its elements are one behind the other in row-major order, which views that join dimensions of it need.
  bool dense = false;
  // Filled in by validate(). What an iota over whole tensors makes: the dimension along which elements are
  // numbered. What transposes, slices and reshapes make of a tensor in memory: a view of that. What
  // concatenations make: views of several. Block graphs read none of them from memory of its own: they
  // compute the first, and find the others where their sources lie.
  int numbered = -1;
  TensorView view = {};
  PiecedView pieced = {};
  bool operator==(const MuTensor&) const = default;
};

// Extents need not divide: an axis with n parts cuts a dimension of extent e into tiles of ceil(e / n), if
// the kernel gives them no other extent, the last ones shorter or empty.
struct MuGraph {
  std::string name;
  std::vector<MuTensor> tensors;
  std::vector<int32_t> inputs, outputs;  // tensors, in the order of the graph it computes
  std::vector<MuKernel> kernels;         // in launch order
  bool noted = false;                    // note_rounded_values (core/verify) has seen it; schedules keep that
  // Of kernel_alone() (edit.h): its inputs are views and numbered as they were where they come from.
  bool alone = false;
  bool operator==(const MuGraph&) const = default;
};

// Whether one of them multiplies matrices; whether one stores every iteration's tile, so that none may be
// left out.
bool has_product(const std::vector<BlockOp>& ops);
// The load that a value is made of, element by element, in its shape: the first that is found; -1: none.
BlockValue root_load(const std::vector<BlockOp>& ops, BlockValue value);
bool stores_in_loop(const std::vector<BlockOp>& ops);

// Where a block value lives: before the loop (once), in the loop (one tile an iteration), after it.
enum class Stage : uint8_t { before, loop, after };
// The stage of every operator of a custom kernel. The own stage of an accumulator and of a reduction over the
// cluster is `after`: that is where its final value is; operators in the loop may read the running value of a
// `max` accumulator.
std::vector<Stage> block_stages(const MuKernel& kernel);

// The part of a dimension that is left after axes cut it one after the other.
struct Interval {
  int64_t first = 0, last = 0;  // half open; empty when first >= last
  int64_t tile = 0;             // what it would be away from a ragged edge
  int64_t size() const { return last > first ? last - first : 0; }
};
// Number of a block along the axes of the grid, and of the iteration.
using Coordinates = std::array<int64_t, kGridAxes + 1>;
Coordinates coordinates_of(const std::array<int64_t, kGridAxes>& block, int64_t iteration);
// What dimension `dim`, of extent `extent`, of the tensor of a load or store has in the tile of an iteration,
// or, if not `looped`, in all iterations of the block.
Interval tile_interval(const MuKernel& kernel, const BlockOp& op, int dim, int64_t extent,
                       const Coordinates& at = {}, bool looped = true);
// Whether the operator's tensor is cut by this axis, or kGridAxes for the loop, along `dim`.
inline bool cuts(const BlockOp& op, int axis, int dim) {
  return (axis < kGridAxes ? op.map()[static_cast<size_t>(axis)] : op.loop_dim()) == dim;
}

// Fills in the types of all block values (nominal tiles). INVALID_GRAPH naming kernel and operator when
// anything does not hold: operands before users, maps within rank, no two blocks that store to the same
// place, no use of a loop value after the loop but through an accumulator, every tensor written once before
// it is read.
Status validate(MuGraph& mugraph);

}  // namespace quern
