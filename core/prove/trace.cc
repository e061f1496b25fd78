#include "core/prove/trace.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "core/kernel/effects.h"
#include "core/kernel/footprint.h"
#include "core/kernel/verify_kernel.h"
#include "core/prove/arithmetic.h"
#include "core/prove/tiles.h"
#include "core/prove/trace_values.h"

namespace quern::proof {

namespace {

using namespace ir;
using Kind = Access::Kind;
using Agent = Access::Agent;

constexpr size_t kMostEvents = 60000;
constexpr int64_t kTmaAlignment = 128;  // of the place in shared memory, bytes

Symbol variable(const std::string& name) {
  return std::make_shared<const SymbolData>(
      SymbolData{name, Space::variable, Scalar::i32, 1, false, false, nullptr});
}

class Tracer {
 public:
  Tracer(const Kernel& kernel, const LaunchFacts& facts, Follow follow, const BlockPlace& block)
      : kernel_(kernel), facts_(facts), follow_(follow), values_(out_.places, facts.cluster) {
    Places& places = out_.places;
    places.thread = variable("thread");
    out_.ranges.set(*places.thread, {0, kernel.threads - 1});
    const uint32_t grid[] = {facts.grid.x, facts.grid.y, facts.grid.z};
    for (size_t i = 0; i < 3; ++i) {
      places.block[i] = variable(std::string("block ") + "xyz"[i]);
      out_.ranges.set(*places.block[i], {0, int64_t{grid[i]} - 1});
      places.at[i] = block[i] ? Expr(*block[i]) : Expr(places.block[i]);
    }
  }

  Trace run() {
    for (size_t i = 0; i < kernel_.parameters.size() && i < facts_.parameters.size(); ++i) {
      const SymbolData& symbol = *kernel_.parameters[i].symbol;
      const int64_t elements = facts_.parameters[i].elements, alignment = facts_.parameters[i].alignment;
      if (symbol.space == Space::global) define_memory(symbol, elements * bytes_of(symbol.type), alignment);
      if (symbol.written && facts_.parameters[i].map)
        define_memory(symbol, elements * element_bytes(*facts_.parameters[i].map), alignment);
    }
    if (facts_.parameters.size() != kernel_.parameters.size())
      fail("the launch has other parameters than the kernel");
    if (body(kernel_.setup) != Flow::ended) body(kernel_.body);
    return std::move(out_);
  }

  enum class Flow : uint8_t { on, next, ended };  // with the statement behind, the next iteration, not at all

