// Lowers a kernel of points or of rows: rows_kernel.cc says how; what it reduces, and how threads of a row put that together: rows_combine.cc.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/codegen/baseline_kernel.h"
#include "core/codegen/row_loop.h"
#include "core/codegen/row_reductions.h"
#include "core/codegen/row_shape.h"

namespace quern {

class RowsEmitter {
  using Expr = ir::Expr;
  using Scalar = ir::Scalar;

 public:
  RowsEmitter(const BaselineProgram& program, const Kernel& kernel, const KernelTrace& trace, RowShape shape,
              bool wide)
      : program_(program),
        graph_(program.graph),
        kernel_(kernel),
        trace_(trace),
        storage_(program.storage),
        shape_(shape),
        writer_(graph_, space_, storage_, wide) {
    const bool by_team = shape.team > 1;
    const int64_t row_step = by_team ? 1 : shape.vector, inner_step = by_team ? shape.vector : 1;
    thread_row_ = space_.variable(by_team ? "row" : "t", divide_up(kernel.rows(), row_step));
    loop_ = space_.variable("j", shape.steps(kernel.row_length()));
    element_ =
        shape.aligned ? space_.variable("place", kernel.row_length()) : space_.variable("v", shape.vector);
    auto spread = [&](const Index& base, int64_t step) {
      return step == 1 ? base : space_.add(space_.scale(base, step), element_);
    };
    row_ = spread(thread_row_, row_step);
    place_ = shape.aligned ? element_ : spread(loop_, inner_step);
    placed_ = trace.place(space_, row_, place_);
    needs_reduction_ = needing_reductions(placed_.items);
    writer_.set_scopes(loop_, element_, shape.vector);
    writer_.set_items(placed_.items);
    if (const int rest = static_cast<int>(kernel.rows() % row_step); rest > 0) {
      const Expr thread(writer_.variable("t"));
      const int64_t last = kernel.rows() / row_step;
      writer_.set_last_vector(rest, equal(thread, last), less(thread, last));
    }
    if (shape.aligned) align();
    counter_.emplace(space_, vector_index(), element_, shape.vector);
  }
  const std::vector<Item>& items() const { return placed_.items; }
  IndexSpace& space() { return space_; }
  bool shares_rows() const { return shape_.team > 1; }
  // What neighbouring elements of a vector differ in, when there is one element: the loop or the row itself.
  const Index& vector_index() const { return shape_.team > 1 ? loop_ : thread_row_; }
  bool needs_wide() const { return writer_.needs_wide(); }

  // Whether every access that differs within a vector is one of all of it, so that vectors may be aligned in memory; and whether
  // every store is, so that the last vector may be shorter.
  bool moves_whole_vectors() const;
  bool stores_whole_vectors() const;
  bool makes_elements() const;

  // Whether aligned vectors take less time than the elements that `scalar` has. Rows that a warp shares have parts of
  // vectors in most steps. Where vectors make no difference to what is kept, they do; but rows of narrow elements are
  // kept because of them, which takes longer than reading them again unless they are long (f16[300, 12289]: 14.9 and
  // 20.6 us, bf16[1024, 50257]: 163 and 63).
  bool pays_aligned(const RowsEmitter& scalar) const;

  // Bytes of a row that more than one loop reads.
  int64_t repeated_bytes() const;

  // Whether one loop that finds maxima and sums relative to them reads the row from memory, and none behind it: however much
  // it computes, it waits for its loads.
  bool streams() const;
  BaselineKernel run();

 private:
  static constexpr int kWarp = RowShape::kWarp;

  // Vectors of what lies row behind row.
  void align();
  LaunchWork work(const BaselineKernel& kernel);
  int warps() const { return shape_.threads / kWarp; }
  int rows_a_block() const { return shape_.threads / shape_.team; }
  int level_count() const;
  int64_t bytes_of(int item) const;

  // The loads that more than one loop over the row needs, of vectors that can be copied.
  std::vector<int> repeated_loads() const;

  // Whether the first loop over the row, which reduces, can make this value of every point as well.
  bool is_made_first(ValueId value) const;

  // Of each item whether it depends on a reduction of the kernel. Operands come before their users.
  static std::vector<bool> needing_reductions(const std::vector<Item>& items);

  // The copies of the block's rows, or of its part of one, to shared memory, for the first loop over the row. A thread
  // reads nothing but what it has copied.
  void keep_rows(ir::Builder& to);

