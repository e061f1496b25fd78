#include "daemon/import.h"

#include "core/base/target.h"
#include "core/graph/builder.h"
#include "core/graph/canon.h"
#include "core/graph/text.h"
#include "core/optimize/program.h"
#include "daemon/planner.h"

namespace quern {

namespace {

Status corrupt(const std::string& what) {
  return Status(ErrorCode::CORRUPT, "the plan cannot be imported: " + what);
}

bool same_buffers(const std::vector<TensorDesc>& buffers, const Graph& graph,
                  const std::vector<ValueId>& values) {
  if (buffers.size() != values.size()) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    const Node& node = graph.node(values[i]);
    if (buffers[i].dtype != node.type.dtype || buffers[i].shape != node.type.shape) return false;
  }
  return true;
}

// A graph that is not in canonical form would lie under a key that no request leads to.
Result<Graph> check_graph(const std::string& text) {
  Result<Graph> graph = parse_graph(text);
  if (!graph) return corrupt(graph.status().message());
  if (canonical_text(*graph) != text) return corrupt("its graph is not in canonical form");
  return graph;
}

Status check_plan(const wire::Import& message, const Graph& graph) {
  const Result<Plan> plan = decode_plan(message.plan);
  if (!plan) return corrupt(plan.status().message());
  if (plan->target != message.target || plan->tier != message.tier || plan->cubin.empty())
    return corrupt("it is for another target, of another tier, or has no code");
  if (!same_buffers(plan->inputs, graph, graph.inputs) || !same_buffers(plan->outputs, graph, graph.outputs))
    return corrupt("its buffers are not those of the graph");
  return {};
}

// A request that leads to the plan: as somebody has written it, else the canonical graph under its own name.
Status add_request(const wire::Import& message, PlanPut& put) {
  PlanRequest request{message.request, message.target, message.numerics, message.constraints};
  if (!message.request.empty()) {
    const Result<Graph> graph = parse_graph(message.request);
    if (!graph || canonical_text(*graph) != message.graph) return corrupt("its request means another graph");
  } else if (is_valid_name(message.name)) {
    request.graph = "graph " + message.name + message.graph.substr(message.graph.find('\n'));
  } else {
    return {};
  }
  put.request = Planner::request_material(request, message.toolchain);
  return {};
}

// What compares it with another plan of its tier. Baselines are not compared.
void add_time(const wire::Import& message, PlanPut& put) {
  const bool modelled = message.tier == Tier::modelled && message.device == kModelDevice;
  const bool measured =
      message.tier == Tier::measured && !message.device.empty() && message.device != kModelDevice;
  if (message.cold_ps == 0 || (!modelled && !measured)) return;
  put.device = message.device;
  put.program = message.program;
  Timing timing;
  timing.device = message.device;
  timing.program = message.program;
  timing.cold_ns = static_cast<double>(message.cold_ps) / 1e3;
  put.timings.push_back(std::move(timing));
}

void add_timings(const wire::Import& message, PlanPut& put) {
  for (const wire::TimingRow& row : message.timings) {
    if (row.device.empty() || row.device == kModelDevice) continue;
    put.timings.push_back({row.device, row.program, static_cast<double>(row.cold_ps) / 1e3,
                           static_cast<double>(row.hot_ps) / 1e3, row.samples,
                           static_cast<double>(row.error_ppb) / 1e9, row.refusal, 0});
  }
}

void add_findings(const wire::Import& message, PlanPut& put) {
  if (!message.searched && message.mugraph.empty() && message.report.empty() && message.reason.empty())
    return;
  put.findings.emplace();
  put.findings->reason = message.reason;
  put.findings->report = message.report;
  put.findings->mugraph = message.mugraph;
  put.findings->schedule = message.schedule;
  put.findings->cuda = message.cuda;
  put.findings->state = message.state;
  put.findings->timeouts = message.timeouts;
}

}  // namespace

Result<PlanPut> put_of_import(const wire::Import& message) {
  if (Result<const Target*> target = find_target(message.target); !target) return target.status();
  PlanPut put;
  put.material =
      plan_key(message.graph, message.target, message.numerics, message.toolchain, message.constraints);
  if (put.material.key() != message.key)
    return corrupt("its key is not that of its parts; another version of Quern made it");
  const Result<Graph> graph = check_graph(message.graph);
  if (!graph) return graph.status();
  if (Status status = check_plan(message, *graph); !status.ok()) return status;
  put.tier = message.tier;
  put.plan = message.plan;
  if (Status status = add_request(message, put); !status.ok()) return status;
  add_time(message, put);
  add_timings(message, put);
  add_findings(message, put);
  if (!message.programs.empty()) {
    if (const auto programs = decode_programs(message.programs); !programs.ok())
      return corrupt(programs.status().message());
    put.programs = message.programs;
  }
  return put;
}

}  // namespace quern
