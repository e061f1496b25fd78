// quern verify-mugraph: whether muGraphs compute a graph.
#include <chrono>

#include "core/codegen/arithmetic_verifier.h"
#include "core/mugraph/mirage.h"
#include "core/mugraph/text.h"
#include "core/verify/verifier.h"
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

struct Judged {
  Certificate certificate;
  ArithmeticVerdict arithmetic;
  double seconds = 0;
  // Accepted is what both accept.
  Verdict verdict() const {
    for (Verdict either : {Verdict::rejected, Verdict::undecided})
      if (certificate.verdict == either || arithmetic.verdict == either) return either;
    return Verdict::accepted;
  }
  std::string reason() const {
    if (certificate.verdict != Verdict::accepted && certificate.verdict == verdict())
      return certificate.reason;
    return arithmetic.verdict == Verdict::accepted ? certificate.reason
                                                   : "in arithmetic: " + arithmetic.reason;
  }
};

// A .qmu text, or a JSON list of kernel graphs as Mirage stores them.
Result<std::vector<MuGraph>> read_mugraphs(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  const size_t first = text->find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (*text)[first] == '[') {
    Result<std::vector<MuGraph>> mugraphs = read_mirage(*text);
    if (!mugraphs) return mugraphs.status().with_context(path);
    return mugraphs;
  }
  Result<MuGraph> mugraph = parse_mugraph(*text);
  if (!mugraph) return in_file(mugraph.status(), path);
  return std::vector<MuGraph>{std::move(*mugraph)};
}

Json judged_json(const Judged& judged) {
  const Certificate& c = judged.certificate;
  return {{"mugraph", c.mugraph},
          {"verdict", verdict_name(judged.verdict())},
          {"field", verdict_name(c.verdict)},
          {"arithmetic", verdict_name(judged.arithmetic.verdict)},
          {"reason", judged.reason()},
          {"error_bound", c.error_bound},
          {"trials", c.seeds.size()},
          {"elements", c.elements},
          {"samples", c.samples},
          {"seconds", judged.seconds},
          {"certificate", c.print() + judged.arithmetic.print()}};
}

void print_judged(const Arguments& arguments, const std::vector<Judged>& all) {
  if (arguments.json()) {
    Json rows = Json::array();
    for (const Judged& judged : all) rows.push_back(judged_json(judged));
    print_json({{"graph", all.empty() ? "" : all.front().certificate.graph}, {"mugraphs", rows}});
    return;
  }
  Table table(
      {"MUGRAPH", "VERDICT", "FIELD", "ARITHMETIC", ">ERROR BOUND", ">SAMPLES", ">SECONDS", "REASON"});
  char bound[32], seconds[32];
  for (const Judged& judged : all) {
    const Certificate& c = judged.certificate;
    std::snprintf(bound, sizeof bound, "%.1e", c.error_bound);
    std::snprintf(seconds, sizeof seconds, "%.3f", judged.seconds);
    const bool accepted = c.verdict == Verdict::accepted;
    table.add({c.mugraph, verdict_name(judged.verdict()), verdict_name(c.verdict),
               verdict_name(judged.arithmetic.verdict), accepted ? bound : "",
               accepted ? std::to_string(c.samples) : "", seconds, judged.reason()});
  }
  print_text(table.text());
  if (!arguments.has("certificate")) return;
  for (const Judged& judged : all) print_text("\n" + judged.certificate.print() + judged.arithmetic.print());
}

int run_verify_mugraph(const Arguments& arguments) {
  VerifyOptions options;
  Result<int64_t> trials = arguments.integer("trials", options.trials, 1, 40);
  if (!trials) return fail(arguments, trials.status());
  Result<int64_t> seed = arguments.integer("seed", 0, 0, INT64_MAX);
  if (!seed) return fail(arguments, seed.status());
  options.trials = static_cast<int>(*trials);
  options.seed = static_cast<uint64_t>(*seed);
  if (arguments.has("no-samples")) options.sample_budget = 0;
  Result<GraphFile> graph = read_graph(arguments.operands()[0]);
  if (!graph) return fail(arguments, graph.status());
  Result<std::vector<MuGraph>> mugraphs = read_mugraphs(arguments.operands()[1]);
  if (!mugraphs) return fail(arguments, mugraphs.status());
  if (arguments.has("print") || arguments.has("dot")) {
    std::vector<std::string> texts;
    for (const MuGraph& mugraph : *mugraphs)
      texts.push_back(arguments.has("dot") ? print_dot(mugraph) : print_mugraph(mugraph));
    if (arguments.json())
      print_json({{"mugraphs", texts}});
    else
      for (const std::string& text : texts) print_text(text);
    return kExitOk;
  }
  std::optional<Schedule> schedule;
  if (arguments.has("schedule")) {
    Result<Schedule> parsed = read_schedule(arguments.value("schedule"));
    if (!parsed) return fail(arguments, parsed.status());
    schedule = std::move(*parsed);
  }
  ArithmeticVerifier arithmetic(graph->graph);
  std::vector<Judged> all;
  bool accepted = true;
  for (const MuGraph& mugraph : *mugraphs) {
    const auto start = std::chrono::steady_clock::now();
    Judged judged{verify(graph->graph, mugraph, options), {}, 0};
    judged.arithmetic = schedule ? arithmetic.judge(mugraph, *schedule) : arithmetic.judge(mugraph);
    judged.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    accepted &= judged.verdict() == Verdict::accepted;
    all.push_back(std::move(judged));
  }
  print_judged(arguments, all);
  return accepted ? kExitOk : kExitNo;
}

}  // namespace

const Command Commands::kVerifyMuGraphCommand = {
    "verify-mugraph",
    "GRAPH FILE",
    2,
    2,
    "whether muGraphs compute a graph",
    "Judges the muGraphs in FILE against GRAPH (.qg) twice: by random evaluation in finite fields, all "
    "elements\n"
    "of a small instance and sampled elements at the full shape; and in the arithmetic of its kernels, on "
    "random\n"
    "and hostile inputs. FILE is a muGraph text (.qmu), or a JSON list of kernel graphs as Mirage stores "
    "them. The\n"
    "exit code is 0 only if all are accepted by both.\n",
    false,
    {{"certificate", 0, nullptr, "print what was checked, and how sure that is"},
     {"schedule", 0, "FILE", "the arithmetic is that of the kernels which this schedule makes"},
     {"trials", 0, "N", "trials at least, 1 to 40 (2)"},
     {"seed", 0, "N", "the seed of a certificate, which makes it again byte for byte; 0 draws one"},
     {"no-samples", 0, nullptr, "leave out the elements at the full shape"},
     {"print", 0, nullptr, "print the muGraphs as text instead"},
     {"dot", 0, nullptr, "print the muGraphs for Graphviz instead"}},
    run_verify_mugraph,
};

}  // namespace quern
