// Kernels of points and of rows: elementwise programs, reductions, and what is fused around them.
//
// Either one thread makes a whole row (and `vector` neighbouring rows at once), or a team shares a row and
// each thread takes every team-th vector of it: a warp, a block, or the blocks of a cluster, which have a
// part of the row each. Vectors are aligned in memory: where rows are no multiple of them, the first and the last
// one of a row have elements of its neighbours, which are left out. Reductions of one level share a loop over
// the row; later levels and the values made at every point go through it again, but for values that need no
// reduction, which the first loop makes; what picks one element of the row goes there alone. What is read in
// several of these loops comes into shared memory, if there is room for the row: copies of later steps are
// under way while the first loop reduces what has come.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "core/base/integers.h"
#include "core/codegen/baseline_kernel.h"
#include "core/codegen/row_loop.h"
#include "core/codegen/row_reductions.h"
#include "core/codegen/row_shape.h"

namespace quern {

using ir::Expr;
using ir::Scalar;

namespace {

constexpr int kWarp = RowShape::kWarp;
constexpr int kCheap = 8;  // cost of an element whose loop waits for its loads
constexpr int64_t kLongSteps = 4096;  // of aligned vectors

// For the model. What compilers unroll a loop over a row of one thread by; a round trip to the cache, of one
// to memory; registers of a thread; instructions and cycles of a sum over a team.
constexpr int64_t kUnrolled = 16, kTeamUnrolled = 4;
constexpr double kCacheTrip = 0.3, kRegisters = 32, kTeamIssue = 20, kTeamCycles = 300;
constexpr double kClusterCycles = 1500;  // of a sum over a cluster

class RowsEmitter {
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

  // Whether every access that differs within a vector is one of all of it, so that the last vector may be
  // shorter; or that vectors may be aligned in memory.
  bool moves_whole_vectors() const {
    const VariableSet element = space_.uses(element_);
    const bool loads = std::all_of(placed_.items.begin(), placed_.items.end(), [&](const Item& item) {
      return item.kind != Item::Kind::load || !(item.uses & element) || writer_.is_vector_load(item);
    });
    return loads && std::all_of(kernel_.makes.begin(), kernel_.makes.end(), [&](const auto& made) {
             const std::vector<Slot>& slots = storage_.targets(made.first);
             return std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) {
               return (shape_.aligned && made.second != Role::element) ||
                      writer_.fits_vector(made.second == Role::element ? placed_.position : row_, slot.dtype);
             });
           });
  }

  bool makes_elements() const {
    return std::any_of(kernel_.makes.begin(), kernel_.makes.end(),
                       [](const auto& made) { return made.second == Role::element; });
  }

  // Whether aligned vectors take less time than the elements that `scalar` has. Rows that a warp shares have parts of
  // vectors in most steps. Where vectors make no difference to what is kept, they do; but rows of narrow elements are
  // kept because of them, which takes longer than reading them again unless they are long (f16[300, 12289]: 14.9 and
  // 20.6 us, bf16[1024, 50257]: 163 and 63).
  bool pays_aligned(const RowsEmitter& scalar) const {
    if (shape_.team <= kWarp || !moves_whole_vectors()) return false;
    if (row_loop_.steps() >= kLongSteps) return true;
    return repeated_loads().size() == scalar.repeated_loads().size() &&
           (!makes_elements() || shape_.vector <= 4);
  }

  // Bytes of a row that more than one loop reads.
  int64_t repeated_bytes() const {
    int64_t bytes = 0;
    for (int item : repeated_loads()) bytes += row_loop_.steps() * shape_.vector * bytes_of(item);
    return bytes;
  }

  // Whether one loop that finds maxima and sums relative to them reads the row from memory, and none behind it: however much
  // it computes, it waits for its loads.
  bool streams() const {
    return !shape_.keeps && level_count() == 2 && !running_sums(0).empty() &&
           std::all_of(kernel_.makes.begin(), kernel_.makes.end(), [&](const auto& made) {
             return made.second != Role::element || is_made_first(made.first);
           });
  }

