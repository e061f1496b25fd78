// quern show: all about one stored plan.
#include <tuple>

#include "core/base/numerics.h"
#include "core/base/target.h"
#include "core/codegen/baseline.h"
#include "core/graph/text.h"
#include "tools/disassemble.h"
#include "tools/plan_output.h"
#include "tools/session.h"
#include "tools/timings.h"

namespace quern {

namespace {

// What is measured may be either.
bool is_baseline(const wire::ShowReply& shown, const Plan& plan) {
  return plan.tier == Tier::baseline || (plan.tier == Tier::measured && shown.mugraph.empty());
}

// What the search left behind of the plan.
Result<std::string> searched(const wire::ShowReply& shown, const Plan& plan, const char* what,
                             const std::string& text) {
  if (!text.empty()) return text;
  if (is_baseline(shown, plan))
    return Status(ErrorCode::NOT_FOUND,
                  std::string("a baseline plan is made without search and has no ") + what +
                      (shown.reason.empty() ? "" : "; the search made no better plan: " + shown.reason));
  return Status(ErrorCode::NOT_FOUND, std::string("the ") + what + " of this plan was not kept");
}

// The CUDA text of the plan. That of a baseline is not stored, but the emitter is deterministic: NOT_FOUND
// unless it gives the stored launches again.
Result<std::string> cuda_text(const wire::ShowReply& shown, const Graph& graph, const Plan& plan) {
  if (!is_baseline(shown, plan)) return searched(shown, plan, "CUDA text", shown.cuda);
  Result<const Target*> target = find_target(plan.target);
  if (!target) return target.status();
  Result<Emitted> emitted = emit_baseline(graph, **target);
  if (!emitted) return emitted.status();
  if (emitted->plan.launches != plan.launches || emitted->plan.workspace_bytes != plan.workspace_bytes)
    return Status(ErrorCode::NOT_FOUND,
                  "this version of quern emits other kernels than those of the stored plan");
  return std::move(emitted->source);
}

int print_all(const Arguments& arguments, const wire::ShowReply& shown, const Plan& plan) {
  if (arguments.json()) {
    print_json({{"key", to_hex(shown.row.key)},
                {"name", shown.row.name},
                {"generation", shown.row.generation},
                {"tf32", (shown.row.numerics & kAllowTf32) != 0},
                {"created_ms", shown.row.created_ms},
                {"used_ms", shown.row.used_ms},
                {"toolchain", shown.toolchain},
                {"constraints", shown.constraints},
                {"graph", shown.graph},
                {"key_text", shown.key_text},
                {"reason", shown.reason},
                {"report", shown.report},
                {"mugraph", shown.mugraph},
                {"schedule", shown.schedule},
                {"timings", timings_json(join_timings(shown.programs, shown.timings))},
                {"plan", plan_json(plan)}});
    return kExitOk;
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"key", to_hex(shown.row.key)},
      {"tier", std::string(tier_name(plan.tier)) + ", generation " + std::to_string(shown.row.generation)},
      {"target", plan.target + (shown.row.numerics & kAllowTf32 ? ", tf32 allowed" : "")},
      {"name", shown.row.name.empty() ? "-" : shown.row.name},
      {"toolchain", shown.toolchain},
      {"created", human_time(shown.row.created_ms)},
      {"last used", human_time(shown.row.used_ms)},
      {"cubin", human_bytes(plan.cubin.size())},
      {"workspace", human_bytes(plan.workspace_bytes)}};
  if (!shown.constraints.empty()) facts.emplace_back("constraints", shown.constraints);
  if (!shown.reason.empty()) facts.emplace_back("search", "no better plan: " + shown.reason);
  print_text(facts_text(facts));
  print_text("\n" + tensors_text(plan) + "\n" + launches_text(plan));
  if (!plan.certificate.empty())
    print_text("\n" + plan.certificate + (plan.certificate.back() == '\n' ? "" : "\n"));
  for (const std::string& part : {shown.report, shown.graph, shown.mugraph, shown.schedule})
    if (!part.empty()) print_text("\n" + part);
  return kExitOk;
}

// One part alone: as it is, or as {"NAME": ...}.
int print_part(const Arguments& arguments, const char* name, const Result<std::string>& text) {
  if (!text) return fail(arguments, text.status());
  if (arguments.json())
    print_json({{name, *text}});
  else
    print_text(*text + (text->empty() || text->back() == '\n' ? "" : "\n"));
  return kExitOk;
}

int print_timings(const Arguments& arguments, const wire::ShowReply& shown) {
  const std::vector<DeviceTimings> devices = join_timings(shown.programs, shown.timings);
  if (arguments.json()) {
    print_json({{"timings", timings_json(devices)}});
    return kExitOk;
  }
  if (devices.empty())
    return fail(arguments,
                Status(ErrorCode::NOT_FOUND, "no program of this plan was measured yet; see: quern tune " +
                                                 to_hex(shown.row.key).substr(0, 8)));
  print_text(timings_text(devices));
  return kExitOk;
}

int run_show(const Arguments& arguments) {
  int parts = 0;
  for (const char* part : {"graph", "plan", "launches", "certificate", "cubin", "dot", "cuda", "mugraph",
                           "schedule", "sass", "report", "timings", "key"})
    parts += arguments.has(part);
  if (parts > 1)
    return fail(arguments,
                Status(ErrorCode::INVALID_ARGUMENT, "show one part at a time, or all without naming any"));
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Result<Hash128> key = find_key(*session, arguments.operands()[0]);
  if (!key) return fail(arguments, key.status());
  Result<wire::ShowReply> shown = session->ask<wire::ShowReply>(wire::Show{*key});
  if (!shown) return fail(arguments, shown.status());
  Result<Plan> plan = decode_plan(shown->plan);
  if (!plan) return fail(arguments, plan.status());
  name_buffers(*plan, shown->row.inputs, shown->row.outputs);
  Result<Graph> graph = parse_graph(shown->graph);
  if (!graph) return fail(arguments, graph.status().with_context("the stored graph"));

  if (arguments.has("graph")) return print_part(arguments, "graph", shown->graph);
  if (arguments.has("certificate")) return print_part(arguments, "certificate", plan->certificate);
  if (arguments.has("dot")) return print_part(arguments, "dot", print_dot(*graph));
  if (arguments.has("cuda")) return print_part(arguments, "cuda", cuda_text(*shown, *graph, *plan));
  if (arguments.has("sass")) return print_part(arguments, "sass", disassemble(plan->cubin));
  for (const auto& [part, what, text] : {std::tuple{"mugraph", "muGraph", &shown->mugraph},
                                         std::tuple{"schedule", "schedule", &shown->schedule},
                                         std::tuple{"report", "report of a search", &shown->report}})
    if (arguments.has(part)) return print_part(arguments, part, searched(*shown, *plan, what, *text));
  if (arguments.has("timings")) return print_timings(arguments, *shown);
  if (arguments.has("key")) return print_part(arguments, "key_text", shown->key_text);
  if (arguments.has("launches") || arguments.has("plan")) {
    const bool all = arguments.has("plan");
    if (arguments.json())
      print_json(all ? plan_json(*plan) : Json{{"launches", launches_json(*plan)}});
    else
      print_text((all ? tensors_text(*plan) + "\n" : "") + launches_text(*plan));
    return kExitOk;
  }
  if (arguments.has("cubin")) {
    const std::string path = arguments.value("cubin");
    if (Status status = write_file(path, plan->cubin); !status.ok()) return fail(arguments, status);
    if (arguments.json()) print_json({{"cubin", path}, {"bytes", plan->cubin.size()}});
    return kExitOk;
  }
  return print_all(arguments, *shown, *plan);
}

}  // namespace

