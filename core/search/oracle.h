// The question by which a prefix is kept or dropped (Mirage, OSDI'25, section 4.3): is this operator, over
// terms that are parts of the target, itself part of something that equals the target under the axioms?
//
// Two who answer it: the look-up in the saturated e-graph, which the search uses, and Z3 (z3_oracle.h), which
// judges the look-up. A third ruling, undecided, is never agreement.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <span>

#include "core/search/axiom.h"

namespace quern {

enum class Ruling : uint8_t { yes, no, undecided };

class Oracle {
 public:
  virtual ~Oracle() = default;
  // `op` is an operator over classes of the saturated e-graph; its children stand for any of their terms.
  virtual Ruling admits(const ENode& op) = 0;
};

// Admitted is what is in the e-graph. What is not is refused only by an e-graph that saturation has finished:
// one that stopped at a limit does not know.
class LookupOracle : public Oracle {
 public:
  // The e-graph must outlive the oracle.
  LookupOracle(const EGraph& egraph, bool saturated) : egraph_(egraph), saturated_(saturated) {}
  Ruling admits(const ENode& op) override;

 private:
  const EGraph& egraph_;
  const bool saturated_;
};

// Makes an oracle for a program: its e-graph before saturation, its goals, and a saturated copy.
using OracleMaker = std::function<std::unique_ptr<Oracle>(
    const EGraph& program, std::span<const ClassId> goals, const EGraph& saturated)>;

// All operators that prefixes can have, by what an oracle says: from the leaves up, every operator of the
// target's vocabulary over classes that prefixes compute is asked about once.
struct Prefixes {
  struct Less {
    bool operator()(const ENode& a, const ENode& b) const {
      return std::tie(a.code, a.index, a.number, a.children) <
             std::tie(b.code, b.index, b.number, b.children);
    }
  };
  std::set<ENode, Less> admitted;  // with canonical children
  size_t yes = 0, no = 0;
  size_t undecided = 0;  // kept where the e-graph has them, as a solver that does not know prunes nothing
  size_t beyond = 0;  // yes, but not in the e-graph, which stopped at a limit: the search has no use for them
  bool finished = true;  // before the deadline
  double seconds = 0;
};
Prefixes grow_prefixes(const EGraph& saturated, Oracle& oracle,
                       std::chrono::steady_clock::time_point deadline,
                       const std::function<bool()>& cancelled);

}  // namespace quern
