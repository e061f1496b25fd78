// The question by which a prefix is kept or dropped (Mirage, OSDI'25, section 4.3): is this operator, over
// terms that are parts of the target, itself part of something that equals the target under the axioms?
//
// Two who answer it: the look-up in the saturated e-graph, which the search uses, and Z3 (z3_oracle.h), which
// judges the look-up. A third answer, undecided, is never agreement.
#pragma once

#include "core/search/egraph.h"

namespace quern {

enum class Answer : uint8_t { yes, no, undecided };
const char* answer_name(Answer answer);

class Oracle {
 public:
  virtual ~Oracle() = default;
  // `op` is an operator over classes of the saturated e-graph; its children stand for any of their terms.
  virtual Answer admits(const ENode& op) = 0;
};

// Admitted is what is in the e-graph. What is not is refused only by an e-graph that saturation has finished:
// one that stopped at a limit does not know.
class LookupOracle : public Oracle {
 public:
  // The e-graph must outlive the oracle.
  LookupOracle(const EGraph& egraph, bool saturated) : egraph_(egraph), saturated_(saturated) {}
  Answer admits(const ENode& op) override;

 private:
  const EGraph& egraph_;
  const bool saturated_;
};

}  // namespace quern