  Flow operator()(const Let& let) {
    reads(let.value);
    const SymbolData& name = *let.name;
    bool agreed = false;
    visit_nodes(let.value, [&](const ExprNode& node) {
      agreed |= node.kind == ExprKind::call && node.function == Function::all_agree;
    });
    if (agreed) {
      const Symbol own = std::make_shared<const SymbolData>(
          SymbolData{name.name, Space::variable, Scalar::boolean, 1, false, false, nullptr});
      out_.ranges.set(*own, {0, 1});
      values_.set(name, Expr(own));
      agreed_.insert({&name, own.get()});
      return Flow::on;
    }
    if (name.space == Space::variable) {
      if (is_integer(name.type) && !reads_memory(let.value))
        values_.set(name, value(let.value));
      else
        values_.forget(name);
    } else if (name.space == Space::shared || name.space == Space::global) {
      bind(name, let.value);
    }
    return Flow::on;
  }
  Flow operator()(const Declare& declare) {
    if (declare.array->space != Space::shared) return Flow::on;
    const Expr extent = declare.extent.is_number(0) ? Expr(declare.array->count) : value(declare.extent);
    if (!extent.is_number()) return fail("the extent of " + declare.array->name + " is not known");
    define_memory(*declare.array, extent->number * bytes_of(declare.array->type), 16);
    return Flow::on;
  }
  Flow operator()(const Assign& assign) {
    reads(assign.value);
    for (const Expr& operand : assign.place->operands) reads(operand);
    element(assign.place.node(), Kind::write);
    return Flow::on;
  }
  Flow operator()(const If& branch) {
    reads(branch.condition);
    // All come or none: what races there is, is there if they come.
    if (branch.condition->kind == ExprKind::symbol && agreed_.contains(branch.condition->symbol.get()) &&
        !has_barriers(branch.then))
      return body(branch.then);
    const Expr condition = value(branch.condition);
    if (condition.is_number()) return condition->number ? body(branch.then) : Flow::on;
    const size_t before = where_.size();
    where_.push_back(condition);
    const Flow flow = body(branch.then);
    leave(before);
    if (flow == Flow::on) return flow;
    // The others go on.
    where_.push_back(opposite(condition));
    if (flow == Flow::ended) ended_.push_back(opposite(condition));
    return Flow::on;
  }
  Flow operator()(const ir::Scope& scope) { return body(scope.body); }
  Flow operator()(const Continue&) { return Flow::next; }
  Flow operator()(const Return&) { return Flow::ended; }
  Flow operator()(const WarpRole& role) {
    const Expr warp = Expr(out_.places.thread) / 32;
    const size_t before = where_.size();
    out_.roles.push_back({role.first_warp, role.warps, static_cast<int>(out_.events.size())});
    const Expr own = role.warps == 1 ? equal(warp, role.first_warp) : less_equal(role.first_warp, warp);
    where_.push_back(own);
    role_ = static_cast<int>(out_.roles.size());
    body(role.body);
    role_ = 0;
    leave(before);
    where_.push_back(opposite(own));
    ended_.push_back(where_.back());
    return Flow::on;
  }
  Flow operator()(const For& loop) {
    const Expr begin = value(loop.begin), end = value(loop.end), step = value(loop.step);
    const std::vector<Expr> outside = where_;
    const size_t gone = ended_.size();
    const bool in_order = follow_ == Follow::order && synchronises(loop.body);
    if (in_order) {
      // Where the block decides, all of its threads agree: those that end earlier do the beginning of the longest.
      if (!begin.is_number() || !is_agreed(end) || !step.is_number() || step->number <= 0)
        return fail("a loop that synchronises has no fixed trip count");
      visit_nodes(end, [&](const ExprNode& node) {
        for (size_t axis = 0; axis < 3; ++axis)
          out_.decide_trips[axis] |= node.symbol && node.symbol == out_.places.block[axis];
      });
      const std::string before = iteration_;
      const int64_t last = out_.ranges.of(end).high;
      for (int64_t i = begin->number; i < last && out_.problem.empty(); i += step->number) {
        values_.set(*loop.counter, Expr(i));
        if (loop.unroll != Unroll::full)
          iteration_ = before + (before.empty() ? "" : ", ") + loop.counter->name + " " + std::to_string(i);
        const Flow flow = body(loop.body);
        where_ = outside;
        where_.insert(where_.end(), ended_.begin() + static_cast<std::ptrdiff_t>(gone), ended_.end());
        if (flow == Flow::ended) return flow;
      }
      iteration_ = before;
      return Flow::on;
    }
    const Interval from = out_.ranges.of(begin), to = out_.ranges.of(end), by = out_.ranges.of(step);
    if (!step.is_number() || step->number <= 0) return fail("a loop's step is not known");
    const int64_t trips = (to.high - from.low + by.low - 1) / by.low;
    if (trips <= 0) return Flow::on;
    const Expr trip = counter(loop.counter->name, trips);
    const Expr now = begin + trip * step;
    values_.set(*loop.counter, trips == 1 && begin.is_number() ? begin : now);
    if (!begin.is_number() || !end.is_number()) where_.push_back(less(now, end));
    ++depth_;
    body(loop.body);
    --depth_;
    where_ = outside;
    where_.insert(where_.end(), ended_.begin() + static_cast<std::ptrdiff_t>(gone), ended_.end());
    return Flow::on;
  }
  Flow operator()(const Instruction& instruction) {
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      const char role = role_of(instruction, i);
      if (role == 'e' || role == 'x') reads(instruction.operands[i]);
    }
    touch(instruction);
    signal(instruction);
    return Flow::on;
  }

