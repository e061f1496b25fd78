// Kernels of points and of rows: elementwise programs, reductions, and what is fused around them.
//
// Either one thread makes a whole row (and `vector` neighbouring rows at once), or a team of 32 or 256
// threads shares a row and each takes every team-th vector of it. Reductions of one level share a loop over
// the row; later levels and the values made at every point read the row again, from cache.
#include <algorithm>
#include <cmath>

#include "core/base/integers.h"
#include "core/codegen/baseline_kernel.h"

namespace quern {

using ir::Expr;
using ir::Scalar;

namespace {

constexpr int kRowThreads = 256;    // of a block whose rows have teams
constexpr int kPointThreads = 128;  // of a block where every thread has a row

// For the model. What compilers unroll a loop over a row of one thread by; a round trip to the cache, of one
// to memory; registers of a thread; instructions and cycles of a sum over a team.
constexpr int64_t kUnrolled = 16;
constexpr double kCacheTrip = 0.3, kRegisters = 40, kTeamIssue = 20, kTeamCycles = 300;

struct Shape {
  int team = 1;    // threads a row
  int vector = 1;  // elements a thread does at once: of a row if it has a team, else neighbouring rows
};

class RowsEmitter {
 public:
  RowsEmitter(const Graph& graph, const Kernel& kernel, const KernelTrace& trace, const Storage& storage,
              Shape shape, bool wide)
      : graph_(graph),
        kernel_(kernel),
        trace_(trace),
        storage_(storage),
        shape_(shape),
        writer_(graph, space_, storage, wide) {
    const bool by_team = shape.team > 1;
    const int64_t row_step = by_team ? 1 : shape.vector, inner_step = by_team ? shape.vector : 1;
    thread_row_ = space_.variable(by_team ? "row" : "t", kernel.rows() / row_step);
    loop_ = space_.variable("j", kernel.row_length() / inner_step);
    element_ = space_.variable("v", shape.vector);
    auto spread = [&](const Index& base, int64_t step) {
      return step == 1 ? base : space_.add(space_.scale(base, step), element_);
    };
    row_ = spread(thread_row_, row_step);
    placed_ = trace.place(space_, row_, spread(loop_, inner_step));
    writer_.set_scopes(loop_, element_, shape.vector);
    writer_.set_items(placed_.items);
    counter_.emplace(space_, vector_index(), element_, shape.vector);
  }

  const std::vector<Item>& items() const { return placed_.items; }
  IndexSpace& space() { return space_; }
  // What neighbouring elements of a vector differ in, when there is one element: the loop or the row itself.
  const Index& vector_index() const { return shape_.team > 1 ? loop_ : thread_row_; }
  bool needs_wide() const { return writer_.needs_wide(); }

  BaselineKernel run() {
    BaselineKernel out;
    out.kind = kernel_.axes.empty() ? "points" : "rows";
    out.kernel.threads = threads();
    writer_.measure(placed_.position);
    ir::Body body;
    ir::Builder to(body);
    int level_count = 0;
    for (const auto& [value, level] : kernel_.levels) level_count = std::max(level_count, level + 1);
    for (int level = 0; level < level_count; ++level) reductions(to, level);
    row_values(to);
    point_values(to);
    ir::Builder whole(out.kernel.body);
    prologue(whole, out);
    whole.add(std::move(body));
    out.kernel.parameters = writer_.parameters();
    out.args = writer_.arguments();
    out.work = work(out);
    return out;
  }

 private:
  LaunchWork work(const BaselineKernel& kernel) {
    KernelSchedule schedule;
    schedule.warps = {1, 1, warps()};
    BlockWork& block = counter_->block();
    block.once.round_trips = std::max(0.0, round_trips_ - 1);
    block.registers = kRegisters;
    block.blocks = static_cast<double>(kernel.grid.count());
    return counter_->take(schedule);
  }

  int threads() const { return shape_.team > 1 ? kRowThreads : kPointThreads; }
  int warps() const { return threads() / 32; }

  void count_pass(bool with_loop) {
    const int64_t points = kernel_.row_length(), team = shape_.team;
    const double steps =
        with_loop ? static_cast<double>(team > 1 ? divide_up(points / shape_.vector, team) : points) : 1;
    counter_->add(writer_.work(Scope::kernel), 1, false, warps());
    counter_->add(writer_.work(Scope::loop), steps, false, warps());
    counter_->add(writer_.work(Scope::element), steps, true, warps());
    const double in_turn = team > 1 ? 1 : kUnrolled;
    if (with_loop) round_trips_ += std::ceil(steps / in_turn) * (round_trips_ > 0 ? kCacheTrip : 1);
  }

