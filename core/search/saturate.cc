#include "core/search/saturate.h"

#include "core/base/status.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

struct Match {
  int32_t axiom;
  bool reversed;
  ClassId id;
  Substitution substitution;
};

std::vector<Match> find_matches(const EGraph& egraph, std::span<const Axiom> axioms) {
  std::vector<Match> matches;
  std::vector<Substitution> found;
  for (ClassId id : egraph.classes())
    for (size_t a = 0; a < axioms.size(); ++a)
      for (bool reversed : {false, true}) {
        if (reversed && !axioms[a].both) continue;
        found.clear();
        match(egraph, reversed ? axioms[a].right : axioms[a].left, id, found);
        for (const Substitution& substitution : found)
          if (condition_holds(egraph, axioms[a], substitution))
            matches.push_back({static_cast<int32_t>(a), reversed, id, substitution});
      }
  return matches;
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::saturated:
      return "saturated";
    case StopReason::node_limit:
      return "node limit";
    case StopReason::iteration_limit:
      return "iteration limit";
    case StopReason::time_limit:
      return "time limit";
  }
  return "?";
}

SaturationReport saturate(EGraph& egraph, std::span<const Axiom> axioms, const SaturationLimits& limits) {
  SaturationReport report;
  report.merges_by_axiom.assign(axioms.size(), 0);
  const auto start = Clock::now();
  for (int iteration = 0;; ++iteration) {
    if (iteration == limits.iterations) {
      report.stop = StopReason::iteration_limit;
      break;
    }
    const size_t nodes_before = egraph.node_count();
    size_t merges = 0;
    bool stopped = false;
    for (const Match& match : find_matches(egraph, axioms)) {
      const Axiom& axiom = axioms[match.axiom];
      const ClassId other =
          instantiate(egraph, match.reversed ? axiom.left : axiom.right, match.substitution);
      Justification why{match.axiom, match.reversed, {}, {}, -1, -1};
      why.variables.assign(std::begin(match.substitution.variables), std::end(match.substitution.variables));
      why.labels.assign(std::begin(match.substitution.labels), std::end(match.substitution.labels));
      if (egraph.merge(match.id, other, std::move(why))) {
        ++merges;
        ++report.merges_by_axiom[match.axiom];
      }
      const bool full = egraph.node_count() >= limits.nodes;
      if (full || Clock::now() - start >= limits.time) {
        report.stop = full ? StopReason::node_limit : StopReason::time_limit;
        stopped = true;
        break;
      }
    }
    egraph.rebuild();
    report.iterations.push_back({egraph.node_count(), egraph.classes().size(), merges,
                                 std::chrono::duration<double>(Clock::now() - start).count()});
    if (stopped || (merges == 0 && egraph.node_count() == nodes_before)) break;
  }
#ifndef NDEBUG
  const std::string wrong = check_justifications(egraph, axioms);
  check(wrong.empty(), wrong.c_str());
#endif
  return report;
}

std::string check_justifications(const EGraph& egraph, std::span<const Axiom> axioms) {
  for (const Justification& why : egraph.justifications()) {
    if (egraph.find(why.left) != egraph.find(why.right)) return "a union was undone";
    if (why.axiom < 0) continue;  // congruence
    const Axiom& axiom = axioms[why.axiom];
    Substitution substitution;
    std::copy(why.variables.begin(), why.variables.end(), substitution.variables);
    std::copy(why.labels.begin(), why.labels.end(), substitution.labels);
    const ClassId left = find_instance(egraph, axiom.left, substitution);
    const ClassId right = find_instance(egraph, axiom.right, substitution);
    if (left < 0 || left != right || left != egraph.find(why.left) ||
        !condition_holds(egraph, axiom, substitution))
      return std::string("an application of ") + axiom.name + " does not hold";
  }
  return "";
}

}  // namespace quern
