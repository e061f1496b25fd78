// quern explain: why a request hits or misses, what its key is made of, and where two keys differ.
#include <algorithm>

#include "tools/constraints.h"
#include "tools/diff.h"
#include "tools/output.h"
#include "tools/session.h"
#include "tools/timings.h"

namespace quern {

namespace {

Result<wire::ExplainReply> explain_file(const Arguments& arguments, Session& session,
                                        const std::string& path) {
  Result<GraphFile> file = read_graph(path);
  if (!file) return file.status();
  Result<std::string> target = choose_target(arguments);
  if (!target) return target.status();
  Result<std::string> constraints = constraints_of(arguments);
  if (!constraints) return constraints.status();
  return session.ask<wire::ExplainReply>(
      wire::Explain{file->text, *target, numerics_of(arguments), *constraints});
}

// The key text of a stored key or, asked with the same options, of a file.
Result<std::string> key_text(const Arguments& arguments, Session& session, const std::string& key_or_file) {
  if (std::optional<Hash128> key = parse_hash(key_or_file)) {
    Result<wire::ShowReply> shown = session.ask<wire::ShowReply>(wire::Show{*key});
    if (!shown) return shown.status();
    return std::move(shown->key_text);
  }
  Result<wire::ExplainReply> reply = explain_file(arguments, session, key_or_file);
  if (!reply) return reply.status();
  return std::move(reply->key_text);
}

int print_difference(const Arguments& arguments, Session& session, const std::string& a,
                     const std::string& b) {
  Result<std::string> one = key_text(arguments, session, a);
  if (!one) return fail(arguments, one.status());
  Result<std::string> other = key_text(arguments, session, b);
  if (!other) return fail(arguments, other.status());
  const std::string difference = diff_lines(*one, *other);
  if (arguments.json())
    print_json({{"same", difference.empty()}, {"diff", difference}});
  else
    print_text(difference.empty() ? "the keys are the same\n"
                                  : "--- " + a + "\n+++ " + b + "\n" + difference);
  return difference.empty() ? kExitOk : kExitNo;
}

// The report of a search whose candidates were measured since: their table says more.
std::string without_candidates(const std::string& report) {
  std::string kept;
  for (size_t start = 0; start < report.size();) {
    const size_t end = std::min(report.find('\n', start), report.size() - 1) + 1;
    const std::string line = report.substr(start, end - start);
    if (line.rfind("candidate ", 0) != 0 && line.rfind("block ", 0) != 0) kept += line;
    start = end;
  }
  return kept;
}

std::string us_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f us", us);
  return us > 0 ? text : "unknown";
}

// Of the baseline and of the plan that stands, by the model and as measured: a line each, and one for what
// won.
std::string times_text(const wire::ExplainReply& reply) {
  std::string text;
  for (const wire::ProgramRow& row : reply.programs)
    if (row.baseline || row.stands)
      text += (text.empty() ? "" : "\n") + program_name(row) + (row.stands ? " (stands)" : "") + ": " +
              us_text(static_cast<double>(row.modelled_ns) / 1e3) + " by the model";
  for (const DeviceTimings& device : join_timings(reply.programs, reply.timings))
    for (const TimedProgram& program : device.programs)
      if ((program.row.baseline || program.row.stands) && program.timed())
        text += "\n" + program_name(program.row) + (program.row.stands ? " (stands)" : "") + ": " +
                us_text(program.cold_us) + " cold, " + us_text(program.hot_us) + " hot on " + device.device;
  return text;
}

int print_explanation(const Arguments& arguments, const wire::ExplainReply& reply) {
  const std::string stored = reply.tier ? std::string(tier_name(static_cast<Tier>(reply.tier))) +
                                              ", generation " + std::to_string(reply.generation)
                                        : "nothing";
  if (arguments.json()) {
    print_json({{"key", to_hex(reply.key)},
                {"hit", reply.hit != 0},
                {"front_index", reply.front != 0},
                {"reason", reply.reason},
                {"job", job_state_name(reply.state)},
                {"generation", reply.generation},
                {"tier", reply.tier ? Json(tier_name(static_cast<Tier>(reply.tier))) : Json()},
                {"quarantine", reply.quarantine},
                {"search", reply.search},
                {"report", reply.report},
                {"measuring", reply.measuring},
                {"timings", timings_json(join_timings(reply.programs, reply.timings))},
                {"toolchain", reply.toolchain},
                {"key_text", reply.key_text}});
    return kExitOk;
  }
  std::vector<std::pair<std::string, std::string>> facts = {
      {"key", to_hex(reply.key)},
      {"answer", reply.hit ? "hit" : "miss"},
      {"why", reply.reason},
      {"stored", stored},
      {"search", reply.search},
      {"measuring", reply.measuring},
      {"times", times_text(reply)},
      {"job", job_state_name(reply.state)},
      {"request",
       reply.front ? "seen before: found without parsing the graph" : "not seen before in these bytes"},
      {"toolchain", reply.toolchain.empty() ? "none was ever seen" : reply.toolchain},
  };
  if (!reply.quarantine.empty()) facts.emplace_back("set aside", reply.quarantine);
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  const std::string timings = timings_text(join_timings(reply.programs, reply.timings));
  const std::string report = timings.empty() ? reply.report : without_candidates(reply.report);
  print_text(facts_text(facts) + (report.empty() ? "" : "\n" + report) +
             (timings.empty() ? "" : "\n" + timings));
  return kExitOk;
}

int run_explain(const Arguments& arguments) {
  const std::string operand = arguments.operands()[0];
  if (!arguments.has("diff") && !arguments.has("key") && parse_hash(operand))
    return fail(arguments,
                Status(ErrorCode::INVALID_ARGUMENT, "a stored key is a hit; see: quern show " + operand));
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  if (arguments.has("diff")) return print_difference(arguments, *session, operand, arguments.value("diff"));
  if (arguments.has("key")) {
    Result<std::string> text = key_text(arguments, *session, operand);
    if (!text) return fail(arguments, text.status());
    if (arguments.json())
      print_json({{"key_text", *text}});
    else
      print_text(*text);
    return kExitOk;
  }
  Result<wire::ExplainReply> reply = explain_file(arguments, *session, operand);
  return reply ? print_explanation(arguments, *reply) : fail(arguments, reply.status());
}

}  // namespace

const Command Commands::kExplainCommand = {
    "explain",
    "FILE",
    1,
    1,
    "why a graph hits or misses, and what its key is made of",
    "Says what \"quern get\" would do with the graph in FILE, and why, without doing it. Then it prints the\n"
    "results of the search for a better plan: a line for each candidate, the times of the baseline and of "
    "the\n"
    "stored plan by the cost model and as measured, and the result of each program that was tried. --key "
    "prints\n"
    "the text that the key is the hash of. --diff prints the lines in which two such texts differ; the exit "
    "code\n"
    "is 0 only if there are none. The other graph may be a file or a stored key.\n",
    true,
    with_constraints({{"target", 't', "TARGET", "GPU architecture, such as sm_90a (that of the first GPU)"},
                      {"tf32", 0, nullptr, "as in quern get"},
                      {"key", 'k', nullptr, "print the text that the key is the hash of"},
                      {"diff", 'd', "FILE|KEY", "compare with the key of another graph, or a stored one"}}),
    run_explain,
};

}  // namespace quern
