// quern search: what the superoptimizer finds for a graph, without a daemon.
#include "core/search/search.h"

#include <csignal>

#include "core/base/target.h"
#include "core/mugraph/text.h"
#include "core/optimize/explain.h"
#include "core/optimize/program_model.h"
#include "core/schedule/z3_optimizer.h"
#include "core/search/z3_oracle_maker.h"
#include "tools/constraints.h"
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

std::atomic<bool> interrupted{false};

Status read_oracle(const Arguments& arguments, OracleMaker& oracle) {
  const std::string name = arguments.has("oracle") ? arguments.value("oracle") : "lookup";
  if (name == "lookup") return {};
  if (name != "z3")
    return Status(ErrorCode::INVALID_ARGUMENT, "--oracle takes \"lookup\" or \"z3\", not \"" + name + "\"");
  Result<OracleMaker> maker = z3_oracle_maker();
  if (!maker) return maker.status();
  oracle = std::move(*maker);
  return {};
}

Result<SearchOptions> read_options(const Arguments& arguments) {
  SearchOptions options;
  struct Number {
    const char* name;
    int64_t fallback, low, high, value = 0;
  } numbers[] = {{"bound", options.bound, 1, 64},
                 {"kernels", options.kernels, 1, 2},
                 {"results", static_cast<int64_t>(options.results), 1, 1000},
                 {"threads", options.threads, 1, 256},
                 {"seed", static_cast<int64_t>(options.seed), 1, INT64_MAX},
                 {"limit", 30, 0, 1000000}};
  for (Number& number : numbers) {
    Result<int64_t> value = arguments.integer(number.name, number.fallback, number.low, number.high);
    if (!value) return value.status();
    number.value = *value;
  }
  options.bound = static_cast<int>(numbers[0].value);
  options.kernels = static_cast<int>(numbers[1].value);
  options.results = static_cast<size_t>(numbers[2].value);
  options.threads = static_cast<int>(numbers[3].value);
  options.seed = static_cast<uint64_t>(numbers[4].value);
  options.limit = std::chrono::seconds(numbers[5].value);
  Result<std::string> constraints = constraints_of(arguments);
  if (!constraints) return constraints.status();
  options.constraints = *parse_constraints(*constraints);
  if (Status status = read_oracle(arguments, options.oracle); !status.ok()) return status;
  if (!arguments.has("resume")) return options;
  Result<std::string> state = read_file(arguments.value("resume"));
  if (!state) return state.status();
  options.resume = std::move(*state);
  return options;
}

Json piece_json(const PieceReport& piece) {
  Json json = {{"outputs", piece.name}, {"operators", piece.operators}};
  if (!piece.outside.empty()) {
    json["outside"] = piece.outside;
    return json;
  }
  json.update(Json{{"shared", piece.shared},
                   {"nodes", piece.nodes},
                   {"classes", piece.classes},
                   {"saturation", stop_reason_name(piece.saturation.stop)},
                   {"admitted", piece.admitted},
                   {"seen", piece.generator.seen},
                   {"extended", piece.generator.extended},
                   {"dags", piece.generator.dags},
                   {"generator", generator_stop_name(piece.generator.stop)},
                   {"kept", piece.kept},
                   {"kernels", piece.kernels},
                   {"roles", piece.roles},
                   {"designs", piece.designs},
                   {"emitted", piece.emitted},
                   {"verified", piece.verified},
                   {"undecided", piece.undecided},
                   {"reasons", piece.reasons},
                   {"failures", piece.failures},
                   {"seconds", {piece.saturate_s, piece.generate_s, piece.design_s, piece.verify_s}}});
  if (piece.prefixes)
    json["oracle"] = {{"yes", piece.prefixes->yes},
                      {"no", piece.prefixes->no},
                      {"undecided", piece.prefixes->undecided},
                      {"beyond", piece.prefixes->beyond},
                      {"finished", piece.prefixes->finished},
                      {"seconds", piece.prefixes->seconds}};
  return json;
}

Json result_json(const SearchResult& result, const std::string& target) {
  Json pieces = Json::array(), candidates = Json::array();
  for (const PieceReport& piece : result.report.pieces) pieces.push_back(piece_json(piece));
  for (const Candidate& candidate : result.candidates) {
    Json bounds = Json::array();
    for (const Certificate& certificate : candidate.certificates) bounds.push_back(certificate.error_bound);
    candidates.push_back({{"us", candidate.us},
                          {"structure", candidate.structure},
                          {"operators", candidate.operators},
                          {"error_bounds", bounds},
                          {"mugraph", print_mugraph(candidate.mugraph)}});
  }
  return {{"target", target},
          {"seconds", result.report.seconds},
          {"timed_out", result.report.timed_out},
          {"cancelled", result.report.cancelled},
          {"out_of_memory", result.report.out_of_memory},
          {"finished", result.state.empty()},
          {"pieces", pieces},
          {"mugraphs", candidates}};
}