  bool many() const { return shape_.vector > 1; }

  void prologue(ir::Builder& to, BaselineKernel& out) {
    const int64_t rows_a_block = shape_.team > 1 ? threads() / shape_.team : threads();
    const int64_t steps = shape_.team > 1 ? kernel_.rows() : kernel_.rows() / shape_.vector;
    const BlockGrid blocks = block_grid(divide_up(steps, rows_a_block));
    out.grid = blocks.grid;
    const Expr thread = ir::thread_index(Scalar::u32), number = ir::cast(blocks.number, writer_.index_type());
    auto leave_beyond = [&](const Expr& row) {
      to.when(less_equal(steps, row), [](ir::Builder& out_of_it) { out_of_it.add(ir::Return{}); });
    };
    if (shape_.team == 1) return leave_beyond(to.let(writer_.variable("t"), number * threads() + thread));
    to.let(lane_, thread % shape_.team);
    const Expr first = number * rows_a_block,
               row = to.let(writer_.variable("row"), rows_a_block > 1 ? first + thread / shape_.team : first);
    if (rows_a_block > 1 || !blocks.exact) leave_beyond(row);
  }

  DType type_of(ValueId value) const { return register_type(graph_.node(value).type.dtype); }
  OpCode code_of(ValueId value) const { return graph_.node(value).code; }

  // All reductions of a level: declared, accumulated in one loop, and combined by the team.
  void reductions(ir::Builder& to, int level) {
    ir::Body after;
    ir::Builder behind(after);
    writer_.begin_pass();
    for (const auto& [value, at] : kernel_.levels) {
      if (at != level) continue;
      const DType dtype = type_of(value);
      const bool array = many() && shape_.team == 1;
      const ir::Symbol sums = ir::make_registers("r" + std::to_string(reductions_++), ir::scalar_of(dtype),
                                                 array ? shape_.vector : 1);
      const Expr sum = ir::element(sums, array ? Expr(writer_.variable("v")) : Expr(0));
      to.declare(sums);
      auto start = [&](ir::Builder& each) { each.assign(sum, ir::identity(code_of(value), dtype)); };
      if (array)
        to.add(element_loop(start));
      else
        start(to);
      const Expr operand = writer_.value(trace_.computed(value), dtype);
      ir::Builder(writer_.body(many() ? Scope::element : Scope::loop)).combine(code_of(value), sum, operand);
      if (shape_.team > 1) combine_team(behind, value, sums);
      writer_.hold(value, sum);
    }
    pass(to, true);
    to.add(std::move(after));
  }

  void combine_team(ir::Builder& to, ValueId value, const ir::Symbol& sums) {
    counter_->block().once.slots += kTeamIssue * warps();
    counter_->block().once.chain += kTeamCycles;
    const Scalar type = sums->type;
    const Expr sum = ir::element(sums, 0), combiner = ir::combiner(code_of(value), type);
    if (shape_.team == 32) return to.assign(sum, ir::call(ir::Function::warp_reduce, type, {sum, combiner}));
    const int team_warps = shape_.team / 32;
    const ir::Symbol scratch = ir::make_shared("scratch_" + sums->name, type, team_warps);
    to.declare(scratch);
    to.assign(sum, ir::call(ir::Function::block_reduce, type, {sum, ir::address(scratch, 0), combiner},
                            {team_warps}));
  }

  void row_values(ir::Builder& to) {
    writer_.begin_pass();
    for (const auto& [value, role] : kernel_.makes) {
      if (role != Role::row && role != Role::reduction) continue;
      for (const Slot& slot : storage_.targets(value))
        writer_.store(trace_.stored(value), slot, row_,
                      shape_.team > 1 ? equal(Expr(lane_), 0) : ir::truth(true));
    }
    pass(to, false);
  }

  void point_values(ir::Builder& to) {
    writer_.begin_pass();
    for (const auto& [value, role] : kernel_.makes) {
      if (role != Role::element) continue;
      for (const Slot& slot : storage_.targets(value))
        writer_.store(trace_.stored(value), slot, placed_.position);
    }
    pass(to, true);
  }

