// How the threads of a kernel of rows go through a row. A team shares it: each thread takes every team-th vector, within
// its block's part where the blocks of a cluster share the row; or a thread has a row to itself, element by element.
#pragma once

#include "core/base/integers.h"
#include "core/codegen/row_shape.h"
#include "core/kernel/builder.h"

namespace quern {

class RowLoop {
 public:
  // `j` is the step within the row: of vectors, or of elements.
  // `j` and, where vectors are aligned, `first_vector` are names: of the step in the row, which loops declare, and of the number
  // in memory of the first vector that the row has elements of, which begin() declares.
  RowLoop(const RowShape& shape, int64_t row_length, ir::Symbol j, ir::Symbol first_vector)
      : shape_(shape), row_length_(row_length), j_(std::move(j)), first_vector_(std::move(first_vector)) {}

  // Of a row, and of a block's part of it.
  int64_t steps() const { return shape_.steps(row_length_); }
  int64_t part() const { return divide_up(steps(), shape_.cluster); }

  // The place in the row of the first element of a step, without a sign: it has wrapped around where that is an element of the
  // row in front.
  ir::Expr first_place() const {
    const ir::Expr first = ir::Expr(j_) * shape_.vector;
    return shape_.aligned ? first - ir::cast(ir::Expr(skipped_), j_->type) : first;
  }

  // The thread within its team, and in a cluster the first step of the block's part: declared by begin().
  ir::Expr lane() const { return ir::Expr(lane_); }
  bool is_shared() const { return shape_.cluster > 1; }
  ir::Expr first() const { return is_shared() ? ir::Expr(first_) : ir::Expr(0); }
  void begin(ir::Builder& to, const ir::Expr& thread, const ir::Expr& block, const ir::Expr& row) const;
  // The step within the part, which a step of the loop has.
  const ir::Symbol& step_in_part() const { return is_shared() ? step_in_part_ : j_; }

  // What a step copies to shared memory, for the next loop: copies of later steps are under way in each.
  void copy_ahead(ir::Body copies) { copies_ = std::move(copies); }
  // `body` for every step.
  void run(ir::Builder& to, ir::Body body, ir::Unroll unroll);
  // `body` for the step that has the element at `position`, by the thread that has it in loops; nowhere if the row has
  // no such element.
  void run_at(ir::Builder& to, const ir::Expr& position, const ir::Body& body) const;

 private:
  // Whether all blocks have as many steps of every row.
  bool is_even() const { return !shape_.aligned && steps() % shape_.cluster == 0; }
  ir::Expr all() const;
  ir::Expr end() const;
  void let_place_in_row(ir::Builder& to) const;
  ir::Body placed(const ir::Body& body, const ir::Expr& j, const ir::Expr& step) const;
  void arrive(ir::Builder& to, const ir::Body& copies, ir::Body body) const;

  const RowShape shape_;
  const int64_t row_length_;
  const ir::Symbol j_;
  const ir::Symbol lane_ = ir::make_variable("lane", ir::Scalar::u32);
  const ir::Symbol first_ = ir::make_variable("first", ir::Scalar::u32);
  const ir::Symbol first_vector_;
  const ir::Symbol skipped_ = ir::make_variable("skipped", ir::Scalar::u32);  // elements of its first vector
  const ir::Symbol steps_ = ir::make_variable("steps", ir::Scalar::u32);  // of this row, if those are aligned
  const ir::Symbol step_in_part_ = ir::make_variable("k", ir::Scalar::u32);
  ir::Body copies_;
};

}  // namespace quern
