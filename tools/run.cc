// quern run: executes a graph on random or hostile inputs and compares every element with the f64 reference.
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "core/jit/driver.h"
#include "core/lang/attrs.h"
#include "tools/output.h"
#include "tools/session.h"
#include "tools/trial.h"

namespace quern {

namespace {

// Multiply-adds that take some seconds: the reference is evaluated on one core, the emulator runs each thread
// of the GPU in turn.
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
  if (!*asked && work(small) > most)
    std::fprintf(stderr,
                 "quern: no instance of \"%s\" is small: this takes about %.0f times as long as others\n",
                 visible(graph.name).c_str(), work(small) / most);
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

Result<Runner> plan_runner(const Arguments& arguments, const Setup& setup) {
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
  return gpu_runner(std::move(*plan));
}

Result<Runner> choose_runner(const Arguments& arguments, const Setup& setup) {
  if (setup.gpu) return plan_runner(arguments, setup);
  Result<const Target*> target = find_target(setup.target);
  if (!target) return target.status();
  return emulator_runner(setup.graph, **target, setup.seed);
}

// An output of a run on inputs of one class.
struct Check {
  std::string inputs;
  OutputCheck output;
};

std::string error_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

// Infinities and NaN are no JSON numbers.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(print_number(value)); }

int report(const Arguments& arguments, const Setup& setup, const std::vector<Check>& checks) {
  bool acceptable = true;
  for (const Check& check : checks) acceptable = acceptable && check.output.comparison.acceptable;
  if (arguments.json()) {
    Json outputs = Json::array();
    for (const auto& [inputs, output] : checks)
      outputs.push_back({{"inputs", inputs},
                         {"name", output.desc.name},
                         {"dtype", dtype_name(output.desc.dtype)},
                         {"shape", output.desc.shape},
                         {"error", number_json(output.comparison.error)},
                         {"bound", number_json(output.comparison.bound)},
                         {"worst", number_json(output.comparison.worst)},
                         {"acceptable", output.comparison.acceptable},
                         {"what", output.comparison.what}});
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
  Table table({"INPUTS", "OUTPUT", "TYPE", ">ERROR", ">BOUND", ">WORST", "VERDICT"});
  for (const auto& [inputs, output] : checks)
    table.add({inputs, output.desc.name,
               std::string(dtype_name(output.desc.dtype)) + print_ints(output.desc.shape),
               error_text(output.comparison.error), error_text(output.comparison.bound),
               error_text(output.comparison.worst),
               output.comparison.acceptable ? "ok" : "WRONG " + output.comparison.what});
  print_text(table.text());
  return acceptable ? kExitOk : kExitNo;
}

int run_run(const Arguments& arguments) {
  Result<Setup> setup = set_up(arguments);
  if (!setup) return fail(arguments, setup.status());
  Result<std::vector<std::string>> classes = input_classes(arguments.has("inputs") ? arguments.value("inputs") : kRandomInputs);
  if (!classes) return fail(arguments, classes.status());
  Result<Runner> runner = choose_runner(arguments, *setup);
  if (!runner) return fail(arguments, runner.status());
  std::vector<Check> checks;
  for (const std::string& name : *classes) {
    const std::vector<std::string> inputs = make_inputs(setup->graph, name, setup->seed);
    Result<std::vector<std::string>> outputs = (*runner)(inputs);
    if (!outputs) return fail(arguments, outputs.status().with_context(name + " inputs"));
    for (OutputCheck& check : check_outputs(setup->graph, inputs, *outputs, arguments.has("tf32")))
      checks.push_back({name, std::move(check)});
  }
  return report(arguments, *setup, checks);
}

}  // namespace

const Command Commands::kRunCommand = {
    "run",
    "FILE",
    1,
    1,
    "run a graph on random or hostile inputs and compare with the reference",
    "Runs the graph in FILE on random inputs and compares every element of every output with an f64\n"
    "reference. On a GPU it runs the daemon's plan; where there is none, the emulator runs the text of\n"
    "the baseline kernels on the CPU and watches every memory access. A graph that would take too long\n"
    "is replaced by a small instance of the same program, which is printed. ERROR is ||result -\n"
    "reference|| / ||reference||; BOUND is twice the error of the unfused program; WORST is the largest\n"
    "error of an element, relative to its own bound. --inputs takes hostile values instead: masked,\n"
    "lowest, special, logits, offset, constant, tiny or huge; all runs each.\n"
    "Exit code 1 means that an output is wrong.\n",
    true,
    {{"target", 't', "TARGET", "GPU architecture (that of the first GPU; sm_90a in the emulator)"},
     {"seed", 's', "N", "of the inputs, and of the emulator's order of threads (1)"},
     {"inputs", 'i', "CLASS", "of the inputs (random); hostile ones: see above; all: every class"},
     {"gpu", 0, nullptr, "on the GPU, or fail"},
     {"emulate", 0, nullptr, "in the emulator, even if there is a GPU"},
     {"shrink", 0, "N", "a small instance with no extent above N"},
     {"full", 0, nullptr, "the graph as it is, however long it takes"},
     {"tf32", 0, nullptr, "as in quern get"}},
    run_run,
};

}  // namespace quern
