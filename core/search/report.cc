// The report of a search as text.
#include <cstdio>

#include "core/search/search.h"

namespace quern {

namespace {

std::string seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", s);
  return text;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string why_nothing(const PieceReport& piece) {
  if (piece.cancelled) return "the search was cancelled before it found a kernel for this piece";
  if (piece.timed_out) return "the time limit came before a kernel for this piece";
  if (piece.out_of_memory) return "there was not enough memory to find a kernel for this piece";
  if (piece.generator.dags == 0) return "no program within the bound on block operators computes this piece";
  if (piece.designs == 0) return "no kernel of this piece fits a block";
  if (piece.refused_maps > 0) return "no muGraph of this piece is allowed by the constraints";
  return "no muGraph of this piece was verified";
}

std::string print_piece(const PieceReport& piece) {
  std::string text = "piece " + piece.name + ", " + std::to_string(piece.operators) + " operators";
  if (!piece.outside.empty()) return text + ": left to the baseline, " + piece.outside + "\n";
  text += piece.shared ? ": found with an equal piece\n" : "\n";
  auto line = [&](const char* name, const std::string& what) {
    text += "  " + std::string(name) + std::string(12 - std::string_view(name).size(), ' ') + what + "\n";
  };
  auto count = [](size_t number, const char* what) { return std::to_string(number) + " " + what; };
  line("terms", count(piece.nodes, "nodes, ") + count(piece.classes, "classes, ") +
                    stop_reason_name(piece.saturation.stop) + " after " +
                    count(piece.saturation.iterations.size(), "rounds, ") + seconds(piece.saturate_s));
  for (size_t axiom = 0; axiom < piece.saturation.merges_by_axiom.size(); ++axiom)
    if (const size_t merges = piece.saturation.merges_by_axiom[axiom])
      line("", std::string(all_axioms()[axiom].name) + " " + std::to_string(merges));
  if (const auto& prefixes = piece.prefixes)
    line("oracle", count(prefixes->yes, "operators are parts of the target, ") +
                       count(prefixes->no, "are not, ") + count(prefixes->undecided, "undecided, ") +
                       count(prefixes->beyond, "parts beyond the e-graph, ") + seconds(prefixes->seconds));
  line("admitted",
       count(piece.admitted, "block operators"));
  line("generated", count(piece.generator.dags, "DAGs from ") +
                        count(piece.generator.seen, "operators tried, ") +
                        count(piece.generator.extended, "taken, ") +
                        generator_stop_name(piece.generator.stop) + ", " + seconds(piece.generate_s));
  line("designed", count(piece.kept, "DAGs kept, ") + count(piece.kernels, "kernels, ") +
                       count(piece.roles, "choices of roles, ") + count(piece.designs, "designs, ") +
                       seconds(piece.design_s));
  line("emitted",
       count(piece.emitted, "muGraphs, ") + count(piece.verified, "verified, ") + seconds(piece.verify_s));
  if (piece.undecided) line("", count(piece.undecided, "that the verifier could not decide"));
  if (piece.refused_maps) line("", count(piece.refused_maps, "refused by the constraints"));
  for (const std::string& reason : piece.reasons) line("", reason);
  for (const std::string& failure : piece.failures) line("FAILED", failure);
  const char* instead = piece.apart ? ": it is taken apart" : ": it is left to the baseline";
  if (piece.verified == 0)
    line("", why_nothing(piece) + instead);
  else if (piece.baseline_us > 0)
    line("modelled", fixed(piece.us) + " us, the baseline " + fixed(piece.baseline_us) + " us" +
                         (piece.apart || piece.us >= piece.baseline_us ? instead : ""));
  if (piece.timed_out) line("", "the time limit has cut this short");
  if (piece.cancelled) line("", "cancelled");
  if (piece.out_of_memory) line("", "there was not enough memory for all of it");
  return text;
}

}  // namespace

std::string print_report(const SearchResult& result) {
  std::string text;
  for (const PieceReport& piece : result.report.pieces) text += print_piece(piece);
  text += std::to_string(result.candidates.size()) + " muGraphs, " + seconds(result.report.seconds) + "\n";
  for (size_t i = 0; i < result.candidates.size(); ++i) {
    const Candidate& candidate = result.candidates[i];
    text += "\n#" + std::to_string(i) + "  " + fixed(candidate.us) + " us by the cost model\n" +
            candidate.structure;
    for (const Cost& cost : candidate.costs)
      text += "  " + std::to_string(cost.blocks) + " blocks: DRAM " + fixed(cost.dram_us) + ", L2 " +
              fixed(cost.l2_us) + ", arithmetic " + fixed(cost.compute_us) + ", fixed " +
              fixed(cost.fixed_us) + " us; " + fixed(cost.shared_bytes / 1024) + " KiB shared\n";
    text += candidate.operators;
  }
  return text;
}

}  // namespace quern
