// Z3 as the judge of the look-up.
//
// The theory, over one uninterpreted sort of terms:
//   the axioms of axioms.def, for each choice of labels; a condition "k not in y" is absent_k(y),
//   and one of x, y narrower: for some k absent_k of it and varies_k of another
//   absent_k of a term that is made of terms without k, or that binds k; varies_k of one that does not bind k
//   and is made of a term with k
//   part(f(x, y)) implies part(x) and part(y): Mirage's subexpression axioms for a fixed target
//   the operators of the program as ground equations, and part(goal)
// The question about an operator over terms t is whether the theory implies part(t).
//
//   yes        Z3 refutes theory + not part(t), instantiating axioms by E-matching.
//   no         The saturated e-graph, read as tables with one more element for all that is not in it, is a
//              model of the theory in which part(t) is false. Z3 checks once, for each sentence, that no
//              assignment of elements breaks it. A model is a proof for terms of any size: nothing is
//              bounded.
//   undecided  Neither within the limits; always when the e-graph is no model, as one that stopped at a
//   limit.
//
// Never linked into quernd.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "core/search/axiom.h"
#include "core/search/oracle.h"

namespace quern {

struct Z3Limits {
  std::chrono::milliseconds question{1000};   // one proof
  std::chrono::milliseconds sentence{20000};  // one check of a sentence in the model
  size_t model_classes = 1000;                // larger e-graphs are not tried as models
};

class Z3Oracle : public Oracle {
 public:
  // `program` is the e-graph before saturation, `saturated` a saturated copy of it. Both are only read here.
  Z3Oracle(const EGraph& program, std::span<const ClassId> goals, const EGraph& saturated,
           std::span<const Axiom> axioms, const Z3Limits& limits = {});
  ~Z3Oracle() override;
  Ruling admits(const ENode& op) override;
  // Whether a proof of the axioms implies that the operator is part of the target: yes or undecided, whatever
  // the model says.
  Ruling proves(const ENode& op);

  // Why the saturated e-graph is not taken as a model; empty when it is one.
  const std::string& not_a_model() const;

 private:
  class Judge;
  std::unique_ptr<Judge> judge_;
};

}  // namespace quern
