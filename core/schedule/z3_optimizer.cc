#include "core/schedule/z3_optimizer.h"

#include <z3++.h>

#include <algorithm>
#include <numeric>

namespace quern {

namespace {

using Exprs = std::vector<z3::expr>;

// One question: variables, what must hold, what is to be least.
class Question {
 public:
  explicit Question(std::chrono::milliseconds limit) : optimize_(z_) {
    z3::params params(z_);
    params.set("timeout", static_cast<unsigned>(limit.count()));
    optimize_.set(params);
  }

  z3::context& context() { return z_; }
  z3::expr number(int64_t value) { return z_.int_val(value); }
  // An integer of [low, high].
  z3::expr integer(const char* name, size_t i, int64_t low, int64_t high) {
    z3::expr x = z_.int_const((name + std::to_string(i)).c_str());
    optimize_.add(x >= number(low) && x <= number(high));
    return x;
  }
  void require(const z3::expr& condition) { optimize_.add(condition); }
  void avoid(const z3::expr& condition, int64_t cost) {
    optimize_.add_soft(!condition, std::to_string(cost).c_str());
  }
  // Less of what is asked for first is worth any of what is asked for later.
  void minimize(const z3::expr& cost) { optimize_.minimize(cost); }

  // Whether there is an answer; `proven` if no other is better (or there is none).
  bool ask(bool& proven) {
    const z3::check_result result = optimize_.check();
    proven = result != z3::unknown;
    if (result == z3::unsat) return false;
    model_ = std::make_unique<z3::model>(optimize_.get_model());
    return true;
  }
  int64_t value(const z3::expr& x) const {
    int64_t out = 0;
    return model_->eval(x, true).is_numeral_i64(out) ? out : 0;
  }
  bool truth(const z3::expr& x) const { return model_->eval(x, true).is_true(); }

 private:
  z3::context z_;
  z3::optimize optimize_;
  std::unique_ptr<z3::model> model_;
};

class Z3Optimizer : public Optimizer {
 public:
  explicit Z3Optimizer(std::chrono::milliseconds limit) : limit_(limit) {}

 protected:
  // Z3 reports an interrupted search as an error, too: then what is known stands.
  template <class Problem, class Plan>
  Optimized<Plan> guarded(Optimized<Plan> (Z3Optimizer::*solve)(const Problem&, const Plan&),
                          const Problem& problem, const Plan& known) {
    try {
      return (this->*solve)(problem, known);
    } catch (const z3::exception&) {
      return {known, false};
    }
  }
  using Buffers = std::span<const MemoryBuffer>;
  Optimized<MemoryPlan> better(Buffers buffers, const MemoryPlan& known) override {
    return guarded<Buffers>(&Z3Optimizer::place, buffers, known);
  }
  Optimized<OrderPlan> better(const OrderProblem& problem, const OrderPlan& known) override {
    return guarded(&Z3Optimizer::arrange, problem, known);
  }
  Optimized<LayoutPlan> better(const LayoutProblem& problem, const LayoutPlan& known) override {
    return guarded(&Z3Optimizer::choose, problem, known);
  }

 private:
  // Offsets are counted in their alignment. Buffers that are needed together lie one above the other.
  Optimized<MemoryPlan> place(const Buffers& buffers, const MemoryPlan& known) {
    Question question(limit_);
    z3::expr peak = question.integer("peak", 0, memory_bound(buffers), known.peak - 1);
    Exprs units, offsets;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const MemoryBuffer& buffer = buffers[i];
      units.push_back(
          question.integer("at", i, 0, std::max<int64_t>(0, known.peak - buffer.bytes) / buffer.alignment));
      offsets.push_back(units[i] * question.number(buffer.alignment));
      question.require(offsets[i] + question.number(buffer.bytes) <= peak);
      for (size_t j = 0; j < i; ++j)
        if (buffer.needed_with(buffers[j]))
          question.require(offsets[i] + question.number(buffer.bytes) <= offsets[j] ||
                           offsets[j] + question.number(buffers[j].bytes) <= offsets[i]);
    }
    question.minimize(peak);
    bool proven = false;
    if (!question.ask(proven)) return {known, proven};
    MemoryPlan plan;
    for (size_t i = 0; i < buffers.size(); ++i)
      plan.offsets.push_back(question.value(units[i]) * buffers[i].alignment);
    return {std::move(plan), proven};
  }

