#include "daemon/optimize_job.h"

#include <algorithm>
#include <thread>

#include "core/base/numerics.h"
#include "core/graph/text.h"
#include "core/optimize/optimize.h"
#include "core/schedule/z3_optimizer.h"

namespace quern {

namespace {

// Of a question about a block: there are five, so that a block takes at most half a second.
constexpr std::chrono::milliseconds kQuestionLimit{100};

wire::JobDone answer_of(const OptimizeResult& found) {
  wire::JobDone done;
  if (found.found()) done.plan = encode_plan(found.plan);
  done.search_ns = found.search_ns;
  done.emit_ns = found.emit_ns;
  done.compile_ns = found.compile_ns;
  done.modelled_ns = static_cast<uint64_t>(found.us * 1000);
  done.reason = found.reason;
  done.report = found.report;
  done.mugraph = found.mugraph;
  done.schedule = found.schedule;
  done.cuda = found.cuda;
  done.state = found.state;
  done.timed_out = found.timed_out;
  if (!found.programs.empty()) done.programs = encode_programs(found.programs);
  return done;
}

}  // namespace

Result<wire::JobDone> run_optimize(Compiler& compiler, PieceMemo& memo, const wire::Job& job,
                                   const std::function<void(const wire::JobProgress&)>& send) {
  auto graph = parse_graph(job.graph);
  if (!graph) return graph.status();
  auto target = find_target(job.target);
  if (!target) return target.status();
  auto constraints = parse_constraints(job.constraints);
  if (!constraints) return constraints.status();
  OptimizeOptions options;
  const auto optimizer = make_z3_optimizer(kQuestionLimit);
  options.optimizer = optimizer.get();
  const auto solver = make_z3_solver();
  options.solver = solver.get();
  options.limit = std::chrono::milliseconds(job.budget_ms);
  options.keep = std::max(job.keep, 1u);
  options.allow_tf32 = (job.numerics & kAllowTf32) != 0;
  options.search.limit = std::chrono::milliseconds(job.search_ms);
  options.search.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  options.search.constraints = std::move(*constraints);
  options.search.resume = job.state;
  options.search.memo = &memo;
  options.progress = [&](const OptimizeResult& so_far) {
    wire::JobProgress progress;
    progress.so_far = wire::encode(0, answer_of(so_far));
    if (send) send(progress);
  };
  auto found = optimize(*graph, **target, compiler, options);
  // A state of another version is of no use any more.
  if (!found && !options.search.resume.empty()) {
    options.search.resume.clear();
    found = optimize(*graph, **target, compiler, options);
  }
  if (!found) return found.status();
  return answer_of(*found);
}

}  // namespace quern
