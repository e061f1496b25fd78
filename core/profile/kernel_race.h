// Which schedule is the fastest of each kernel. Programs of several launches are timed launch by launch, which shows differences
// that are lost in the time of all of them; the best of each make a program that need not have been in the list.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/target.h"
#include "core/graph/graph.h"
#include "core/mugraph/mugraph.h"
#include "core/optimize/program.h"
#include "core/profile/bench.h"
#include "core/schedule/schedule.h"

namespace quern {

class KernelRace {
 public:
  // All must outlive it.
  KernelRace(const Graph& graph, const Target& target, Bench& bench)
      : graph_(graph), target_(target), bench_(bench) {}

  // A program that is right. Those of its kernels that were not seen with such a schedule are timed beside the best so far.
  // `launches` of its plan, by the kernels that they compute. NO_DEVICE when the GPU is gone; what else goes wrong with a
  // launch alone is no matter.
  Status enter(const Program& program, const Plan& plan, bool tf32, const std::map<size_t, size_t>& launches);

  // The best of all kernels, for the muGraph that takes the least with them; nothing where such a program has entered.
  std::optional<Program> best() const;
  bool knows_better() const { return best_family() != nullptr; }  // whether there is one

 private:
  // Neighbours that do not depend on each other: whether they share a launch is part of their schedules.
  struct Place {
    std::vector<MuGraph> kernels;         // each alone
    bool leads = false;                   // nothing is in front of them that they could overlap
    std::set<std::string> seen;           // schedules
    std::vector<KernelSchedule> fastest;  // and where it is
    Plan plan;
    bool tf32 = false;
    LaunchRange launches;
    double us = 0;
  };
  struct Family {  // the programs of one muGraph
    std::string text;
    std::vector<std::pair<size_t, size_t>> places;  // the first kernel, and the number in places_
    Schedule schedule;                              // of one of them
    std::set<std::string> schedules;
  };

  Family& family_of(const Program& program, const MuGraph& mugraph, const Schedule& schedule);
  size_t place_of(std::vector<MuGraph> kernels, bool leads);
  Status race(Place& place, const std::vector<KernelSchedule>& schedules, const Plan& plan, bool tf32,
              const LaunchRange& launches);
  const Family* best_family() const;
  Schedule best_schedule(const Family& family) const;

  const Graph& graph_;
  const Target& target_;
  Bench& bench_;
  std::vector<Place> places_;
  std::vector<Family> families_;
};

}  // namespace quern
