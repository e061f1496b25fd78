// Fits the constants of the model of schedules to timings.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/schedule/model_constants.h"
#include "tools/bench/model/timings.h"

namespace quern {

// How well the constants that the target has rank the programs of a graph: what a choice by the model loses,
// smoothed over programs that are nearly as good, and a little of how far modelled times are off.
double loss(const TimedGraph& graph, const Target& target);

// Coordinate descent from the constants that are there, over all that are fitted (model_constants.def), on
// the graphs for which `in` holds. `target` must be the one that the timings were read for; it keeps pointing
// to `constants`.
void fit(const std::vector<TimedGraph>& graphs, const std::function<bool(const TimedGraph&)>& in,
         Target& target, ModelConstants& constants);

// Lines "name value (was value)" of those that differ.
std::string print_changes(const ModelConstants& from, const ModelConstants& to);

}  // namespace quern