 private:
  struct Pointer {
    const SymbolData* memory = nullptr;
    Space space = Space::global;
    Expr at = 0;  // bytes
  };

  Flow body(const Body& statements) {
    for (const Stmt& stmt : statements) {
      if (!out_.problem.empty()) return Flow::ended;
      const Stmt* outer = now_;
      now_ = &stmt;
      const Flow flow = std::visit(*this, stmt.is);
      now_ = outer;
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  void leave(size_t conditions) {
    where_.erase(where_.begin() + static_cast<std::ptrdiff_t>(conditions), where_.end());
  }

  Flow fail(const std::string& what) {
    if (out_.problem.empty()) out_.problem = what + (now_ ? ": " + statement_text(*now_) : "");
    return Flow::ended;
  }

  void define_memory(const SymbolData& symbol, int64_t bytes, int64_t alignment) {
    out_.memories.insert_or_assign(&symbol, Memory{&symbol, bytes, alignment});
    pointers_.insert_or_assign(&symbol, Pointer{&symbol, symbol.space, 0});
  }

  // The counter of a loop that stays one: loops as deep and as long share one.
  Expr counter(const std::string& name, int64_t trips) {
    if (trips == 1) return 0;
    Symbol& symbol = counters_[{depth_, trips}];
    if (!symbol) {
      symbol = variable(name + (depth_ ? std::to_string(depth_) : "") + " of " + std::to_string(trips));
      out_.ranges.set(*symbol, {0, trips - 1});
      out_.counters.push_back(symbol);
    }
    return Expr(symbol);
  }

  // Values.
  static bool reads_memory(const Expr& expr) {
    bool found = false;
    visit_nodes(expr, [&](const ExprNode& node) {
      found |= node.kind == ExprKind::element || node.kind == ExprKind::address;
    });
    return found;
  }

  Expr value(const Expr& expr) const { return values_.of(expr); }

  // Whether all threads of the block have the same value.
  bool is_agreed(const Expr& expr) const {
    return out_.places.decide_by_block(replaced(expr, [&](const ExprNode& node) {
      return node.symbol && agreed_.contains(node.symbol.get()) ? std::optional(truth(true)) : std::nullopt;
    }));
  }

  // Pointers.
  Pointer pointer(const ExprNode& node) const {
    const auto at = pointers_.find(node.symbol.get());
    if (at == pointers_.end()) return {};
    Pointer out = at->second;
    if (!node.operands.empty()) out.at = add(out.at, value(node.operands[0]) * bytes_of(node.symbol->type));
    return out;
  }

  void bind(const SymbolData& name, const Expr& to) {
    if (const ExprNode* from = pointer_of(to)) {
      const Pointer at = pointer(*from);
      if (!at.memory) return void(fail("a pointer into unknown memory"));
      pointers_.insert_or_assign(&name, at);
      return;
    }
    if (to->kind == ExprKind::call && to->function == Function::dynamic_shared)
      return define_memory(name, kernel_.shared_bytes, 1024);
    if (to->kind == ExprKind::call && to->function == Function::multiply_tile) {
      const Pointer at = pointer(*pointer_of(to->operands[0]));
      pointers_.insert_or_assign(&name, at);
      return;
    }
    fail("a pointer that is made in an unknown way");
  }

  // Accesses.
  void add_access(Access access, std::vector<Expr> extra = {}) {
    if (out_.events.size() >= kMostEvents) return void(fail("too many events to follow"));
    Event event;
    event.stmt = now_;
    event.where = where_;
    for (Expr& each : extra)
      if (!each.is_number(1)) event.where.push_back(std::move(each));
    for (const Expr& each : event.where)
      if (each.is_number(0)) return;
    event.access = std::move(access);
    event.iteration = iteration_;
    event.role = role_;
    out_.events.push_back(std::move(event));
  }

  void access(const ExprNode* to, int64_t bytes, Kind kind, Agent agent = Agent::thread,
              const Expr& offset = 0, std::vector<Expr> extra = {}, int64_t alignment = 0,
              bool of_cluster = false) {
    const Pointer at = to ? pointer(*to) : Pointer{};
    if (!at.memory) return void(fail("an access to unknown memory"));
    add_access({at.memory, at.space, add(at.at, offset), bytes, alignment ? alignment : bytes, kind, agent,
                of_cluster},
               std::move(extra));
  }

  void element(const ExprNode& node, Kind kind) {
    if (node.symbol->space != Space::shared && node.symbol->space != Space::global) return;
    access(&node, bytes_of(node.type), kind);
  }

  // What computing an expression reads, and only where it is computed.
  void reads(const Expr& expr) {
    const ExprNode& node = expr.node();
    auto guarded = [&](const Expr& part, const Expr& condition) {
      where_.push_back(condition);
      reads(part);
      where_.pop_back();
    };
    if (node.kind == ExprKind::select ||
        (node.kind == ExprKind::operation && (node.op == Operator::both || node.op == Operator::either))) {
      reads(node.operands[0]);
      const Expr first = value(node.operands[0]);
      if (node.kind == ExprKind::select) {
        guarded(node.operands[1], first);
        return guarded(node.operands[2], opposite(first));
      }
      return guarded(node.operands[1], node.op == Operator::both ? first : opposite(first));
    }
    if (node.kind == ExprKind::call && node.function == Function::multiply_tile) return tile_product(node);
    if (node.kind == ExprKind::call && node.function == Function::block_reduce) return block_reduction(node);
    if (node.kind == ExprKind::call && node.function == Function::all_agree) {
      reads(node.operands[0]);
      return barrier();
    }
    for (const Expr& operand : node.operands) reads(operand);
    if (node.kind == ExprKind::element) element(node, Kind::read);
    if (node.kind == ExprKind::call && node.function == Function::load_vector)
      access(pointer_of(node.operands[0]), bytes_of(node.templates[0].type) * node.templates[1].number,
             Kind::read);
  }

  void barrier() {
    Event event;
    event.stmt = now_;
    event.signal = Signal{Instr::block_barrier};
    event.where = where_;
    event.iteration = iteration_;
    event.role = role_;
    out_.events.push_back(std::move(event));
  }

  // As device/composed.cuh does it.
  void block_reduction(const ExprNode& node) {
    const ExprNode* scratch = pointer_of(node.operands[1]);
    const int64_t size = bytes_of(node.type);
    const Expr thread(out_.places.thread);
    reads(node.operands[0]);
    access(scratch, size, Kind::write, Agent::thread, thread / 32 * size, {equal(thread % 32, 0)});
    barrier();
    ++depth_;
    access(scratch, size, Kind::read, Agent::thread, counter("warp", node.templates[0].number) * size);
    --depth_;
  }

  // As device/matmul.cuh does it, whose own use of its memory is taken for right.
  void tile_product(const ExprNode& node) {
    const TemplateArg& tile = node.templates[0];
    for (int i : {0, 1}) {
      const ExprNode& matrix = node.operands[static_cast<size_t>(1 + i)].node();
      const OperandShape shape = operand_shape(tile, i, matrix);
      ++depth_;
      const Expr outer = counter("row", shape.outer);
      ++depth_;
      const Expr inner = counter("chunk", shape.chunks);
      depth_ -= 2;
      const int64_t size = bytes_of(matrix.templates[0].type);
      access(pointer_of(matrix.operands[0]), shape.vector * size, Kind::read, Agent::thread,
             outer * (shape.outer_stride * size) + inner * (shape.inner_stride * shape.vector * size));
    }
    const Expr first = equal(Expr(out_.places.thread), 0);
    access(pointer_of(node.operands[0]), tile_bytes(tile), Kind::write, Agent::thread, 0, {first}, 16);
    barrier();
  }

  void touch(const Instruction& instruction) {
    auto at = [&](size_t i) { return pointer_of(instruction.operands[i]); };
    auto number = [&](size_t i) { return value(instruction.operands[i]); };
    const int64_t bytes = instruction.operands.empty() ? 0 : bytes_touched(instruction, 0);
    switch (instruction.code) {
      case Instr::load_global:
      case Instr::load_written:
      case Instr::load_shared_or_zero:
        return access(at(1), bytes, Kind::read, Agent::thread, 0, {number(2)});
      case Instr::load_shared: {
        ++depth_;
        const int64_t copies = instruction.operands.size() > 2 ? instruction.templates[2].number : 1;
        const int64_t size = bytes_of(instruction.templates[0].type);
        const Expr offset = copies > 1 ? counter("copy", copies) * (number(2) * size) : Expr(0);
        access(at(1), bytes, Kind::read, Agent::thread, offset);
        --depth_;
        return;
      }
      case Instr::cluster_factors:
        return access(at(1), 4, Kind::read, Agent::thread, 0, {number(2)}, 0, true);
      case Instr::cp_async: {
        access(at(0), bytes, Kind::write, Agent::cp_async);
        const Expr source = instruction.operands.size() > 2 ? number(2) : Expr(bytes);
        const Expr there = source.is_number() ? truth(source->number > 0) : less(0, source);
        return access(at(1), bytes, Kind::read, Agent::thread, 0, {there});
      }
      case Instr::ldmatrix:
      case Instr::ldmatrix_trans: {
        const int64_t lanes = 8 * instruction.templates[0].number;
        return access(at(1), 16, Kind::read, Agent::thread, 0,
                      {lanes == 32 ? truth(true) : less(Expr(out_.places.thread) % 32, lanes)});
      }
      case Instr::tma_load:
        return box(instruction);
      case Instr::tma_store:
        return stored_box(instruction);
      case Instr::wgmma:
        return operand_panels(instruction.operands[2], 8 * (instruction.templates[1].number / 8));
      case Instr::wgmma_shared:
        operand_panels(instruction.operands[1], 64);
        return operand_panels(instruction.operands[2], instruction.templates[1].number);
      default:
        return touch_as_its_row_says(instruction);
    }
  }

  // Every thread, without a condition.
  void touch_as_its_row_says(const Instruction& instruction) {
    for (size_t i = 0; i < instruction.operands.size(); ++i) {
      const char role = role_of(instruction, i);
      if (!std::strchr("SsGgc", role)) continue;
      const int64_t bytes = bytes_touched(instruction, i);
      if (bytes == 0)
        return void(fail("how far " + std::string(instr_info(instruction.code).id) + " reaches is not known"));
      const Kind kind = role == 'S' || role == 'G' ? Kind::write : Kind::read;
      access(pointer_of(instruction.operands[i]), bytes, kind, Agent::thread, 0, {}, 0, role == 'c');
    }
  }

  const TensorMap* map_of(const Expr& operand) const {
    for (size_t i = 0; i < kernel_.parameters.size(); ++i)
      if (operand->kind == ExprKind::symbol && kernel_.parameters[i].symbol == operand->symbol)
        return facts_.parameters[i].map ? &*facts_.parameters[i].map : nullptr;
    return nullptr;
  }

  // The map by which an instruction copies.
  const TensorMap* map_of_copy(const Instruction& instruction) {
    const TensorMap* map = map_of(instruction.operands[1]);
    if (!map) {
      fail("a copy by a tensor map that is not known");
    } else if (instruction.templates[0].number != static_cast<int64_t>(map->box.size())) {
      fail("a copy of another rank than its tensor map");
      return nullptr;
    }
    return map;
  }

  void box(const Instruction& instruction) {
    if (const TensorMap* map = map_of_copy(instruction))
      access(pointer_of(instruction.operands[0]), map->box_bytes(), Kind::write, Agent::tma, 0, {},
             kTmaAlignment);
  }

  // In shared memory all of the box, until somebody waits; of the tensor what lies inside, as many bytes at a time as both
  // rows are multiples of.
  void stored_box(const Instruction& instruction) {
    const TensorMap* map = map_of_copy(instruction);
    if (!map) return;
    access(pointer_of(instruction.operands[0]), map->box_bytes(), Kind::read, Agent::tma_store, 0, {},
           kTmaAlignment);
    const int64_t size = element_bytes(*map),
                  unit = std::gcd(std::gcd(map->box.back(), map->shape.back()), kTensorMapAlignment / size);
    const int before = depth_;
    const size_t rank = map->box.size();
    std::vector<Expr> inside;
    Expr at = 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t step = d + 1 == rank ? unit : 1;
      ++depth_;
      const Expr coordinate =
          value(instruction.operands[1 + rank - d]) + counter("box", map->box[d] / step) * step;
      at = add(at, coordinate * (map->strides[d] * size));
      inside.push_back(less_equal(0, coordinate));
      inside.push_back(less_equal(coordinate, Expr(map->shape[d] - step)));
    }
    depth_ = before;
    const SymbolData* to = instruction.operands[1]->symbol.get();
    add_access({to, Space::global, at, unit * size, unit * size, Kind::write, Agent::thread, false},
               std::move(inside));
  }

  void operand_panels(const Expr& operand, int64_t extent) {
    const ExprNode& node = operand.node();
    const Pointer to = pointer(*pointer_of(node.operands[0]));
    if (!to.memory) return void(fail("an operand in unknown memory"));
    auto add_read = [&](const Expr& at, int64_t bytes, int64_t alignment) {
      add_access({to.memory, to.space, at, bytes, alignment, Kind::read, Agent::wgmma, false});
    };
    const int64_t row = node.templates[0].number, unit = 8 * row;
    const bool turned = node.templates[1].number;
    for (const Panel& panel : panels_of(node.templates, extent))
      add_read(add(to.at / unit * unit, panel.offset), unit, 1);
    // It begins in the first of eight rows: at its beginning, or some steps of k along it.
    add_read(to.at, 0, turned ? unit : 32);
    if (!turned) add_read(to.at / row * row, 0, unit);
  }

  void signal(const Instruction& instruction) {
    const InstrInfo& row = instr_info(instruction.code);
    const bool copy = instruction.code == Instr::tma_load;
    const bool groups = instruction.code == Instr::cp_async_commit ||
                        instruction.code == Instr::wgmma_commit ||
                        instruction.code == Instr::tma_store_commit;
    if (row.ordering == Ordering::none && !copy && !groups && instruction.code != Instr::mbarrier_init)
      return;
    if (row.level == Level::grid) return;
    Event event;
    event.stmt = now_;
    event.where = where_;
    event.iteration = iteration_;
    event.role = role_;
    Signal out{instruction.code};
    const std::string roles = row.operands;
    const size_t barrier = roles.find('b');
    if (barrier != std::string::npos) {
      const Pointer at = pointer(*pointer_of(instruction.operands[barrier]));
      if (!at.memory) return void(fail("an mbarrier in unknown memory"));
      out.at = at.at;
      const Kind kind = instruction.code == Instr::mbarrier_init ? Kind::write : Kind::signal;
      if (!copy) add_access({at.memory, at.space, at.at, 8, 8, kind, Agent::thread, false});
      if (instruction.operands.size() > 1 && !copy) out.number = value(instruction.operands[1]);
      if (copy)
        out.number = map_of(instruction.operands[1]) ? map_of(instruction.operands[1])->box_bytes() : 0;
    }
    if (!instruction.templates.empty() && !copy) out.number = instruction.templates[0].number;
    event.signal = out;
    out_.events.push_back(std::move(event));
  }

  const Kernel& kernel_;
  const LaunchFacts& facts_;
  const Follow follow_;
  Trace out_;
  const Stmt* now_ = nullptr;
  ThreadValues values_;
  std::map<const SymbolData*, Pointer> pointers_;
  std::map<std::pair<int, int64_t>, Symbol> counters_;
  std::set<const SymbolData*> agreed_;  // variables that are the same for all threads, by all_agree
  std::vector<Expr> where_, ended_;
  std::string iteration_;
  int role_ = 0, depth_ = 0;
};

}  // namespace

Trace trace_kernel(const Kernel& kernel, const LaunchFacts& facts, Follow follow, const BlockPlace& block) {
  return Tracer(kernel, facts, follow, block).run();
}

}  // namespace quern::proof
