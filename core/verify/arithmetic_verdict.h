// What came out when a program was interpreted in the arithmetic of its kernels.
#pragma once

#include "core/verify/certificate.h"

namespace quern {

struct ArithmeticVerdict {
  Verdict verdict = Verdict::undecided;
  std::string reason;  // undecided: why
  // The instance: inputs as "x: f16[2, 6]", whether it is smaller than the graph, elements of outputs.
  std::vector<std::string> inputs;
  bool shrunk = false;
  int64_t elements = 0;
  // What was run, in order: classes of inputs, each with as many draws from seed on.
  std::vector<std::string> classes;
  uint64_t seed = 0;
  int draws = 0;
  // The largest error over the bound of its element, and in which class; above 1 only if rejected.
  double largest = 0;
  std::string largest_class;

  // Lines of facts (core/base/facts.h), all beginning with "arithmetic".
  std::string print() const;
};

}  // namespace quern
