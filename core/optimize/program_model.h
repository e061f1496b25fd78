// What the model of schedules says of whole programs, the baseline's and those of muGraphs: their kernels,
// one after the other, whoever emits them.
#pragma once

#include "core/codegen/launch_work.h"
#include "core/graph/graph.h"
#include "core/schedule/enumerate.h"
#include "core/schedule/model.h"
#include "core/schedule/schedule.h"

namespace quern {

// A program replaces the baseline's if the model says that it is faster by this factor: the model has erred
// by less in nearly all of the graphs that it was compared with measurements on (docs/results/model.md).
constexpr double kBaselineMargin = 1.15;

// What the launches of the baseline's program do, and the microseconds that they take.
Result<std::vector<LaunchWork>> baseline_work(const Graph& graph, const Target& target);
double modelled_launches(const std::vector<LaunchWork>& launches, const Target& target);

// Of the programs of one muGraph of a graph. For one thread at a time.
class ProgramModel {
 public:
  static Result<ProgramModel> make(const Graph& graph, const MuGraph& mugraph, const Target& target);
  // INVALID_ARGUMENT if the schedule does not fit; infinite if a kernel does not fit the target.
  Result<double> us(const Schedule& schedule) const;
  // `applied`: the muGraph as the schedule cuts it.
  double us(const MuGraph& applied, const Schedule& schedule) const;
  // Of the launch that custom kernel `k` is in.
  const KernelTime& launch(const MuGraph& applied, const Schedule& schedule, size_t k) const {
    return launches_.of(applied, schedule, k);
  }
  MuGraph applied(const Schedule& schedule) const { return *apply_schedule(mugraph_, schedule); }
  // A line a launch: what it writes, the microseconds, and what of them bounds it. Of a schedule that fits.
  std::string print(const Schedule& schedule) const;

 private:
  ProgramModel(const MuGraph& mugraph, const Target& target)
      : mugraph_(mugraph), target_(target), launches_(target) {}

  const MuGraph& mugraph_;
  const Target& target_;
  std::vector<LaunchWork> library_;  // of the baseline emitter: schedules do not change them
  std::vector<std::pair<size_t, std::vector<int32_t>>>
      written_;  // by these: the kernel they begin at, and tensors
  mutable LaunchTimes launches_;
};

// What a search decides by (SearchOptions::time_of).
class SubgraphModel {
 public:
  explicit SubgraphModel(const Target& target, const EnumeratorOptions& options = {})
      : target_(target), schedules_(target, options) {}
  // Microseconds of the muGraph with the best of its schedules, or, for nullptr, of the baseline's program;
  // infinite if there is none.
  double operator()(const Graph& graph, const MuGraph* mugraph);

 private:
  const Target& target_;
  ScheduleEnumerator schedules_;
};

}  // namespace quern
