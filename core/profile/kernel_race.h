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

  // A program that is right, by a number of its own. Those of its kernels that were not seen with such a schedule are timed beside the
  // fastest so far, as they are in its plan but for what they overlap with, unless it may not time. `launches` of the plan, by the
  // kernels that they compute. NO_DEVICE when the GPU is gone; what else goes wrong with a launch alone is no matter.
  Status enter(size_t number, const Program& program, const Plan& plan, bool tf32,
               const std::map<size_t, LaunchRange>& launches, bool may_time);
  // What all of it takes.
  void timed(size_t number, double us);
  // Whether its launches take longer together than one by one, as clusters do that all go to the SMs which the launch in front
  // leaves free, and one by one hardly more than `best_us`.
  bool crowd(size_t number, double best_us) const;

  // The fastest kernels of the muGraph that is expected to take the least with them; nothing where such a program has entered. It must
  // be made and checked like any other.
  std::optional<Program> best() const;
  bool knows_better() const { return better_schedule().has_value(); }
  double seconds() const { return seconds_; }  // that all of it took

 private:
  // Neighbours that do not depend on each other: whether they share a launch is part of their schedules.
  struct Place {
    std::vector<MuGraph> kernels;        // each alone
    bool leads = false;                  // nothing is in front of them that they could overlap
    std::map<std::string, double> seen;  // schedules, and the microseconds that they took
    std::string fastest;                 // of them, and where that is
    std::vector<KernelSchedule> schedules;
    Plan plan;
    bool tf32 = false;
    LaunchRange launches;
  };
  struct Family {  // the programs of one muGraph
    std::string text;
    std::vector<std::pair<size_t, size_t>> places;  // the first kernel, and the number in places_
    Schedule schedule;                              // of one of them
    std::set<std::string> schedules;
  };
  struct Entered {
    size_t family = 0;
    std::vector<std::string> ways;  // by place
    double us = 0;
    bool whole = false;  // all launches are of places
  };
  struct Better {
    const Family& family;
    Schedule schedule;
  };

  size_t family_of(const Program& program, const MuGraph& mugraph, const Schedule& schedule);
  size_t place_of(std::vector<MuGraph> kernels, bool leads);
  Status race(Place& place, const std::string& way, const std::vector<KernelSchedule>& schedules,
              const Plan& plan, bool tf32, const LaunchRange& launches);
  std::optional<double> in_turn_us(const Entered& program) const;
  std::optional<double> expected_us(const Entered& program) const;
  std::optional<Better> better_schedule() const;

  const Graph& graph_;
  const Target& target_;
  Bench& bench_;
  std::vector<Place> places_;
  std::vector<Family> families_;
  std::map<size_t, Entered> entered_;
  double seconds_ = 0;
  bool broken_ = false;  // launches by themselves hung or faulted: each would cost a process
};

}  // namespace quern
