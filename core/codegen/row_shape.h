// How a kernel of rows is spread over threads: by how many a row is shared, and how much of it each does at once.
#pragma once

#include "core/codegen/baseline_kernel.h"

namespace quern {

struct RowShape {
  static constexpr int kWarp = 32;

  int team = 1;        // threads of a block that share a row
  int cluster = 1;     // blocks that do
  int vector = 1;      // elements a thread does at once: of a row if it has a team, else neighbouring rows
  int threads = 0;     // of a block
  bool keeps = false;  // the row, in shared memory
  // Vectors are aligned in memory, not to rows: a row's first and last one may have elements of its neighbours.
  bool aligned = false;

  // Of a loop over a row of this length, at most: vectors, or elements.
  int64_t steps(int64_t row_length) const {
    return aligned ? (row_length + 2 * vector - 2) / vector : row_length / (team > 1 ? vector : 1);
  }
  // One element at a time, by a team where neighbours are reduced.
  static RowShape of(const Kernel& kernel);
};

// The widest vector that accesses of 16 bytes allow, that divides what it runs along unless the last one may
// be shorter, and that leaves enough threads.
int choose_vector(const Kernel& kernel, int team, size_t largest_element, bool shorter = false);

// Of rows that are read by teams: by how many threads and blocks, and whether they stay on the chip,
// `repeated` bytes of each. `streams`: one loop that is unrolled is all that reads them.
RowShape share_rows(const BaselineProgram& program, const Kernel& kernel, RowShape shape, int64_t repeated,
                    bool streams);

}  // namespace quern
