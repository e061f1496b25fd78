// quern run: executes a graph on random inputs and compares every element with the f64 reference.
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "core/jit/driver.h"
#include "core/lang/attrs.h"
#include "tools/output.h"
#include "tools/session.h"
#include "tools/trial.h"

namespace quern {

namespace {

// Multiply-adds that take some seconds: the reference is evaluated five times on one core, the emulator runs
// each thread of the GPU in turn.
constexpr double kMostReferenceWork = 6e8, kMostEmulatorWork = 2e7;
constexpr int64_t kFirstExtent = 512;

struct Setup {
  Graph graph;
  bool shrunk = false;
  bool gpu = false;
  std::string target;
  uint64_t seed = 1;
};

// The graph itself or, where it is too large or --shrink says so, a small instance.
Status choose_instance(const Arguments& arguments, Graph graph, Setup& setup) {
  Result<int64_t> asked = arguments.integer("shrink", 0, 1, 1 << 20);
  if (!asked) return asked.status();
  const double most = arguments.has("full") ? 1e300 : setup.gpu ? kMostReferenceWork : kMostEmulatorWork;
  Graph small = graph;
  if (*asked) small = *shrink(graph, *asked);
  for (int64_t extent = kFirstExtent; !*asked && work(small) > most && extent >= 4; extent /= 2)
    small = *shrink(graph, extent);
  setup.shrunk = print_graph(small) != print_graph(graph);
  setup.graph = std::move(small);
  return {};
}

Result<Setup> set_up(const Arguments& arguments) {
  if (arguments.has("gpu") && arguments.has("emulate"))
    return Status(ErrorCode::INVALID_ARGUMENT, "--gpu and --emulate exclude each other");
  if (arguments.has("shrink") && arguments.has("full"))
    return Status(ErrorCode::INVALID_ARGUMENT, "--shrink and --full exclude each other");
  Setup setup;
  Result<int64_t> seed = arguments.integer("seed", 1, 0, INT64_MAX / 1000);
  if (!seed) return seed.status();
  setup.seed = static_cast<uint64_t>(*seed);
  Result<GraphFile> file = read_graph(arguments.operands()[0]);
  if (!file) return file.status();
  const Result<std::shared_ptr<const Driver>> driver = Driver::open();
  if (arguments.has("gpu") && !driver) return driver.status();
  setup.gpu = driver.ok() && !arguments.has("emulate");
  // The emulator stands for any GPU; without one a target must be made up.
  if (!setup.gpu && !arguments.has("target")) {
    setup.target = "sm_90a";
  } else {
    Result<std::string> target = choose_target(arguments);
    if (!target) return target.status();
    setup.target = *target;
  }
  if (Status status = choose_instance(arguments, std::move(file->graph), setup); !status.ok()) return status;
  return setup;
}

Result<std::vector<std::string>> run_plan_on_gpu(const Arguments& arguments, const Setup& setup,
                                                 const std::vector<std::string>& inputs) {
  Result<Session> session = open_session(arguments);
  if (!session) return session.status();
  wire::Get get;
  get.graph = print_graph(setup.graph);
  get.target = setup.target;
  get.numerics = numerics_of(arguments);
  get.timeout_ms = session->milliseconds_left();
  Result<wire::PlanReply> reply = session->ask<wire::PlanReply>(get);
  if (!reply) return reply.status();
  Result<Plan> plan = decode_plan(reply->plan);
  if (!plan) return plan.status();
  return run_on_gpu(*plan, inputs);
}

std::string error_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// Infinities and NaN are no JSON numbers.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(print_number(value)); }

int report(const Arguments& arguments, const Setup& setup, const std::vector<OutputCheck>& checks) {
  bool acceptable = true;
  for (const OutputCheck& check : checks) acceptable = acceptable && check.comparison.acceptable;
  if (arguments.json()) {
    Json outputs = Json::array();
    for (const OutputCheck& check : checks)
      outputs.push_back({{"name", check.desc.name},
                         {"dtype", dtype_name(check.desc.dtype)},
                         {"shape", check.desc.shape},
                         {"error", number_json(check.comparison.error)},
                         {"bound", number_json(check.comparison.bound)},
                         {"acceptable", check.comparison.acceptable},
                         {"what", check.comparison.what}});
    print_json({{"device", setup.gpu ? "gpu" : "emulator"},
                {"target", setup.target},
                {"seed", setup.seed},
                {"shrunk", setup.shrunk},
                {"graph", print_graph(setup.graph)},
                {"acceptable", acceptable},
                {"outputs", outputs}});
    return acceptable ? kExitOk : kExitNo;
  }
  print_text(std::string("run on ") + (setup.gpu ? "the GPU" : "the emulator") + " for " + setup.target +
             ", seed " + std::to_string(setup.seed) +
             (setup.shrunk ? ", as a small instance:\n\n" + print_graph(setup.graph) + "\n" : "\n"));
  Table table({"OUTPUT", "TYPE", ">ERROR", ">BOUND", "VERDICT"});
  for (const OutputCheck& check : checks)
    table.add({check.desc.name, std::string(dtype_name(check.desc.dtype)) + print_ints(check.desc.shape),
               error_text(check.comparison.error), error_text(check.comparison.bound),
               check.comparison.acceptable ? "ok" : "WRONG " + check.comparison.what});
  print_text(table.text());
  return acceptable ? kExitOk : kExitNo;
}

int run_run(const Arguments& arguments) {
  Result<Setup> setup = set_up(arguments);
  if (!setup) return fail(arguments, setup.status());
  const std::vector<std::string> inputs = random_inputs(setup->graph, setup->seed, 1.0);
  Result<std::vector<std::string>> outputs = Status();
  if (setup->gpu) {
    outputs = run_plan_on_gpu(arguments, *setup, inputs);
  } else {
    Result<const Target*> target = find_target(setup->target);
    if (!target) return fail(arguments, target.status());
    outputs = run_in_emulator(setup->graph, **target, inputs, setup->seed);
  }
  if (!outputs) return fail(arguments, outputs.status());
  return report(arguments, *setup,
                check_outputs(setup->graph, inputs, *outputs, setup->seed, arguments.has("tf32")));
}

}  // namespace

const Command kRunCommand = {
    "run",
    "FILE",
    1,
    1,
    "run a graph on random inputs and compare with the reference",
    "Runs the graph in FILE on random inputs and compares every element of every output with an f64\n"
    "reference. On a GPU it runs the daemon's plan; where there is none, the emulator runs the text of\n"
    "the baseline kernels on the CPU and watches every memory access. A graph that would take too long\n"
    "is replaced by a small instance of the same program, which is printed. ERROR is ||result -\n"
    "reference|| / ||reference||; BOUND is twice the error of the unfused program. Exit code 1 means\n"
    "that an output is wrong.\n",
    true,
    {{"target", 't', "TARGET", "GPU architecture (that of the first GPU; sm_90a in the emulator)"},
     {"seed", 's', "N", "of the inputs, and of the emulator's order of threads (1)"},
     {"gpu", 0, nullptr, "on the GPU, or fail"},
     {"emulate", 0, nullptr, "in the emulator, even if there is a GPU"},
     {"shrink", 0, "N", "a small instance with no extent above N"},
     {"full", 0, nullptr, "the graph as it is, however long it takes"},
     {"tf32", 0, nullptr, "as in quern get"}},
    run_run,
};

}  // namespace quern