  // The number of barriers is known: it is the depth. What is left to find is the order that holds the least
  // memory; of those the one whose steps come earliest.
  Optimized<OrderPlan> arrange(const OrderProblem& problem, const OrderPlan& known) {
    Question question(limit_);
    const OrderCost bound = order_bound(problem);
    Exprs levels;
    for (int step = 0; step < problem.steps; ++step)
      levels.push_back(question.integer("level", static_cast<size_t>(step), 0, bound.barriers));
    auto level = [&](int step) { return levels[static_cast<size_t>(step)]; };
    for (const OrderEdge& edge : problem.edges)
      question.require(level(edge.from) + question.number(edge.barrier ? 1 : 0) <= level(edge.to));
    z3::expr bytes = question.integer("bytes", 0, bound.bytes, known.cost.bytes - 1);
    for (int at = 0; at <= bound.barriers; ++at) {
      z3::expr held = question.number(0);
      for (const OrderBuffer& buffer : problem.buffers)
        held = held + z3::ite(level(buffer.writer) <= at && level(buffer.reader) >= at,
                              question.number(buffer.bytes), question.number(0));
      question.require(held <= bytes);
    }
    question.minimize(bytes);
    z3::expr sum = question.number(0);
    for (const z3::expr& each : levels) sum = sum + each;
    question.minimize(sum);
    bool proven = false;
    if (!question.ask(proven)) return {known, proven};
    OrderPlan plan;
    for (const z3::expr& each : levels) plan.levels.push_back(static_cast<int>(question.value(each)));
    return {std::move(plan), proven};
  }

  // One of the candidates of each tensor; what costs something is to be avoided.
  Optimized<LayoutPlan> choose(const LayoutProblem& problem, const LayoutPlan& known) {
    Question question(limit_);
    std::vector<Exprs> chosen;
    for (size_t i = 0; i < problem.tensors.size(); ++i) {
      chosen.emplace_back();
      z3::expr_vector any(question.context());
      for (size_t c = 0; c < problem.tensors[i].size(); ++c) {
        const std::string name = "layout" + std::to_string(i) + "." + std::to_string(c);
        chosen[i].push_back(question.context().bool_const(name.c_str()));
        any.push_back(chosen[i][c]);
        for (size_t other = 0; other < c; ++other) question.require(!(chosen[i][other] && chosen[i][c]));
        if (const int64_t cost = problem.tensors[i][c]; cost > 0) question.avoid(chosen[i][c], cost);
      }
      question.require(z3::mk_or(any));
    }
    for (const LayoutEdge& edge : problem.edges)
      for (size_t f = 0; f < edge.costs.size(); ++f)
        for (size_t t = 0; t < edge.costs[f].size(); ++t)
          if (const int64_t cost = edge.costs[f][t]; cost > 0)
            question.avoid(
                chosen[static_cast<size_t>(edge.from)][f] && chosen[static_cast<size_t>(edge.to)][t], cost);
    bool proven = false;
    if (!question.ask(proven)) return {known, proven};
    LayoutPlan plan;
    for (const Exprs& candidates : chosen) {
      const auto at = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const z3::expr& candidate) { return question.truth(candidate); });
      plan.candidates.push_back(static_cast<int>(at - candidates.begin()));
    }
    return {std::move(plan), proven};
  }

  const std::chrono::milliseconds limit_;
};

}  // namespace

std::unique_ptr<Optimizer> make_z3_optimizer(std::chrono::milliseconds limit) {
  return std::make_unique<Z3Optimizer>(limit);
}

}  // namespace quern
