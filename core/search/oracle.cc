#include "core/search/oracle.h"

namespace quern {

const char* answer_name(Answer answer) {
  switch (answer) {
    case Answer::yes:
      return "yes";
    case Answer::no:
      return "no";
    case Answer::undecided:
      return "undecided";
  }
  return "?";
}

Answer LookupOracle::admits(const ENode& op) {
  if (egraph_.lookup(op) >= 0) return Answer::yes;
  return saturated_ ? Answer::no : Answer::undecided;
}

}  // namespace quern
