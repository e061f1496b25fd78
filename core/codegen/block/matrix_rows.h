// Fragments of products as rows of the matrices that ldmatrix and stmatrix move, and stores that go this way.
#pragma once

#include "core/codegen/block/facts.h"

namespace quern {

// Whether registers hold pairs along rows of 8 x 8 matrices that lie along `inner` in memory, or along their columns.
enum class MatrixRows : uint8_t { none, plain, turned };
MatrixRows matrix_rows(const RegisterLayout& layout, int inner);

// How lanes name rows of matrices that registers hold or take in pairs: their low three bits count rows, the others
// matrices, of which there are 2 to the power `matrices`. `words`: the bits of registers that count pairs.
RegisterLayout rows_of_matrices(const RegisterLayout& layout, bool plain, int matrices,
                                const std::vector<CoordBit>& words);

// Whether tiles are added, or multiplied, to what is stored (residuals): they are loaded in its order, chunk by chunk.
bool has_other_tiles(const BlockFacts& facts, BlockValue store);

// Whether a product is stored by stmatrix through shared memory, from where threads store neighbours. From registers go pieces
// of 64 bytes (128 x 96 of bf16 on an H200: 12.8 us instead of 11.3), or of 16 where wgmma has its columns as rows (64 x 168:
// 11.4 instead of 9.9).
bool is_stored_by_stmatrix(const BlockFacts& facts, BlockValue store, const RegisterLayout& layout);

}  // namespace quern
