// How tiles of tensors can be accessed: in vectors of so many elements, out of a ring of stages, by TMA. It
// follows from where the tensors lie and how the muGraph cuts them; the lowering asks, and so does the model
// of schedules.
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/tensor_place.h"

namespace quern {

// The dimension of a load's or store's tile whose neighbours are neighbours in memory; -1: none.
int inner_dim(const TensorPlace& place, const Ints& tile);

// Bytes of the tile that lie next to each other in memory, from neighbours along `inner` on; null where all of it does.
std::optional<int64_t> run_bytes(const TensorPlace& place, const Ints& tile, size_t inner);

// Low bits of `inner` that can move as one access of up to 16 bytes: every vector is aligned, of whole words,
// and either inside the tensor or outside.
int vector_bits(const MuKernel& kernel, const BlockOp& access, const TensorPlace& place, int inner);

// The same of a tile that threads share in vectors along `inner`: with so many bits of threads, each has a
// vector.
int shared_vector_bits(const Ints& tile, DType dtype, int inner, int thread_bits);

// What extents of no power of two are whole parts of: in swizzled rows; and in numbers of such rows, which repeat their
// swizzle, and columns of wgmma.
constexpr int64_t kUnpaddedUnit = 32, kColumnUnit = 8;
// Which of them, along `dim` of a load.
int64_t unpadded_unit(const BlockOp& load, const TensorPlace& place, int dim);

// Whether rows and columns change places, and nothing else does.
bool is_turned_matrix(const BlockOp& op);

// Whether the shapes are the same but for extents of 1 in front.
bool differ_in_front(const Ints& a, const Ints& b);
// Whether what is made of the value, element by element and in its shape, is stored and nothing else.
bool is_stored_alone(const std::vector<BlockOp>& ops, BlockValue value);
// Whether what a product multiplies is made of this load, and of no other product.
bool feeds_product(const std::vector<BlockOp>& ops, BlockValue load);
// Whether TMA could bring rows of it: all of them begin at whole 16 bytes.
bool has_tma_rows(const TensorPlace& place);
// Whether the load comes through a stage of the ring in shared memory. Beside a producer threads read what TMA cannot bring where
// it lies, if they need it in registers anyway.
bool is_staged(const std::vector<BlockOp>& ops, const KernelSchedule& schedule, BlockValue load, Stage stage,
               const TensorPlace& place);

// The axis along which blocks are pairs that share tiles (multicast); -1: none. And whether they share this
// load's.
int multicast_axis(const KernelSchedule& schedule);
bool is_multicast(const KernelSchedule& schedule, const BlockOp& load);

// Whether tensor cores can read a load's tile from its stage: rows of its matrices are rows of panels. And a
// tile of this shape that all warps make of one, element by element: without room around it, which would have
// to be filled.
bool is_panel(const TensorPlace& place, const Ints& tile);
bool makes_panel(const TensorPlace& place, const Ints& tile);
// The same of rows that are put there once, in front of the loop: of one matrix. What TMA may bring, as it lies in memory
// (`as_it_is`), may have rows whose length is no power of two, behind which are zeros then; and so many rows that each of three
// warpgroups (`three`) has a power of two.
bool keeps_panel(const TensorPlace& place, const Ints& tile, bool as_it_is, bool three);

// Whether a staged tile has no room beside it along `dim`, though its extent there is no power of two: what
// blocks cut so and a producer brings for wgmma, which takes whole parts of such extents.
bool is_unpadded(const MuKernel& kernel, const KernelSchedule& schedule, const BlockOp& load,
                 const TensorPlace& place, int dim);

// A tile of a stage: room for each dimension, and the one along which rows lie.
struct StagedExtents {
  Ints padded;
  int inner = 0;
};
// Of the load's tile, with room for what reads it there, `least`. Rows lie as in memory, or along `turned`.
StagedExtents staged_extents(const MuKernel& kernel, const KernelSchedule& schedule, const BlockOp& load,
                             const TensorPlace& place, const Ints& least, std::optional<int> turned = {});
// Dimensions of the tile: outermost in memory first, `inner` last; without those of extent 1.
std::vector<int> dims_by_stride(const TensorPlace& place, const StagedExtents& tile);

// Bytes: of a row of a panel at most, and at least if it is swizzled.
inline constexpr int64_t kSectorBytes = 32;  // that memory is accessed in
inline constexpr int64_t kSwizzledRow = 128, kLeastSwizzle = 32;
// Bytes of a row of the panels that hold rows of so many bytes.
int64_t panel_row(int64_t bytes);
// Elements that a tile in panels takes, each of so many bytes: panels begin powers of two apart.
int64_t panel_elements(const StagedExtents& tile, int64_t size);

// The map by which TMA brings or stores the tile in panels, if it can: each of its dimensions `dims`,
// outermost first.
std::optional<TensorMap> tile_map(const MuKernel& kernel, const BlockOp& access, const TensorPlace& place,
                                  const StagedExtents& tile, const std::vector<int>& dims);
// Coordinates along `dims` of where the tensor begins in what its argument points to: maps begin there.
Ints starts_in_memory(const TensorPlace& place, const StagedExtents& tile, const std::vector<int>& dims);
// Makes the box of a tile that one copy would bring so small that each block of a pair has one; false if it
// cannot be: half of a panel has eight rows or more, after which its swizzle repeats.
bool share_out(TensorMap& map, const StagedExtents& tile, const std::vector<int>& dims);
// Of `dims` the outermost along which the tile has more than one element: its number there.
size_t outermost_dim(const StagedExtents& tile, const std::vector<int>& dims);
// Copies of the map's boxes: a panel each, or several, of so much of its outermost dimension as a copy can
// bring.
struct TileBoxes {
  int64_t panels = 1, parts = 1;
};
TileBoxes tile_boxes(const TensorMap& map, const StagedExtents& tile, const std::vector<int>& dims);

}  // namespace quern
