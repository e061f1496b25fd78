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
#include <set>

#include "core/base/integers.h"
#include "core/codegen/rows_emitter.h"

namespace quern {

using ir::Expr;
using ir::Scalar;

namespace {

constexpr int kCheap = 8;             // cost of an element whose loop waits for its loads
constexpr int64_t kLongSteps = 4096;  // of aligned vectors

// For the model. What compilers unroll a loop over a row of one thread by; a round trip to the cache, of one
// to memory; registers of a thread.
constexpr int64_t kUnrolled = 16, kTeamUnrolled = 4;
constexpr double kCacheTrip = 0.3, kRegisters = 32;

}  // namespace

bool RowsEmitter::moves_whole_vectors() const {
  const VariableSet element = space_.uses(element_);
  const bool loads = std::all_of(placed_.items.begin(), placed_.items.end(), [&](const Item& item) {
    return item.kind != Item::Kind::load || !(item.uses & element) || writer_.is_vector_load(item);
  });
  return loads && stores_whole_vectors();
}

bool RowsEmitter::stores_whole_vectors() const {
  return std::all_of(kernel_.makes.begin(), kernel_.makes.end(), [&](const auto& made) {
    const std::vector<Slot>& slots = storage_.targets(made.first);
    return std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) {
      return (shape_.aligned && made.second != Role::element) ||
             writer_.fits_vector(made.second == Role::element ? placed_.position : row_, slot.dtype);
    });
  });
}

bool RowsEmitter::makes_elements() const {
  return std::any_of(kernel_.makes.begin(), kernel_.makes.end(),
                     [](const auto& made) { return made.second == Role::element; });
}

bool RowsEmitter::pays_aligned(const RowsEmitter& scalar) const {
  if (shape_.team <= kWarp || !moves_whole_vectors()) return false;
  if (row_loop_.steps() >= kLongSteps) return true;
  return repeated_loads().size() == scalar.repeated_loads().size() &&
         (!makes_elements() || shape_.vector <= 4);
}

int64_t RowsEmitter::repeated_bytes() const {
  int64_t bytes = 0;
  for (int item : repeated_loads()) bytes += row_loop_.steps() * shape_.vector * bytes_of(item);
  return bytes;
}

bool RowsEmitter::streams() const {
  return !shape_.keeps && level_count() == 2 && !running_sums(0).empty() &&
         std::all_of(kernel_.makes.begin(), kernel_.makes.end(), [&](const auto& made) {
           return made.second != Role::element || is_made_first(made.first);
         });
}

BaselineKernel RowsEmitter::run() {
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
  // A block must not end while others read its shared memory.
  if (shape_.cluster > 1) to.emit(ir::Instr::cluster_arrive);
  row_values(to);
  point_values(to);
  if (shape_.cluster > 1) to.emit(ir::Instr::cluster_wait);
  ir::Builder whole(out.kernel.body);
  prologue(whole, out);
  whole.add(std::move(body));
  out.kernel.parameters = writer_.parameters(program_.overlapped);
  out.args = writer_.arguments();
  out.kernel.shared_bytes = shared_bytes_;
  out.work = work(out);
  return out;
}

void RowsEmitter::align() {
  const int64_t elements = kernel_.rows() * kernel_.row_length(), whole = elements / shape_.vector;
  const Index vector = space_.add(space_.variable("q", whole + 1), loop_);
  writer_.set_aligned(space_.add(space_.scale(row_, kernel_.row_length()), element_),
                      space_.scale(vector, shape_.vector));
  const Expr number = Expr(writer_.variable("q")) + Expr(writer_.variable("j"));
  if (const int64_t rest = elements % shape_.vector; rest > 0)
    writer_.set_last_vector(static_cast<int>(rest), equal(number, whole), less(number, whole));
}