  BaselineKernel run() {
    BaselineKernel out;
    out.kind = kernel_.axes.empty() ? "points" : "rows";
    out.kernel.threads = shape_.threads;
    out.cluster = static_cast<uint32_t>(shape_.cluster);
    writer_.measure(placed_.position);
    ir::Body body;
    ir::Builder to(body);
    if (shape_.keeps || shape_.cluster > 1)
      to.let(memory_, ir::call(ir::Function::dynamic_shared, Scalar::byte, {}, {Scalar::byte}));
    if (shape_.keeps) keep_rows(to);
    for (int level = 0; level < level_count(); ++level) reductions(to, level);
    row_values(to);
    point_values(to);
    // A block must not end while others read its shared memory.
    if (shape_.cluster > 1) to.emit(ir::Instr::cluster_barrier);
    ir::Builder whole(out.kernel.body);
    prologue(whole, out);
    whole.add(std::move(body));
    out.kernel.parameters = writer_.parameters(program_.overlapped);
    out.args = writer_.arguments();
    out.kernel.shared_bytes = shared_bytes_;
    out.work = work(out);
    return out;
  }

 private:
  // Vectors of what lies row behind row.
  void align() {
    const int64_t elements = kernel_.rows() * kernel_.row_length(), whole = elements / shape_.vector;
    const Index vector = space_.add(space_.variable("q", whole + 1), loop_);
    writer_.set_aligned(space_.add(space_.scale(row_, kernel_.row_length()), element_),
                        space_.scale(vector, shape_.vector));
    const Expr number = Expr(writer_.variable("q")) + Expr(writer_.variable("j"));
    if (const int64_t rest = elements % shape_.vector; rest > 0)
      writer_.set_last_vector(static_cast<int>(rest), equal(number, whole), less(number, whole));
  }

  LaunchWork work(const BaselineKernel& kernel) {
    KernelSchedule schedule;
    schedule.warps = {1, 1, warps()};
    schedule.cluster = shape_.cluster;
    schedule.pdl = program_.overlapped;
    BlockWork& block = counter_->block();
    block.once.round_trips = std::max(0.0, round_trips_ - 1);
    block.registers = kRegisters;
    block.cluster = shape_.cluster;
    block.exchange_bytes = static_cast<double>(kernel.kernel.shared_bytes);
    block.blocks = static_cast<double>(kernel.grid.count());
    return counter_->take(schedule);
  }

  int warps() const { return shape_.threads / kWarp; }
  int rows_a_block() const { return shape_.threads / shape_.team; }
  int level_count() const {
    int count = 0;
    for (const auto& [value, level] : kernel_.levels) count = std::max(count, level + 1);
    return count;
  }

  int64_t bytes_of(int item) const {
    return static_cast<int64_t>(
        dtype_size(storage_.source(placed_.items[static_cast<size_t>(item)].value, Width::wide).dtype));
  }

  // The loads that more than one loop over the row needs, of vectors that can be copied.
  std::vector<int> repeated_loads() const {
    std::vector<std::set<int>> loops(placed_.items.size());  // that need an item
    const std::function<void(int, int)> need = [&](int item, int loop) {
      if (!loops[static_cast<size_t>(item)].insert(loop).second) return;
      for (int operand : placed_.items[static_cast<size_t>(item)].operands) need(operand, loop);
    };
    const std::vector<ValueId> running = running_sums(0);
    for (const auto& [value, level] : kernel_.levels) {
      const bool along = std::find(running.begin(), running.end(), value) != running.end();
      if (!picked_position(value)) need(trace_.computed(value), along ? 0 : level);
    }
    for (const auto& [value, role] : kernel_.makes)
      if (role == Role::element) need(trace_.stored(value), is_made_first(value) ? 0 : -1);
    std::vector<int> out;
    for (size_t i = 0; i < loops.size(); ++i) {
      const int item = static_cast<int>(i);
      if (loops[i].size() > 1 && writer_.loads_vectors(item) && shape_.vector * bytes_of(item) >= 4)
        out.push_back(item);
    }
    return out;
  }

  // Whether the first loop over the row, which reduces, can make this value of every point as well.
  bool is_made_first(ValueId value) const {
    return !kernel_.levels.empty() && !needs_reduction_[static_cast<size_t>(trace_.stored(value))];
  }

  // Of each item whether it depends on a reduction of the kernel. Operands come before their users.
  static std::vector<bool> needing_reductions(const std::vector<Item>& items) {
    std::vector<bool> needs;
    for (const Item& item : items)
      needs.push_back(item.kind == Item::Kind::held ||
                      std::any_of(item.operands.begin(), item.operands.end(),
                                  [&](int operand) { return needs[static_cast<size_t>(operand)]; }));
    return needs;
  }

