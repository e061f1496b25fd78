// Axioms: equations between patterns, matched against an e-graph. The table is axioms.def.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/search/egraph.h"

namespace quern {

// A node of a pattern: a variable, or an operator over patterns.
struct Pattern {
  int variable = -1;  // x = 0, y = 1, z = 2, w = 3
  OpCode code = OpCode::constant;
  int label = -1;  // j = 0, k = 1; of reductions
  std::vector<Pattern> children;
};

struct Axiom {
  const char* name;
  Pattern left, right;
  int absent_label = -1, absent_from = -1;  // a condition: this label is not in this variable
  bool both;
  // Another, that no truth needs: one of these two variables does not vary along a label along which another
  // variable of the axiom does.
  int narrower[2] = {-1, -1};
};

inline constexpr int kPatternVariables = 4;
inline constexpr int kPatternLabels = 2;

// What variables and labels stand for; -1: nothing yet.
struct Substitution {
  ClassId variables[kPatternVariables] = {-1, -1, -1, -1};
  Label labels[kPatternLabels] = {-1, -1};
};

// The rows of axioms.def.
std::span<const Axiom> all_axioms();

// "mul(x, div(y, z))"; aborts on a text that does not parse, because only tables hold such texts.
Pattern parse_pattern(std::string_view text);

// All ways in which the pattern matches the class.
void match(const EGraph& egraph, const Pattern& pattern, ClassId id, std::vector<Substitution>& found);
// Whether the condition of the axiom holds.
bool condition_holds(const EGraph& egraph, const Axiom& axiom, const Substitution& substitution);
// The class of the pattern under a substitution: added if it is not there, or -1 from the constant version.
ClassId instantiate(EGraph& egraph, const Pattern& pattern, const Substitution& substitution);
ClassId find_instance(const EGraph& egraph, const Pattern& pattern, const Substitution& substitution);

}  // namespace quern