  template <class Write>
  ir::For element_loop(const Write& write) {
    ir::For loop{writer_.variable("v"), 0, shape_.vector, ir::Unroll::full, {}};
    ir::Builder each(loop.body);
    write(each);
    return loop;
  }

  // What the writer has gathered, in the loops it belongs to.
  void pass(ir::Builder& to, bool with_loop) {
    count_pass(with_loop);
    ir::Body body = std::move(writer_.body(Scope::loop));
    ir::Builder inner(body);
    if (!writer_.body(Scope::element).empty())
      inner.add(element_loop([&](ir::Builder& each) { each.add(std::move(writer_.body(Scope::element))); }));
    inner.add(writer_.after());
    to.add(std::move(writer_.body(Scope::kernel)));
    const bool team = shape_.team > 1;
    const int64_t steps = kernel_.row_length() / (team ? shape_.vector : 1);
    if (body.empty() || !with_loop || (!team && steps == 1)) return to.add(std::move(body));
    // A team's step has a vector of work for every thread; unrolling it further costs more time to compile
    // than it saves.
    to.add(ir::For{writer_.variable("j"), team ? Expr(lane_) : Expr(0), steps,
                   team ? ir::Unroll::none : ir::Unroll::automatic, std::move(body), team ? shape_.team : 1});
  }

  const Graph& graph_;
  const Kernel& kernel_;
  const KernelTrace& trace_;
  const Storage& storage_;
  const Shape shape_;
  IndexSpace space_;
  KernelWriter writer_;
  const ir::Symbol lane_ = ir::make_variable("lane", Scalar::u32);
  Index thread_row_, row_, loop_, element_;
  KernelTrace::Placed placed_;
  int reductions_ = 0;
  std::optional<WorkCounter> counter_;
  double round_trips_ = 0;  // to memory, one after the other
};

int choose_team(const Kernel& kernel) {
  size_t inner = kernel.domain.size();
  while (inner > 0 && kernel.domain[inner - 1] == 1) --inner;
  const bool contiguous = inner > 0 && std::binary_search(kernel.axes.begin(), kernel.axes.end(),
                                                          static_cast<int64_t>(inner) - 1);
  if (!contiguous || kernel.row_length() < 32) return 1;
  return kernel.row_length() < 1024 ? 32 : 256;
}

// The widest vector that accesses of 16 bytes allow, that divides what it runs along, and that leaves enough
// threads.
int choose_vector(const Kernel& kernel, int team, size_t largest_element) {
  constexpr int64_t kMinThreads = 16384;
  const int64_t extent = team > 1 ? kernel.row_length() : kernel.rows();
  const int64_t wanted = team > 1 ? team : kMinThreads;
  int vector = static_cast<int>(16 / largest_element);
  if (kernel.cost > 64) vector = std::min(vector, 2);
  if (kernel.cost > 160) vector = 1;
  while (vector > 1 && (extent % vector != 0 || extent / vector < wanted)) vector /= 2;
  return vector;
}

size_t largest_element(RowsEmitter& scalar, const Kernel& kernel, const Storage& storage) {
  size_t largest = 1;
  for (const Item& item : scalar.items())
    if (item.kind == Item::Kind::load && (item.uses & scalar.space().uses(scalar.vector_index())))
      largest = std::max(largest, dtype_size(storage.source(item.value, Width::wide).dtype));
  for (const auto& [value, role] : kernel.makes)
    for (const Slot& slot : storage.targets(value)) largest = std::max(largest, dtype_size(slot.dtype));
  return largest;
}

}  // namespace

BaselineKernel emit_rows(const Graph& graph, const Kernel& kernel, const Partition& partition,
                         const Storage& storage) {
  const KernelTrace trace(graph, kernel, partition.is_root);
  Shape shape;
  shape.team = choose_team(kernel);
  RowsEmitter scalar(graph, kernel, trace, storage, shape, false);
  shape.vector = choose_vector(kernel, shape.team, largest_element(scalar, kernel, storage));
  for (bool wide : {false, true}) {
    RowsEmitter emitter(graph, kernel, trace, storage, shape, wide);
    BaselineKernel code = emitter.run();
    if (!emitter.needs_wide()) return code;
  }
  fatal(__FILE__, __LINE__, "64-bit indices do not suffice");
}

}  // namespace quern