  // The copies of the block's rows, or of its part of one, to shared memory, for the first loop over the row. A thread
  // reads nothing but what it has copied.
  void keep_rows(ir::Builder& to) {
    writer_.begin_pass();
    std::vector<std::pair<int, ir::Symbol>> kept;
    const Expr at = (Expr(row_in_block_) * row_loop_.part() + Expr(row_loop_.step_in_part())) * shape_.vector;
    for (int item : repeated_loads()) {
      const Scalar type =
          ir::scalar_of(storage_.source(placed_.items[static_cast<size_t>(item)].value, Width::wide).dtype);
      const ir::Symbol row = allocated(to, "kept" + std::to_string(kept.size()), type,
                                       rows_a_block() * row_loop_.part() * shape_.vector);
      writer_.copy(item, row, at);
      kept.emplace_back(item, row);
    }
    count_pass(true);
    to.add(std::move(writer_.body(Scope::kernel)));
    row_loop_.copy_ahead(std::move(writer_.body(Scope::loop)));
    for (const auto& [item, row] : kept) writer_.keep(item, row, at);
  }

  // Of the dynamic shared memory, which blocks of a cluster can read from each other.
  ir::Symbol allocated(ir::Builder& to, const std::string& name, Scalar type, int64_t count) {
    const ir::Symbol array = ir::make_pointer(name, memory_, type);
    to.let(array, ir::address(memory_, shared_bytes_));
    shared_bytes_ += round_up(count * static_cast<int64_t>(ir::bytes_of(type)), kAlignment);
    return array;
  }

  ir::Symbol shared_array(ir::Builder& to, const std::string& name, Scalar type, int64_t count) {
    if (shape_.cluster > 1) return allocated(to, name, type, count);
    const ir::Symbol array = ir::make_shared(name, type, count);
    to.declare(array);
    return array;
  }

  void count_pass(bool with_loop) {
    const int64_t team = shape_.team;
    const double steps =
        with_loop ? static_cast<double>(team > 1 ? divide_up(row_loop_.part(), team) : row_loop_.steps()) : 1;
    counter_->add(writer_.work(Scope::kernel), 1, false, warps());
    counter_->add(writer_.work(Scope::loop), steps, false, warps());
    counter_->add(writer_.work(Scope::element), steps, true, warps());
    const double in_turn = shape_.keeps ? steps : team == 1 ? kUnrolled : streams() ? kTeamUnrolled : 1;
    if (with_loop && !(shape_.keeps && round_trips_ > 0))
      round_trips_ += std::ceil(steps / in_turn) * (round_trips_ > 0 ? kCacheTrip : 1);
  }

  bool many() const { return shape_.vector > 1; }

  void prologue(ir::Builder& to, BaselineKernel& out) {
    const int64_t rows = shape_.team > 1 ? kernel_.rows() : divide_up(kernel_.rows(), shape_.vector);
    const BlockGrid blocks = block_grid(divide_up(rows, rows_a_block()) * shape_.cluster);
    out.grid = blocks.grid;
    const Expr thread = ir::thread_index(Scalar::u32), number = ir::cast(blocks.number, writer_.index_type());
    auto leave_beyond = [&](const Expr& row) {
      to.when(less_equal(rows, row), [](ir::Builder& out_of_it) { out_of_it.add(ir::Return{}); });
    };
    if (shape_.team == 1)
      return leave_beyond(to.let(writer_.variable("t"), number * shape_.threads + thread));
    const bool several = rows_a_block() > 1;
    if (several) to.let(row_name_, thread / shape_.team);
    const Expr row = to.let(writer_.variable("row"),
                            several ? number * rows_a_block() + Expr(row_name_) : number / shape_.cluster);
    if (!blocks.exact || (several && kernel_.rows() % rows_a_block() != 0)) leave_beyond(row);
    row_loop_.begin(to, thread, number, row);
  }

  DType type_of(ValueId value) const { return register_type(graph_.node(value).type.dtype); }
  OpCode code_of(ValueId value) const { return graph_.node(value).code; }

  // What makes of the reductions of threads those of the team.
  struct Combined {
    ir::Body block, cluster;  // within each block, and of what all blocks of a cluster left there
  };

