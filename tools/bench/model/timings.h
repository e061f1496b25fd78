// Programs that were timed on a GPU, and what the model of schedules says of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/optimize/program_model.h"

namespace quern {

struct TimedProgram {
  std::string label;                    // of its muGraph, or "baseline"
  std::shared_ptr<ProgramModel> model;  // none: the baseline's
  Schedule schedule;
  double measured_us = 0;
  std::string resources;  // of its kernels, as ptxas says

  // Whether a kernel has values on the stack: optimize() takes such a program only if there is nothing else.
  bool is_on_stack() const;
};

struct TimedGraph {
  std::string name, family;
  std::vector<LaunchWork> baseline;
  std::vector<std::unique_ptr<MuGraph>> mugraphs;
  std::vector<TimedProgram> programs;

  double modelled_us(const TimedProgram& program, const Target& target) const;
};

// Of a folder with GRAPH.json as mugraph_bench writes it, graphs/GRAPH.qg and qmu/GRAPH-N.qmu for the muGraph
// "search N". The target must live as long as the result.
std::vector<TimedGraph> read_timings(const std::string& folder, const Target& target);

}  // namespace quern