LaunchWork RowsEmitter::work(const BaselineKernel& kernel) {
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

int RowsEmitter::level_count() const {
  int count = 0;
  for (const auto& [value, level] : kernel_.levels) count = std::max(count, level + 1);
  return count;
}

int64_t RowsEmitter::bytes_of(int item) const {
  return static_cast<int64_t>(
      dtype_size(storage_.source(placed_.items[static_cast<size_t>(item)].value, Width::wide).dtype));
}

std::vector<int> RowsEmitter::repeated_loads() const {
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

bool RowsEmitter::is_made_first(ValueId value) const {
  return !kernel_.levels.empty() && !needs_reduction_[static_cast<size_t>(trace_.stored(value))];
}

std::vector<bool> RowsEmitter::needing_reductions(const std::vector<Item>& items) {
  std::vector<bool> needs;
  for (const Item& item : items)
    needs.push_back(item.kind == Item::Kind::held ||
                    std::any_of(item.operands.begin(), item.operands.end(),
                                [&](int operand) { return needs[static_cast<size_t>(operand)]; }));
  return needs;
}

void RowsEmitter::keep_rows(ir::Builder& to) {
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

ir::Symbol RowsEmitter::allocated(ir::Builder& to, const std::string& name, Scalar type, int64_t count) {
  const ir::Symbol array = ir::make_pointer(name, memory_, type);
  to.let(array, ir::address(memory_, shared_bytes_));
  shared_bytes_ += round_up(count * static_cast<int64_t>(ir::bytes_of(type)), kAlignment);
  return array;
}

ir::Symbol RowsEmitter::shared_array(ir::Builder& to, const std::string& name, Scalar type, int64_t count) {
  if (shape_.cluster > 1) return allocated(to, name, type, count);
  const ir::Symbol array = ir::make_shared(name, type, count);
  to.declare(array);
  return array;
}

void RowsEmitter::count_pass(bool with_loop) {
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

void RowsEmitter::prologue(ir::Builder& to, BaselineKernel& out) {
  const int64_t rows = shape_.team > 1 ? kernel_.rows() : divide_up(kernel_.rows(), shape_.vector);
  const BlockGrid blocks = block_grid(divide_up(rows, rows_a_block()) * shape_.cluster);
  out.grid = blocks.grid;
  const Expr thread = ir::thread_index(Scalar::u32), number = ir::cast(blocks.number, writer_.index_type());
  auto leave_beyond = [&](const Expr& row) {
    to.when(less_equal(rows, row), [](ir::Builder& out_of_it) { out_of_it.add(ir::Return{}); });
  };
  if (shape_.team == 1) return leave_beyond(to.let(writer_.variable("t"), number * shape_.threads + thread));
  const bool several = rows_a_block() > 1;
  if (several) to.let(row_name_, thread / shape_.team);
  const Expr row = to.let(writer_.variable("row"),
                          several ? number * rows_a_block() + Expr(row_name_) : number / shape_.cluster);
  if (!blocks.exact || (several && kernel_.rows() % rows_a_block() != 0)) leave_beyond(row);
  row_loop_.begin(to, thread, number, row);
}

void RowsEmitter::row_values(ir::Builder& to) {
  writer_.begin_pass();
  for (const auto& [value, role] : kernel_.makes) {
    if (role != Role::row && role != Role::reduction) continue;
    for (const Slot& slot : storage_.targets(value))
      writer_.store(trace_.stored(value), slot, row_, stores_row());
  }
  pass(to, false);
}

Expr RowsEmitter::stores_row() const {
  if (shape_.team == 1) return ir::truth(true);
  const Expr first = equal(row_loop_.lane(), 0);
  return shape_.cluster > 1 ? both(equal(row_loop_.first(), 0), first) : first;
}

void RowsEmitter::point_values(ir::Builder& to) {
  writer_.begin_pass();
  if (store_points(false)) pass(to, true);
}

bool RowsEmitter::store_points(bool first) {
  bool some = false;
  for (const auto& [value, role] : kernel_.makes) {
    if (role != Role::element || is_made_first(value) != first) continue;
    some = true;
    for (const Slot& slot : storage_.targets(value))
      writer_.store(trace_.stored(value), slot, placed_.position);
  }
  return some;
}

void RowsEmitter::aligned_elements(ir::Builder& to) {
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

ir::Body RowsEmitter::gathered(ir::Builder& to, bool with_loop) {
  count_pass(with_loop);
  ir::Body body = std::move(writer_.body(Scope::loop));
  ir::Builder inner(body);
  if (shape_.aligned) {
    aligned_elements(inner);
  } else {
    if (!writer_.body(Scope::element).empty())
      inner.add(element_loop([&](ir::Builder& each) { each.add(std::move(writer_.body(Scope::element))); }));
    inner.add(writer_.after());
  }
  to.add(std::move(writer_.body(Scope::kernel)));
  return body;
}

void RowsEmitter::pass(ir::Builder& to, bool with_loop) {
  ir::Body body = gathered(to, with_loop);
  if (with_loop)
    loop_over_row(to, std::move(body));
  else
    to.add(std::move(body));
}

void RowsEmitter::loop_over_row(ir::Builder& to, ir::Body body) {
  // A team's step has a vector of work for every thread; unrolling it further costs more time to compile than it saves,
  // unless it does little but wait.
  row_loop_.run(
      to, std::move(body),
      shape_.team > 1 && kernel_.cost > kCheap && !streams() ? ir::Unroll::none : ir::Unroll::automatic);
}

namespace {

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
                        : emitter.stores_whole_vectors())
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