  // Of the dynamic shared memory, which blocks of a cluster can read from each other.
  ir::Symbol allocated(ir::Builder& to, const std::string& name, Scalar type, int64_t count);
  ir::Symbol shared_array(ir::Builder& to, const std::string& name, Scalar type, int64_t count);
  void count_pass(bool with_loop);
  bool many() const { return shape_.vector > 1; }
  void prologue(ir::Builder& to, BaselineKernel& out);
  DType type_of(ValueId value) const { return register_type(graph_.node(value).type.dtype); }
  OpCode code_of(ValueId value) const { return graph_.node(value).code; }

  // What makes of the reductions of threads those of the team.
  struct Combined {
    ir::Body block, cluster;  // within each block, and of what all blocks of a cluster left there
  };

  // All reductions of a level: declared, accumulated in one loop but for those that pick an element of the row, and combined
  // by the team.
  void reductions(ir::Builder& to, int level);
  RowItems row_items() const;
  std::optional<int> picked_position(ValueId reduction) const;

  // A sum of e^(x - max(x)) that the loop which finds the maximum makes, too: relative to the largest of what came so far,
  // and scaled where that grows, each time exact to some 2^-22 (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018).
  struct RunningSum {
    ValueId maximum;
    ir::Symbol sum, relative_to;  // the latter finite, so that what is masked by -infinity adds 0
  };

  // Those of the next level, if none of it needs a loop of its own then.
  std::vector<ValueId> running_sums(int level) const;
  static Expr finite(const Expr& maximum);
  static Expr exp_fast(const Expr& exponent);

  // Adds to a step of the loop what the sum makes of it.
  void run_along(ir::Builder& to, ir::Body& step, ValueId value);

  // Relative to the maximum of the row. Where that is no number, nor is the sum.
  void settle(Combined& combined, ValueId value);

  // Declares and starts the reduction, and has the pass take in an element.
  void accumulate(ir::Builder& to, Combined& combined, ValueId value);

  // What the writer has gathered, for the vector that has the element at this position of the row, if there is one: by
  // the thread that has it in loops.
  void pick(ir::Builder& to, const Expr& position);
  void combine_team(Combined& combined, ValueId value, const ir::Symbol& sums,
                    std::optional<ValueId> maximum = {});

  // Every block leaves its sum and takes those of all, in the same order: of a running sum relative to the maximum of the
  // block, which it has left, too.
  void combine_cluster(Combined& combined, ValueId value, const ir::Symbol& sums,
                       std::optional<ValueId> maximum);
  void row_values(ir::Builder& to);
  Expr stores_row() const;
  void point_values(ir::Builder& to);

  // Those of the first loop, or the others; whether there are some.
  bool store_points(bool first);

  template <class Write>
  ir::For element_loop(const Write& write) {
    ir::For loop{writer_.variable("v"), 0, shape_.vector, ir::Unroll::full, {}};
    ir::Builder each(loop.body);
    write(each);
    return loop;
  }

  // Those of a vector that the row has whole, and of others those that it has.
  void aligned_elements(ir::Builder& to);

  // What the writer has gathered for a step of the loop, or for all of the row; what is the same in all steps goes to `to`.
  ir::Body gathered(ir::Builder& to, bool with_loop);
  void pass(ir::Builder& to, bool with_loop);
  void loop_over_row(ir::Builder& to, ir::Body body);

  static constexpr int64_t kAlignment = 16;

  const BaselineProgram& program_;
  const Graph& graph_;
  const Kernel& kernel_;
  const KernelTrace& trace_;
  const Storage& storage_;
  const RowShape shape_;
  IndexSpace space_;
  KernelWriter writer_;
  RowLoop row_loop_{shape_, kernel_.row_length(), writer_.variable("j"), writer_.variable("q")};
  const ir::Symbol row_name_ = ir::make_variable("row_in_block", Scalar::u32);
  const Expr row_in_block_ = rows_a_block() > 1 ? Expr(row_name_) : Expr(0);
  Index thread_row_, row_, loop_, element_, place_;  // the last: of an element in its row
  KernelTrace::Placed placed_;
  std::vector<bool> needs_reduction_;  // by item
  const ir::Symbol memory_ = ir::make_own_memory("kept", Scalar::byte);
  int64_t shared_bytes_ = 0;  // of it
  int reductions_ = 0, picks_ = 0;
  std::map<ValueId, RunningSum> running_;
  std::map<ValueId, ir::Symbol> parts_;  // what blocks of a cluster leave
  std::optional<WorkCounter> counter_;
  double round_trips_ = 0;  // to memory, one after the other
};

}  // namespace quern