void print_result(const Arguments& arguments, const Graph& graph, const Target& target,
                  const SearchResult& result) {
  const auto optimizer = make_z3_optimizer(kChoiceLimit);
  if (arguments.has("explain")) {
    print_text(print_report(result));
  } else {
    Table table({"#", ">US", "STRUCTURE"});
    for (size_t i = 0; i < result.candidates.size(); ++i) {
      std::string structure = result.candidates[i].structure;
      for (size_t at; (at = structure.find('\n')) != std::string::npos;)
        structure.replace(at, 1, at + 1 == structure.size() ? "" : " | ");
      char us[32];
      std::snprintf(us, sizeof us, "%.2f", result.candidates[i].us);
      table.add({std::to_string(i), us, structure});
    }
    print_text(result.candidates.empty() ? print_report(result) : table.text());
  }
  for (size_t i = 0; i < result.candidates.size() && (i == 0 || arguments.has("all")); ++i) {
    const Candidate& candidate = result.candidates[i];
    print_text("\n# " + std::to_string(i) + "\n" + print_mugraph(candidate.mugraph));
    if (arguments.has("explain"))
      print_text("\n" + explain_candidate(graph, candidate, target, optimizer.get(), arguments.has("tf32")));
  }
}

int run_search(const Arguments& arguments) {
  Result<GraphFile> graph = read_graph(arguments.operands()[0]);
  if (!graph) return fail(arguments, graph.status());
  const std::string name = arguments.has("target") ? arguments.value("target") : "sm_90a";
  Result<const Target*> target = find_target(name);
  if (!target) return fail(arguments, target.status());
  Result<SearchOptions> options = read_options(arguments);
  if (!options) return fail(arguments, options.status());
  options->time_of =
      SubgraphModel(**target, {.allow_tf32 = arguments.has("tf32"), .threads = options->threads});
  // Interrupted once, the search ends with what it has.
  options->cancel = &interrupted;
  std::signal(SIGINT, [](int) { interrupted = true; });
  Result<SearchResult> result = search(graph->graph, **target, *options);
  std::signal(SIGINT, SIG_DFL);
  if (!result) return fail(arguments, result.status());
  if (arguments.has("state"))
    if (Status status = write_file(arguments.value("state"), result->state); !status.ok())
      return fail(arguments, status);
  if (arguments.json())
    print_json(result_json(*result, name));
  else if (arguments.has("dot"))
    print_text(result->candidates.empty() ? "" : print_dot(result->candidates[0].mugraph));
  else
    print_result(arguments, graph->graph, **target, *result);
  return result->candidates.empty() ? kExitNo : kExitOk;
}

}  // namespace

const Command Commands::kSearchCommand = {
    "search",
    "FILE",
    1,
    1,
    "what the superoptimizer finds for a graph",
    "Searches for muGraphs that compute the graph in FILE (.qg), verifies them, and prints them ranked by\n"
    "the cost model, then the best one as text. Nothing is compiled or stored, and no daemon is asked.\n"
    "Interrupted, or at its limit, it ends with what it has found. The exit code is 0 only if something\n"
    "was found. Constraints (--griddims to --franges) are those of Mirage's search configuration: kernels\n"
    "keep to one of the values given.\n",
    false,
    with_constraints(
        {{"target", 0, "TARGET", "architecture to search for (sm_90a)"},
         {"limit", 0, "SECONDS", "time for all of it (30)"},
         {"bound", 0, "N", "block operators of a piece at most (11)"},
         {"kernels", 0, "N", "custom kernels of a piece at most, 1 or 2 (2)"},
         {"results", 0, "N", "muGraphs of a piece at most (12)"},
         {"threads", 0, "N", "threads (2)"},
         {"seed", 0, "N", "of the verifier's random inputs (1)"},
         {"oracle", 0, "NAME", "who prunes prefixes: \"lookup\" in the e-graph, or \"z3\" (lookup)"},
         {"explain", 0, nullptr,
          "print what every step did, what the costs are made of, and what the choices of its blocks cost"},
         {"tf32", 0, nullptr, "explain schedules that compute f32 products in tf32, too"},
         {"all", 0, nullptr, "print all muGraphs as text, not only the best"},
         {"dot", 0, nullptr, "print the best muGraph for Graphviz instead"},
         {"state", 0, "FILE", "write where the search stands, empty if it is finished"},
         {"resume", 0, "FILE", "go on from there"}}),
    run_search,
};

}  // namespace quern