const Command Commands::kShowCommand = {
    "show",
    "KEY",
    1,
    1,
    "all about one stored plan, or a part of it",
    "Prints a stored plan: what it is, its buffers, its kernels, its certificate and its graph in\n"
    "canonical form, and of a searched plan the muGraph and schedule. KEY is 32 digits, or the first few\n"
    "of them. A part is printed as it is: what --graph, --mugraph and --schedule print makes the same\n"
    "kernels again with \"quern emit\".\n",
    true,
    {{"graph", 0, nullptr, "only the canonical graph"},
     {"dot", 0, nullptr, "only the graph, for Graphviz"},
     {"plan", 0, nullptr, "only buffers and kernels"},
     {"launches", 0, nullptr, "only the kernels"},
     {"certificate", 0, nullptr, "only what was checked about it"},
     {"cuda", 0, nullptr, "only the CUDA text of its kernels"},
     {"sass", 0, nullptr, "only their instructions, by nvdisasm or cuobjdump of the CUDA toolkit"},
     {"mugraph", 0, nullptr, "only the muGraph that it was made from (.qmu)"},
     {"schedule", 0, nullptr, "only the schedule of that"},
     {"report", 0, nullptr, "only the result of each candidate of its search"},
     {"timings", 0, nullptr, "only what its programs take on GPUs, beside what the cost model says"},
     {"key", 0, nullptr, "only the text that the key is the hash of"},
     {"cubin", 0, "FILE", "write the cubin"}},
    run_show,
};

}  // namespace quern
