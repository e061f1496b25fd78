#include "core/verify/arithmetic_verdict.h"

#include <cstdio>

#include "core/base/facts.h"

namespace quern {

namespace {

std::string joined(const std::vector<std::string>& list) {
  std::string all;
  for (const std::string& item : list) all += (all.empty() ? "" : "; ") + item;
  return all;
}

}  // namespace

std::string ArithmeticVerdict::print() const {
  std::string text = print_fact("arithmetic", verdict_name(verdict));
  if (!reason.empty()) text += print_fact("arithmetic reason", reason);
  if (classes.empty()) return text;
  text += print_fact("arithmetic instance", std::string(shrunk ? "shrunk; " : "full; ") + joined(inputs));
  text += print_fact("arithmetic elements", std::to_string(elements));
  text += print_fact("arithmetic classes", joined(classes));
  text += print_fact("arithmetic draws", std::to_string(draws));
  text += print_fact("arithmetic seed", std::to_string(seed));
  if (!largest_class.empty()) {
    char share[32];
    std::snprintf(share, sizeof share, "%.2g", largest);
    text += print_fact("arithmetic error over bound", share + (" in " + largest_class));
  }
  return text;
}

}  // namespace quern
