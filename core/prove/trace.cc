#include "core/prove/trace.h"

#include <algorithm>
#include <set>

#include "core/kernel/effects.h"
#include "core/kernel/footprint.h"
#include "core/prove/arithmetic.h"
#include "core/prove/trace_accesses.h"

namespace quern::proof {

namespace {

using namespace ir;
class Tracer : private AccessTracer {
 public:
  Tracer(const Kernel& kernel, const LaunchFacts& facts, Follow follow, const BlockPlace& block)
      : AccessTracer(kernel, facts), follow_(follow) {
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
    if (!extent.is_number()) return stop("the extent of " + declare.array->name + " is not known");
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
      // Where the block decides, all of its threads agree: those that end earlier do the beginning of the
      // longest.
      if (!begin.is_number() || !is_agreed(end) || !step.is_number() || step->number <= 0)
        return stop("a loop that synchronises has no fixed trip count");
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
    if (!step.is_number() || step->number <= 0) return stop("a loop's step is not known");
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
      if (is_number_role(role)) reads(instruction.operands[i]);
    }
    touch(instruction);
    signal(instruction);
    return Flow::on;
  }

 private:
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

  Flow stop(const std::string& what) {
    fail(what);
    return Flow::ended;
  }

  static bool reads_memory(const Expr& expr) {
    bool found = false;
    visit_nodes(expr, [&](const ExprNode& node) {
      found |= node.kind == ExprKind::element || node.kind == ExprKind::address;
    });
    return found;
  }

  // Whether all threads of the block have the same value.
  bool is_agreed(const Expr& expr) const {
    return out_.places.decide_by_block(replaced(expr, [&](const ExprNode& node) {
      return node.symbol && agreed_.contains(node.symbol.get()) ? std::optional(truth(true)) : std::nullopt;
    }));
  }

  const Follow follow_;
  std::set<const SymbolData*> agreed_;  // variables that are the same for all threads, by all_agree
  std::vector<Expr> ended_;
};

}  // namespace

Trace trace_kernel(const Kernel& kernel, const LaunchFacts& facts, Follow follow, const BlockPlace& block) {
  return Tracer(kernel, facts, follow, block).run();
}

}  // namespace quern::proof
