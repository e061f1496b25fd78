// quern get: the plan of a graph.
#include <chrono>

#include "tools/constraints.h"
#include "tools/plan_output.h"
#include "tools/session.h"

namespace quern {

namespace {

using std::chrono::steady_clock;

const char* origin_text(wire::Origin origin) {
  switch (origin) {
    case wire::Origin::hit:
      return "hit: it was in the cache";
    case wire::Origin::compiled:
      return "miss: it was compiled for this request";
    case wire::Origin::shared:
      return "miss: it was being compiled for another request";
  }
  return "?";
}

// Why the plan that came is not of the tier that was waited for: nothing is under way any more that could
// make it so.
Status not_reached(Session& session, const Hash128& key, Tier wanted) {
  Result<wire::JobStatusReply> job = session.ask<wire::JobStatusReply>(wire::JobStatus{key});
  return Status(ErrorCode::NOT_FOUND, std::string("no plan of tier ") + tier_name(wanted) + ": " +
                                          (!job                  ? job.status().message()
                                           : job->reason.empty() ? "nothing is under way that would make one"
                                                                 : job->reason));
}

int print_pending(const Arguments& arguments, const wire::Pending& pending) {
  if (arguments.json())
    print_json({{"key", to_hex(pending.key)}, {"pending", true}, {"job", job_state_name(pending.state)}});
  else
    print_text(facts_text({{"key", to_hex(pending.key)},
                           {"answer", std::string("pending: its job is ") + job_state_name(pending.state)}}));
  return kExitPending;
}

void print_plan(const Arguments& arguments, const wire::PlanReply& reply, const Plan& plan,
                uint64_t client_ns) {
  if (arguments.json()) {
    print_json({{"key", to_hex(reply.key)},
                {"origin", origin_name(reply.origin)},
                {"generation", reply.generation},
                {"stored", !reply.unstored},
                {"warning", reply.warning},
                {"client_ns", client_ns},
                {"daemon_ns", reply.total_ns},
                {"queue_ns", reply.queue_ns},
                {"emit_ns", reply.emit_ns},
                {"compile_ns", reply.compile_ns},
                {"plan", plan_json(plan)}});
    return;
  }
  std::string time =
      human_duration(client_ns) + ", of that " + human_duration(reply.total_ns) + " in the daemon";
  if (reply.compile_ns)
    time += " (" + human_duration(reply.queue_ns) + " queued, " + human_duration(reply.emit_ns) +
            " emitting, " + human_duration(reply.compile_ns) + " compiling)";
  std::vector<std::pair<std::string, std::string>> facts = {
      {"key", to_hex(reply.key)},
      {"answer", origin_text(reply.origin)},
      {"tier", std::string(tier_name(plan.tier)) + ", generation " + std::to_string(reply.generation)},
      {"target", plan.target},
      {"time", time},
      {"cubin", human_bytes(plan.cubin.size())},
      {"workspace", human_bytes(plan.workspace_bytes)},
  };
  if (!reply.warning.empty()) facts.emplace_back("warning", reply.warning);
  print_text(facts_text(facts) + "\n" + launches_text(plan));
}

// The request but for its text and time.
Result<wire::Get> request_of(const Arguments& arguments) {
  Result<Tier> wanted = tier_of(arguments);
  if (!wanted) return wanted.status();
  Result<std::string> target = choose_target(arguments);
  if (!target) return target.status();
  Result<int64_t> priority = arguments.integer("priority", 0, 0, 255);
  if (!priority) return priority.status();
  Result<std::string> constraints = constraints_of(arguments);
  if (!constraints) return constraints.status();
  wire::Get get;
  get.target = *target;
  get.numerics = numerics_of(arguments);
  get.flags = (arguments.has("no-wait") ? wire::kGetNoWait : 0) |
              (arguments.has("no-compile") ? wire::kGetNoStart : 0);
  get.priority = static_cast<uint8_t>(*priority);
  get.constraints = *constraints;
  if (*wanted > Tier::baseline) get.tier = static_cast<uint8_t>(*wanted);
  return get;
}

Status write_results(const Arguments& arguments, const Plan& plan) {
  if (arguments.has("output"))
    if (Status status = write_file(arguments.value("output"), plan.cubin); !status.ok()) return status;
  if (arguments.has("launches"))
    return write_file(arguments.value("launches"), plan_json(plan).dump(2) + "\n");
  return {};
}

void name_as_in(const Graph& graph, Plan& plan) {
  std::vector<std::string> inputs, outputs;
  for (const TensorDesc& tensor : graph.input_descs()) inputs.push_back(tensor.name);
  for (const TensorDesc& tensor : graph.output_descs()) outputs.push_back(tensor.name);
  name_buffers(plan, inputs, outputs);
}

int run_get(const Arguments& arguments) {
  Result<GraphFile> file = read_graph(arguments.operands()[0]);
  if (!file) return fail(arguments, file.status());
  Result<wire::Get> get = request_of(arguments);
  if (!get) return fail(arguments, get.status());
  get->graph = std::move(file->text);
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());

  const auto start = steady_clock::now();
  get->timeout_ms = session->milliseconds_left();
  Result<Answer> answer = session->client->exchange(*get, session->deadline);
  if (!answer) return fail(arguments, answer.status());
  if (answer->is<wire::Pending>()) {
    Result<wire::Pending> pending = answer->as<wire::Pending>();
    return pending ? print_pending(arguments, *pending) : fail(arguments, pending.status());
  }
  Result<wire::PlanReply> reply = answer->as<wire::PlanReply>();
  if (!reply) return fail(arguments, reply.status());
  if (static_cast<uint8_t>(reply->tier) < get->tier)
    return fail(arguments, not_reached(*session, reply->key, static_cast<Tier>(get->tier)));
  const auto ns = static_cast<uint64_t>((steady_clock::now() - start).count());
  Result<Plan> plan = decode_plan(reply->plan);
  if (!plan) return fail(arguments, plan.status());
  name_as_in(file->graph, *plan);
  if (Status status = write_results(arguments, *plan); !status.ok()) return fail(arguments, status);
  print_plan(arguments, *reply, *plan, ns);
  return kExitOk;
}

}  // namespace

const Command Commands::kGetCommand = {
    "get",
    "FILE",
    1,
    1,
    "the plan of a graph: from the cache, or compiled now",
    "Sends the graph in FILE (\"-\" is standard input) to the daemon and prints what came back: the\n"
    "key, whether it was a hit, tier and generation, times, and the kernels to launch. Exit code 6\n"
    "means pending (--no-wait). Constraints (--griddims to --franges) say what the search for a better\n"
    "plan may find, and are part of the key.\n",
    true,
    with_constraints(
        {{"target", 't', "TARGET", "GPU architecture, such as sm_90a (that of the first GPU)"},
         {"output", 'o', "FILE", "write the cubin"},
         {"launches", 'l', "FILE", "write launch list and buffers as JSON"},
         {"no-wait", 0, nullptr, "on a miss return at once, and compile in the background; exit code 6"},
         {"no-compile", 0, nullptr, "on a miss do not compile; exit code 1"},
         {"wait-tier", 0, "TIER", "wait for a plan of this tier: baseline, modelled, measured"},
         {"tf32", 0, nullptr, "f32 products may be computed from operands rounded to tf32"},
         {"priority", 0, "N", "among waiting jobs, higher goes first: 0 to 255 (0)"}}),
    run_get,
};

}  // namespace quern
