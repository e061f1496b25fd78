#include "core/codegen/block_steps.h"

#include <algorithm>
#include <map>

namespace quern {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

std::set<std::string> words_of(const std::string& text, const std::set<std::string>& among) {
  std::set<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at)
      if (const auto word = among.find(text.substr(at, end - at)); word != among.end()) out.insert(*word);
    at = end + 1;
  }
  return out;
}

StepList& StepList::operator+=(std::string text) {
  check(text.find("__syncthreads") == std::string::npos, "barriers come with the plan of the steps");
  steps_.push_back({std::move(text)});
  return *this;
}

bool StepList::writes_shared() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const BlockStep& step) { return !step.writes.empty() || !step.publishes.empty(); });
}

bool StepList::has_exchanges() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const BlockStep& step) { return !step.reads.empty() && step.reads != step.writes; });
}

OrderProblem StepList::order_problem(const std::set<std::string>& variables,
                                     const std::vector<int64_t>& bytes) const {
  OrderProblem problem;
  problem.steps = static_cast<int>(steps_.size());
  std::map<std::string, int> named;  // by which step last
  std::map<int, int> writers;
  int fixed = -1;
  for (int i = 0; i < problem.steps; ++i) {
    const BlockStep& step = steps_[static_cast<size_t>(i)];
    for (const std::string& word : words_of(step.text, variables)) {
      const auto [at, first] = named.try_emplace(word, i);
      if (!first) problem.edges.push_back({at->second, i, false});
      at->second = i;
    }
    for (int buffer : step.writes) writers[buffer] = i;
    for (int buffer : step.reads) {
      if (writers.at(buffer) != i) problem.edges.push_back({writers.at(buffer), i, true});
      problem.buffers.push_back({writers.at(buffer), i, bytes[static_cast<size_t>(buffer)]});
    }
    if (fixed >= 0) problem.edges.push_back({fixed, i, false});
    if (!step.in_place) continue;
    for (int before = fixed + 1; before < i; ++before) problem.edges.push_back({before, i, false});
    fixed = i;
  }
  return problem;
}

std::vector<StepList::Span> StepList::spans(const OrderPlan& plan) const {
  std::map<int, Span> spans;
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (int buffer : steps_[i].writes) spans[buffer] = {buffer, plan.levels[i], plan.levels[i]};
    for (int buffer : steps_[i].publishes) spans[buffer] = {buffer, plan.levels[i], plan.cost.barriers};
    for (int buffer : steps_[i].reads) spans[buffer].last = std::max(spans[buffer].last, plan.levels[i]);
  }
  std::vector<Span> out;
  for (const auto& [buffer, span] : spans) out.push_back(span);
  return out;
}

std::string StepList::text(const OrderPlan& plan, const std::string& barrier) const {
  std::string out;
  int level = 0;
  for (int step : plan.order()) {
    for (; level < plan.levels[static_cast<size_t>(step)]; ++level) out += barrier;
    out += steps_[static_cast<size_t>(step)].text;
  }
  return out;
}

}  // namespace quern
