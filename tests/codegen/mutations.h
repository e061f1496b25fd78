// Faults planted in an emitted program, which the emulator must refuse.
#pragma once

#include "tests/codegen/mugraph_cases.h"

namespace quern {

struct Mutation {
  const char *right, *wrong;        // every `right` in the text becomes `wrong`
  std::vector<const char*> rules;   // the message has one of them; which one depends on the order of threads
  void (*change)(Plan&) = nullptr;  // of the plan; `right` may be empty then
};

// Fails the test if the emulator refuses the case's program, or if it accepts a mutation or refuses it for
// another reason, in any of five orders of threads.
void are_found(const MuGraphCase& test, const std::vector<Mutation>& mutations);

}  // namespace quern
