// How tiles lie in shared memory, and how threads and tensor cores find their elements there.
#pragma once

#include <functional>

#include "core/codegen/block/bounds.h"

namespace quern {

inline constexpr int64_t kSwizzleBytes = 1024;  // after which a swizzle repeats

// A tile in shared memory: a stage of a load, or what threads have left there.
struct SharedTile : StagedExtents {
  BlockValue value = -1;
  Symbol memory;  // where it lies in this iteration
  Ints pitch;     // of tiles that are not in panels: elements from one coordinate to the next
  int64_t elements = 0, bytes = 0;  // of panels: up to the last one that the tile has
  // In panels: the bits of coordinates as they follow each other in an element's place in the tile; for
  // each bit of each coordinate which one that is; and which of them the swizzle changes. Panels have rows
  // of 2^row_bits elements of the inner dimension, and 2^panel_bits elements.
  std::vector<CoordBit> bits;
  std::vector<std::vector<int>> bit_places;
  int swizzle = 0, row_bits = 0, panel_bits = 0;
};

class SharedTiles : BlockPart {
 public:
  SharedTiles(const BlockFacts& facts, BlockBody& body, TileBounds& bounds)
      : BlockPart(facts, body), bounds_(bounds) {}

  // Of tiles in the ring, bytes.
  int64_t alignment() const { return schedule_.tma || schedule_.wgmma ? kSwizzleBytes : 128; }

  std::vector<int> dims_by_stride(const SharedTile& tile) const {
    return quern::dims_by_stride(facts_.place(tile.value), tile);
  }
  // Bits of all dimensions but the inner one, the last of `dims` but one first.
  static std::vector<CoordBit> bits_of(const SharedTile& tile, const std::vector<int>& dims);
  // The same, but first those that lanes tell apart.
  std::vector<CoordBit> bits_as_read(const SharedTile& tile, const RegisterLayout& layout) const;
  // Rows of the innermost dimension are cut into panels as wide as a swizzle (core/schedule's
  // swizzled_panels); a panel holds all other dimensions row after row, their bits in this order.
  void put_in_panels(SharedTile& tile, const std::vector<CoordBit>& others) const;
  // Where each bit of `bits` is, and what the swizzle of rows of 2^row_bits elements changes.
  void find_places(SharedTile& tile) const;

  // Dimensions along which the layout reaches beyond what the tile has room for.
  static std::vector<int> beyond(const SharedTile& tile, const RegisterLayout& layout);
  // Where in the tile, counted in elements, what register `index` of a thread stands for lies.
  // Without the swizzle: where the hardware looks when it swizzles by itself.
  Expr place_in(const SharedTile& tile, const RegisterLayout& layout, const Expr& index,
                bool swizzled = true);
  // Where a thread's register 0 lies, and from there (or from another register's place) the one that the bits
  // of `index` lead to.
  Expr thread_place(const SharedTile& tile, const RegisterLayout& layout, bool swizzled = true);
  static Expr place_from(const Expr& base, const SharedTile& tile, const RegisterLayout& layout,
                         const Expr& index, bool swizzled = true);

  // Fills `words` words of `to` by ldmatrix, those behind the first `skipped` times as many of the layout;
  // false, and nothing is written, if rows of the tile are not rows of the matrices. A row of a matrix is
  // eight 16-bit elements or four f32; of these only the first kind can be transposed, others are read one by
  // one.
  bool read_matrices(Builder& out, const SharedTile& tile, DType dtype, const RegisterLayout& layout,
                     const Symbol& to, int words, const Expr& skipped);
  // Fills a tile of 16-bit numbers from registers by stmatrix, `number(r)` that of register r; false, and nothing is
  // written, if they are not in pairs as rows or columns of matrices.
  using Number = std::function<Expr(const Expr&)>;
  bool write_matrices(Builder& out, const SharedTile& tile, const RegisterLayout& layout,
                      const Number& number);

 private:
  TileBounds& bounds_;
};

}  // namespace quern