  // All reductions of a level: declared, accumulated in one loop but for those that pick an element of the row, and combined
  // by the team.
  void reductions(ir::Builder& to, int level) {
    std::vector<ValueId> looped;
    std::vector<std::pair<ValueId, int>> picks;
    for (const auto& [value, at] : kernel_.levels) {
      if (at != level || running_.count(value)) continue;
      if (const auto position = picked_position(value))
        picks.emplace_back(value, *position);
      else
        looped.push_back(value);
    }
    // Rows arrive while the first loop goes through them.
    if (level == 0 && looped.empty())
      for (const auto& [value, position] : std::exchange(picks, {})) looped.push_back(value);
    Combined combined;
    writer_.begin_pass();
    for (ValueId value : looped) accumulate(to, combined, value);
    if (level == 0) store_points(true);
    ir::Body step = gathered(to, true);
    for (ValueId value : running_sums(level)) run_along(to, step, value);
    loop_over_row(to, std::move(step));
    for (auto& [value, sum] : running_)
      if (kernel_.levels.at(value) == level) settle(to, combined, value, sum);
    for (const auto& [value, position] : picks) {
      writer_.begin_pass();
      const Expr number = writer_.value(position, DType::i32);
      accumulate(to, combined, value);
      pick(to, number);
    }
    to.add(std::move(combined.block));
    if (combined.cluster.empty()) return;
    counter_->block().once.chain += kClusterCycles;
    to.emit(ir::Instr::cluster_barrier);
    to.add(std::move(combined.cluster));
  }

  RowItems row_items() const {
    return {graph_, trace_, placed_.items, place_, space_.uses(loop_) | space_.uses(element_)};
  }

  std::optional<int> picked_position(ValueId reduction) const {
    return shape_.team > 1 ? row_items().picked_position(reduction) : std::nullopt;
  }

  // A sum of e^(x - max(x)) that the loop which finds the maximum makes, too: relative to the largest of what came so far,
  // and scaled where that grows, each time exact to some 2^-22 (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018).
  struct RunningSum {
    ValueId maximum;
    ir::Symbol sum, relative_to;  // the latter finite, so that what is masked by -infinity adds 0
  };

  // Those of the next level, if none of it needs a loop of its own then.
  std::vector<ValueId> running_sums(int level) const {
    std::vector<ValueId> sums;
    for (const auto& [value, at] : kernel_.levels) {
      if (at != level + 1 || picked_position(value)) continue;
      const auto maximum = row_items().maximum_of_numerators(value);
      if (shape_.team == 1 || !maximum || kernel_.levels.at(*maximum) != level || picked_position(*maximum))
        return {};
      sums.push_back(value);
    }
    return sums;
  }

  static Expr finite(const Expr& maximum) {
    return ir::combine(OpCode::reduce_max, maximum,
                       ir::literal(std::numeric_limits<float>::lowest(), Scalar::f32), DType::f32);
  }
  static Expr exp_fast(const Expr& exponent) {
    return ir::call(ir::Function::exp_fast, Scalar::f32, {exponent});
  }

  // Adds to a step of the loop what the sum makes of it.
  void run_along(ir::Builder& to, ir::Body& step, ValueId value) {
    const std::string number = std::to_string(reductions_++);
    const ValueId maximum = *row_items().maximum_of_numerators(value);
    const RunningSum& own = running_[value] = {maximum, ir::make_registers("r" + number, Scalar::f32, 1),
                                               ir::make_registers("m" + number, Scalar::f32, 1)};
    const Expr sum = ir::element(own.sum, 0), relative_to = ir::element(own.relative_to, 0),
               most = writer_.held(maximum);
    for (const auto& [symbol, start] :
         {std::pair(own.sum, 0.0f), {own.relative_to, std::numeric_limits<float>::lowest()}}) {
      to.declare(symbol);
      to.assign(ir::element(symbol, 0), ir::literal(start, Scalar::f32));
    }
    ir::Builder each(step);
    const Expr now = each.let(ir::make_variable("now" + number, Scalar::f32), finite(most));
    each.assign(sum, sum * exp_fast(relative_to - now));
    each.assign(relative_to, now);
    writer_.begin_pass();
    writer_.hold(maximum, now);
    writer_.approximate(trace_.computed(value));
    const Expr term = writer_.value(trace_.computed(value), DType::f32);
    ir::Builder(writer_.body(many() ? Scope::element : Scope::loop)).combine(OpCode::reduce_sum, sum, term);
    writer_.hold(maximum, most);
    const double trips = round_trips_;  // what the step has loaded is there
    each.add(gathered(to, true));
    round_trips_ = trips;
  }

