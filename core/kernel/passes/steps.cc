#include "core/kernel/passes/steps.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/kernel/effects.h"

namespace quern::ir {

StepList& StepList::operator+=(Body body) {
  steps_.push_back({std::move(body)});
  return *this;
}

std::vector<StepList::Touched> StepList::touched(const std::vector<SharedBuffer>& buffers) const {
  std::map<const SymbolData*, int> numbers;
  for (size_t i = 0; i < buffers.size(); ++i) numbers[buffers[i].symbol.get()] = static_cast<int>(i);
  std::vector<Touched> out;
  for (const Step& step : steps_) {
    Touched& each = out.emplace_back();
    visit_effects(step.body, [&](const Effect& effect) {
      const auto at = numbers.find(effect.symbol);
      if (at == numbers.end()) return;
      const bool published = buffers[static_cast<size_t>(at->second)].use == SharedBuffer::Use::published;
      const bool exchanged = buffers[static_cast<size_t>(at->second)].use == SharedBuffer::Use::exchange;
      if (effect.access != Access::read) (published ? each.publishes : each.writes).insert(at->second);
      if (effect.access != Access::write && exchanged) each.reads.insert(at->second);
    });
  }
  return out;
}

bool StepList::writes_shared(const std::vector<SharedBuffer>& buffers) const {
  const auto all = touched(buffers);
  return std::any_of(all.begin(), all.end(),
                     [](const Touched& step) { return !step.writes.empty() || !step.publishes.empty(); });
}

bool StepList::has_exchanges(const std::vector<SharedBuffer>& buffers) const {
  const auto all = touched(buffers);
  return std::any_of(all.begin(), all.end(),
                     [](const Touched& step) { return !step.reads.empty() && step.reads != step.writes; });
}

bool StepList::keeps_within_warps(const std::vector<SharedBuffer>& buffers) const {
  const auto all = touched(buffers);
  return std::all_of(all.begin(), all.end(),
                     [](const Touched& step) { return step.reads == step.writes && step.publishes.empty(); });
}

OrderProblem StepList::order_problem(const std::vector<SharedBuffer>& buffers) const {
  OrderProblem problem;
  problem.steps = static_cast<int>(steps_.size());
  std::map<const SymbolData*, int> named;  // by which step last
  std::map<int, int> writers;
  const auto all = touched(buffers);
  int fixed = -1;
  for (int i = 0; i < problem.steps; ++i) {
    const Step& step = steps_[static_cast<size_t>(i)];
    const Touched& shared = all[static_cast<size_t>(i)];
    std::set<int> earlier;
    for (const SymbolData* registers : named_registers(step.body)) {
      const auto [at, first] = named.try_emplace(registers, i);
      if (!first) earlier.insert(at->second);
      at->second = i;
    }
    for (int each : earlier) problem.edges.push_back({each, i, false});
    for (int buffer : shared.writes) writers[buffer] = i;
    for (int buffer : shared.reads) {
      const auto writer = writers.find(buffer);
      check(writer != writers.end(), "a step reads shared memory that one before it has written");
      if (writer->second != i) problem.edges.push_back({writer->second, i, true});
      problem.buffers.push_back({writer->second, i, buffers[static_cast<size_t>(buffer)].bytes});
    }
    if (fixed >= 0) problem.edges.push_back({fixed, i, false});
    if (!step.in_place) continue;
    for (int before = fixed + 1; before < i; ++before) problem.edges.push_back({before, i, false});
    fixed = i;
  }
  return problem;
}

std::vector<StepList::Span> StepList::spans(const std::vector<SharedBuffer>& buffers,
                                            const OrderPlan& plan) const {
  std::map<int, Span> spans;
  const auto all = touched(buffers);
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (int buffer : all[i].writes) spans[buffer] = {buffer, plan.levels[i], plan.levels[i]};
    for (int buffer : all[i].publishes) spans[buffer] = {buffer, plan.levels[i], plan.cost.barriers};
    for (int buffer : all[i].reads) spans[buffer].last = std::max(spans[buffer].last, plan.levels[i]);
  }
  std::vector<Span> out;
  for (const auto& [buffer, span] : spans) out.push_back(span);
  return out;
}

Body StepList::body(const OrderPlan& plan, const Stmt& barrier) const {
  Body out;
  int level = 0;
  for (int step : plan.order()) {
    for (; level < plan.levels[static_cast<size_t>(step)]; ++level) out.push_back(barrier);
    const Body& body = steps_[static_cast<size_t>(step)].body;
    out.insert(out.end(), body.begin(), body.end());
  }
  return out;
}

}  // namespace quern::ir
