// What was checked about a muGraph, and what came out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quern {

enum class Verdict : uint8_t {
  accepted,   // equal in every trial
  rejected,   // different, for a reason that is given
  undecided,  // neither could be shown, for a reason that is given
};
const char* verdict_name(Verdict verdict);

struct Certificate {
  Verdict verdict = Verdict::undecided;
  // rejected: the first element that differs; undecided: why. Empty when accepted.
  std::string reason;
  std::string graph, mugraph;  // their names

  // The instance on which all elements of the outputs are compared: inputs as "x: f16[2, 6]".
  std::vector<std::string> inputs;
  bool shrunk = false;  // whether it is smaller than the graph
  int64_t elements = 0;
  std::vector<uint64_t> seeds;  // of the trials that were compared
  int redrawn = 0;              // trials in which something was divided by zero

  // Of the difference as a rational function in random values (inputs, exponentials, opaque results), and of
  // what exponentials are taken of.
  double degree = 0, exponent_degree = 0;
  double exponentials = 0, opaques = 0;  // how many, all of which must differ unless they are equal
  double choices = 0;                    // outcomes of max, min and comparisons, drawn anew in each trial
  // The probability that programs which differ in the algebra agree in all trials, for random exponentials
  // and opaque functions; where there are choices, for differences that show in half of their outcomes.
  double error_bound = 1;

  // At the full shape, when the instance is shrunk.
  int64_t samples = 0;  // elements that were compared
  std::string samples_note;

  // Some lines of text that name all of it.
  std::string print() const;
};

}  // namespace quern
