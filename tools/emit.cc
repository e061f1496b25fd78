// quern emit: the CUDA text of a muGraph with a schedule, without a daemon.
#include "core/base/target.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/kernel/count.h"
#include "core/kernel/print_ir.h"
#include "core/mugraph/text.h"
#include "core/optimize/prove_program.h"
#include "tools/plan_output.h"
#include "tools/session.h"

namespace quern {

namespace {

// The program of GRAPH's muGraph, or without one its baseline.
Result<Emitted> emit_files(const Arguments& arguments, const ir::PassObserver& observer) {
  Result<std::string> name = choose_target(arguments);
  if (!name) return name.status();
  Result<const Target*> target = find_target(*name);
  if (!target) return target.status();
  Result<GraphFile> graph = read_graph(arguments.operands()[0]);
  if (!graph) return graph.status();
  if (arguments.operands().size() == 1) {
    if (arguments.has("schedule"))
      return Status(ErrorCode::INVALID_ARGUMENT, "a schedule is for a muGraph: name its file, too");
    return emit_baseline(graph->graph, **target, observer);
  }
  const std::string path = arguments.operands()[1];
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<MuGraph> mugraph = parse_mugraph(*text);
  if (!mugraph) return in_file(mugraph.status(), path);
  Result<Schedule> schedule = arguments.has("schedule") ? read_schedule(arguments.value("schedule"))
                                                        : Result<Schedule>(default_schedule(*mugraph));
  if (!schedule) return schedule.status();
  auto emitted = emit_mugraph(graph->graph, *mugraph, *schedule, **target, nullptr, observer);
  if (!emitted) return emitted.status();
  return Emitted(std::move(*emitted));
}

// What a block of each launch does, and its kernel.
std::string ir_text(const Emitted& emitted) {
  std::string out;
  for (const LaunchedKernel& each : emitted.code)
    out += (out.empty() ? "" : "\n") + std::string("a block of ") + each.kernel.name + " in the mean\n" +
           print_counts(count_mean_block(each.kernel, each.facts)) + print_ir(each.kernel);
  return out;
}

// Writes down what each pass does.
class PassLog {
 public:
  void see(const ir::Draft& draft, const ir::Pass* pass) {
    std::string text = print_ir(draft);
    const std::string head =
        pass ? std::string("---- ") + pass->name + ": " + pass->ensures : std::string("==== lowered");
    if (!text_.empty() && !pass) text_ += "\n";
    text_ += pass && text == last_ ? head + "\n(nothing to do)\n" : head + "\n" + text;
    last_ = std::move(text);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_, last_;
};

// What is proved of each kernel, and what is not.
std::string proofs_text(const std::vector<KernelProof>& proofs) {
  std::string out;
  for (const KernelProof& each : proofs) {
    const Proof& proof = each.proof;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.3f", proof.seconds);
    out += each.kernel + ": " +
           (proof.proved()     ? "proved"
            : proof.disproof() ? "disproved"
                               : "unproved") +
           " in " + seconds + " s, " + std::to_string(proof.by_intervals) + " questions by intervals, " +
           std::to_string(proof.by_solver) + " by Z3\n";
    for (const ProofFinding& finding : proof.findings)
      out += std::string("  ") + (finding.kind == ProofFinding::Kind::disproved ? "disproved" : "unproved") +
             ", " + finding.rule + ": " + finding.access + "\n    " + finding.reason + "\n";
  }
  return out;
}

int prove(const Arguments& arguments, const Emitted& emitted) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  const std::vector<KernelProof> proofs = prove_program(emitted, solver.get());
  Json json = Json::array();
  for (const KernelProof& each : proofs)
    json.push_back(
        {{"kernel", each.kernel}, {"proof", each.proof.summary()}, {"seconds", each.proof.seconds}});
  if (arguments.json())
    print_json({{"proofs", json}});
  else
    print_text(proofs_text(proofs));
  return find_disproof(proofs) ? kExitNo : kExitOk;
}

int run_emit(const Arguments& arguments) {
  PassLog log;
  ir::PassObserver observer;
  if (arguments.has("passes"))
    observer = [&](const ir::Draft& draft, const ir::Pass* pass) { log.see(draft, pass); };
  Result<Emitted> emitted = emit_files(arguments, observer);
  if (!emitted) return fail(arguments, emitted.status());
  if (arguments.has("prove")) return prove(arguments, *emitted);
  const bool passes = arguments.has("passes"), ir = arguments.has("ir");
  if (arguments.json()) {
    Json json = {{"cuda", emitted->source}, {"plan", plan_json(emitted->plan)}};
    if (ir) json["ir"] = ir_text(*emitted);
    if (passes) json["passes"] = log.text();
    print_json(json);
    return kExitOk;
  }
  if (passes)
    print_text(log.text());
  else if (ir)
    print_text(ir_text(*emitted));
  else if (arguments.has("launches"))
    print_text(tensors_text(emitted->plan) + "\n" + launches_text(emitted->plan));
  else
    print_text(emitted->source);
  return kExitOk;
}

}  // namespace

const Command Commands::kEmitCommand = {
    "emit",
    "GRAPH [FILE]",
    1,
    2,
    "the CUDA text of a muGraph with a schedule",
    "Prints the program that the muGraph in FILE (.qmu) becomes for GRAPH (.qg) with a schedule. From what\n"
    "\"quern show KEY\" prints with --graph, --mugraph and --schedule, for the same target, it is the text\n"
    "that --cuda prints. Whether the muGraph computes the graph is for \"quern verify-mugraph\" to say. "
    "Without\n"
    "FILE the baseline's program. With --ir the kernel IR that the text is made of, below counts of what a "
    "block of it does; with --passes the draft "
    "of "
    "each\n"
    "kernel as it was lowered and after each pass.\n"
    "With --prove what is proved of each kernel for its full extents: accesses in bounds and aligned, one "
    "writer\n"
    "an element, no races in shared memory, phases of mbarriers; or the thread that breaks it, with exit "
    "code 1.\n",
    false,
    {{"schedule", 's', "FILE", "how it is cut up (as the muGraph says)"},
     {"target", 't', "TARGET", "GPU architecture, such as sm_90a (that of the first GPU)"},
     {"ir", 0, nullptr, "print the kernel IR instead"},
     {"passes", 0, nullptr, "print what each pass makes of each kernel instead"},
     {"launches", 0, nullptr, "print buffers and kernels instead"},
     {"prove", 0, nullptr, "print what is proved of each kernel instead"}},
    run_emit,
};

}  // namespace quern
