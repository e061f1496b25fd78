// What was checked about a muGraph, and what came out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

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
  std::string method;
  uint64_t seed =
      0;  // what all random choices come from: with it the verifier gives the same certificate again

  // The instance on which all elements of the outputs are compared: inputs as "x: f16[2, 6]".
  std::vector<std::string> inputs;
  bool shrunk = false;  // whether it is smaller than the graph
  int64_t elements = 0;
  std::vector<uint64_t> seeds;  // of the trials that were compared
  int redrawn = 0;              // trials in which something was divided by zero

  std::vector<uint32_t> primes;  // q of each of them; p = 2q + 1

  // Of the difference as a rational function in random values (inputs, exponentials, opaque results), and of
  // what exponentials are taken of.
  double degree = 0, exponent_degree = 0;
  double exponentials = 0, opaques = 0;  // how many, all of which must differ unless they are equal
  double choices = 0;                    // conditions and comparisons
  // The probability that programs which differ in the algebra, for the outcomes of conditions that the trials
  // drew, agree in all trials: for random exponentials and opaque functions.
  double error_bound = 1;

  // Trials in ordered values. A difference that one of them shows with probability f is missed with
  // probability (1 - f)^ordered_trials; for f = 1/2:
  int ordered_trials = 0;
  double ordered_miss = 0;
  std::vector<std::string> conditions;  // that vary with the inputs; both branches were seen in outputs
  int64_t unknown = 0;  // elements that an ordered trial could not compare

  // At the full shape, when the instance is shrunk.
  int64_t samples = 0;  // elements that were compared
  std::string samples_note;

  bool operator==(const Certificate&) const = default;
  // Lines of facts (core/base/facts.h), a field a line; fields that have their default are left out. `prefix`
  // stands before each name.
  std::string print(const std::string& prefix = "") const;
};

// What print() wrote, perhaps among other facts. CORRUPT when the verdict is missing or a value is none.
Result<Certificate> parse_certificate(std::string_view text);

}  // namespace quern