  // Relative to the maximum of the row. Where that is no number, nor is the sum.
  void settle(ir::Builder& to, Combined& combined, ValueId value, const RunningSum& own) {
    const Expr sum = ir::element(own.sum, 0), most = writer_.held(own.maximum);
    to.assign(sum, sum * exp_fast(ir::element(own.relative_to, 0) - finite(most)) + (most - most));
    combine_team(combined, value, own.sum);
    writer_.hold(value, sum);
  }

  // Declares and starts the reduction, and has the pass take in an element.
  void accumulate(ir::Builder& to, Combined& combined, ValueId value) {
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
    if (shape_.team > 1) combine_team(combined, value, sums);
    writer_.hold(value, sum);
  }

  // What the writer has gathered, for the vector that has the element at this position of the row, if there is one: by
  // the thread that has it in loops.
  void pick(ir::Builder& to, const Expr& position) {
    const ir::Body body = gathered(to, false);
    const Expr place = to.let(ir::make_variable("place" + std::to_string(picks_++), writer_.index_type()),
                              ir::cast(position, writer_.index_type()));
    row_loop_.run_at(to, place, body);
  }

  void combine_team(Combined& combined, ValueId value, const ir::Symbol& sums) {
    counter_->block().once.slots += kTeamIssue * warps();
    counter_->block().once.chain += kTeamCycles;
    ir::Builder to(combined.block);
    const Scalar type = sums->type;
    const Expr sum = ir::element(sums, 0), combiner = ir::combiner(code_of(value), type);
    if (shape_.team == kWarp)
      return to.assign(sum, ir::call(ir::Function::warp_reduce, type, {sum, combiner}));
    const int team_warps = shape_.team / kWarp;
    const ir::Symbol scratch = shared_array(to, "scratch_" + sums->name, type, team_warps);
    to.assign(sum, ir::call(ir::Function::block_reduce, type, {sum, ir::address(scratch, 0), combiner},
                            {team_warps}));
    if (shape_.cluster > 1) combine_cluster(combined, value, sums);
  }

  // Every block leaves its sum and takes those of all, in the same order.
  void combine_cluster(Combined& combined, ValueId value, const ir::Symbol& sums) {
    counter_->block().once.slots += shape_.cluster * warps();
    const Scalar type = sums->type;
    const Expr sum = ir::element(sums, 0);
    ir::Builder leave(combined.block), take(combined.cluster);
    const ir::Symbol part = shared_array(leave, "part_" + sums->name, type, 1),
                     other = ir::make_vector("other_" + sums->name, type, 1);
    leave.when(equal(row_loop_.lane(), 0),
               [&](ir::Builder& first) { first.assign(ir::element(part, 0), sum); });
    take.declare(other);
    for (int block = 0; block < shape_.cluster; ++block) {
      take.emit(ir::Instr::load_cluster, {other, ir::address(part, 0), block}, {type, 1});
      if (block == 0)
        take.assign(sum, ir::element(other, 0));
      else
        take.combine(code_of(value), sum, ir::element(other, 0));
    }
  }

  void row_values(ir::Builder& to) {
    writer_.begin_pass();
    for (const auto& [value, role] : kernel_.makes) {
      if (role != Role::row && role != Role::reduction) continue;
      for (const Slot& slot : storage_.targets(value))
        writer_.store(trace_.stored(value), slot, row_, stores_row());
    }
    pass(to, false);
  }

  Expr stores_row() const {
    if (shape_.team == 1) return ir::truth(true);
    const Expr first = equal(row_loop_.lane(), 0);
    return shape_.cluster > 1 ? both(equal(row_loop_.first(), 0), first) : first;
  }

  void point_values(ir::Builder& to) {
    writer_.begin_pass();
    if (store_points(false)) pass(to, true);
  }

  // Those of the first loop, or the others; whether there are some.
  bool store_points(bool first) {
    bool some = false;
    for (const auto& [value, role] : kernel_.makes) {
      if (role != Role::element || is_made_first(value) != first) continue;
      some = true;
      for (const Slot& slot : storage_.targets(value))
        writer_.store(trace_.stored(value), slot, placed_.position);
    }
    return some;
  }

  template <class Write>
  ir::For element_loop(const Write& write) {
    ir::For loop{writer_.variable("v"), 0, shape_.vector, ir::Unroll::full, {}};
    ir::Builder each(loop.body);
    write(each);
    return loop;
  }

