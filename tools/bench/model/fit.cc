#include "tools/bench/model/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace quern {

namespace {

constexpr double kSoftness = 0.05;     // of the choice: programs that differ by so much are nearly as likely
constexpr double kErrorWeight = 0.03;  // of the squared error of the logarithm of times
constexpr double kMoveWeight = 0.01;   // of the squared logarithm of what a constant is multiplied by

struct Constant {
  const char* name;
  double ModelConstants::*member;
};
constexpr Constant kFitted[] = {
#define QUERN_CONSTANT(name, value)
#define QUERN_FITTED(name, value) {#name, &ModelConstants::name},
#include "core/schedule/model_constants.def"
#undef QUERN_FITTED
#undef QUERN_CONSTANT
};

// The constants stand for what was measured before: they go no further from there than the graphs pay for.
double total_loss(const std::vector<const TimedGraph*>& graphs, const Target& target,
                  const ModelConstants& from) {
  double sum = 0;
  for (const TimedGraph* graph : graphs) sum += loss(*graph, target);
  sum /= static_cast<double>(std::max<size_t>(1, graphs.size()));
  for (const Constant& constant : kFitted)
    sum +=
        kMoveWeight * std::pow(std::log(model_constants(target).*constant.member / from.*constant.member), 2);
  return sum;
}

}  // namespace

double loss(const TimedGraph& graph, const Target& target) {
  double best = INFINITY, least = INFINITY;
  std::vector<double> modelled;
  for (const TimedProgram& program : graph.programs) {
    modelled.push_back(graph.modelled_us(program, target));
    if (program.is_on_stack()) continue;
    best = std::min(best, program.measured_us);
    least = std::min(least, modelled.back());
  }
  double weights = 0, lost = 0, squares = 0;
  for (size_t i = 0; i < modelled.size(); ++i) {
    const TimedProgram& program = graph.programs[i];
    if (program.is_on_stack() || !std::isfinite(modelled[i])) continue;
    const double weight = std::pow(least / modelled[i], 1 / kSoftness);
    weights += weight;
    lost += weight * std::log(program.measured_us / best);
    squares += std::pow(std::log(modelled[i] / program.measured_us), 2);
  }
  return weights > 0 ? lost / weights + kErrorWeight * squares / static_cast<double>(modelled.size()) : 0;
}

void fit(const std::vector<TimedGraph>& graphs, const std::function<bool(const TimedGraph&)>& in,
         Target& target, ModelConstants& constants) {
  std::vector<const TimedGraph*> subset;
  for (const TimedGraph& graph : graphs)
    if (in(graph)) subset.push_back(&graph);
  const ModelConstants from = constants;
  target.model = &constants;
  double least = total_loss(subset, target, from);
  for (double step : {1.3, 1.15, 1.07})
    for (const Constant& constant : kFitted)
      for (double factor : {step, 1 / step}) {
        const double before = constants.*constant.member;
        constants.*constant.member = before * factor;
        const double now = total_loss(subset, target, from);
        if (now < least - 1e-6)
          least = now;
        else
          constants.*constant.member = before;
      }
}

std::string print_changes(const ModelConstants& from, const ModelConstants& to) {
  std::string out;
  for (const Constant& constant : kFitted) {
    char line[120];
    std::snprintf(line, sizeof line, "  %s %.4g (was %.4g)\n", constant.name, to.*constant.member,
                  from.*constant.member);
    if (to.*constant.member != from.*constant.member) out += line;
  }
  return out;
}

}  // namespace quern