  // Those of a vector that the row has whole, and of others those that it has.
  void aligned_elements(ir::Builder& to) {
    const ir::Body elements = std::move(writer_.body(Scope::element));
    if (elements.empty()) return;
    const Expr first = row_loop_.first_place(), place = first + Expr(writer_.variable("v"));
    const int64_t length = kernel_.row_length(), starts = length - shape_.vector + 1;  // of whole vectors
    auto add = [&](ir::Builder& each) {
      each.let(writer_.variable("place"), ir::cast(place, writer_.index_type()));
      each.add(elements);
    };
    auto add_checked = [&](ir::Builder& each) {
      each.when(less(place, length), [&](ir::Builder& one) {
        add(one);
        one.add(writer_.after_element());
      });
    };
    // Sums alone take less where each element is checked (1,024 rows of 50,257: 17.2 and 21.0 us).
    if (!makes_elements()) return to.add(element_loop(add_checked));
    to.when(less(first, starts), [&](ir::Builder& whole) {
      whole.add(element_loop(add));
      whole.add(writer_.after());
    });
    to.when(less_equal(starts, first), [&](ir::Builder& part) { part.add(element_loop(add_checked)); });
  }

  // What the writer has gathered for a step of the loop, or for all of the row; what is the same in all steps goes to `to`.
  ir::Body gathered(ir::Builder& to, bool with_loop) {
    count_pass(with_loop);
    ir::Body body = std::move(writer_.body(Scope::loop));
    ir::Builder inner(body);
    if (shape_.aligned) {
      aligned_elements(inner);
    } else {
      if (!writer_.body(Scope::element).empty())
        inner.add(
            element_loop([&](ir::Builder& each) { each.add(std::move(writer_.body(Scope::element))); }));
      inner.add(writer_.after());
    }
    to.add(std::move(writer_.body(Scope::kernel)));
    return body;
  }

  void pass(ir::Builder& to, bool with_loop) {
    ir::Body body = gathered(to, with_loop);
    if (with_loop)
      loop_over_row(to, std::move(body));
    else
      to.add(std::move(body));
  }

  void loop_over_row(ir::Builder& to, ir::Body body) {
    // A team's step has a vector of work for every thread; unrolling it further costs more time to compile than it saves,
    // unless it does little but wait.
    row_loop_.run(
        to, std::move(body),
        shape_.team > 1 && kernel_.cost > kCheap && !streams() ? ir::Unroll::none : ir::Unroll::automatic);
  }

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
  std::optional<WorkCounter> counter_;
  double round_trips_ = 0;  // to memory, one after the other
};

size_t largest_element(RowsEmitter& scalar, const Kernel& kernel, const Storage& storage) {
  size_t largest = 1;
  for (const Item& item : scalar.items())
    if (item.kind == Item::Kind::load && (item.uses & scalar.space().uses(scalar.vector_index())))
      largest = std::max(largest, dtype_size(storage.source(item.value, Width::wide).dtype));
  const bool once_a_row = scalar.shares_rows();  // what the row has one of
  for (const auto& [value, role] : kernel.makes)
    for (const Slot& slot : storage.targets(value))
      if (!once_a_row || role == Role::element) largest = std::max(largest, dtype_size(slot.dtype));
  return largest;
}

}  // namespace

BaselineKernel emit_rows(const BaselineProgram& program, const Kernel& kernel) {
  const KernelTrace trace(program.graph, kernel, program.partition.is_root);
  RowShape shape = RowShape::of(kernel);
  RowsEmitter scalar(program, kernel, trace, shape, false);
  const size_t largest = largest_element(scalar, kernel, program.storage);
  shape.vector = choose_vector(kernel, shape.team, largest);
  if (kernel.axes.empty() || shape.team > 1) {
    RowShape wider = shape;
    wider.vector = choose_vector(kernel, shape.team, largest, true);
    wider.aligned = shape.team > 1;
    if (wider.vector > shape.vector) {
      const RowsEmitter emitter(program, kernel, trace, wider, false);
      if (wider.aligned ? emitter.pays_aligned(RowsEmitter(program, kernel, trace, shape, false))
                        : emitter.moves_whole_vectors())
        shape = wider;
    }
  }
  if (shape.team > 1) {
    const RowsEmitter streaming(program, kernel, trace, shape, false);
    shape = share_rows(program, kernel, shape, streaming.repeated_bytes(), streaming.streams());
  }
  for (bool wide : {false, true}) {
    RowsEmitter emitter(program, kernel, trace, shape, wide);
    BaselineKernel code = emitter.run();
    if (!emitter.needs_wide()) return code;
  }
  fatal(__FILE__, __LINE__, "64-bit indices do not suffice");
}

}  // namespace quern
