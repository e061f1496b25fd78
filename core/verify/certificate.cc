#include "core/verify/certificate.h"

#include <cstdio>

#include "core/lang/attrs.h"
#include "core/verify/field.h"

namespace quern {

namespace {

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

template <class T, class F>
std::string joined(const std::vector<T>& list, F text) {
  std::string all;
  for (const T& item : list) all += (all.empty() ? "" : ", ") + text(item);
  return all;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::accepted:
      return "accepted";
    case Verdict::rejected:
      return "rejected";
    case Verdict::undecided:
      return "undecided";
  }
  return "";
}

std::string Certificate::print() const {
  std::string text = std::string("verdict: ") + verdict_name(verdict) + "\n";
  if (!reason.empty()) text += "reason: " + reason + "\n";
  text += "graph: " + graph + "\nmugraph: " + mugraph + "\n";
  if (inputs.empty()) return text;
  text += "method: random evaluation mod p = " + std::to_string(kFieldP) +
          " and q = " + std::to_string(kFieldQ) + ", exp(x) = w^x\n";
  text += std::string("instance: ") + (shrunk ? "shrunk, " : "full, ") +
          joined(inputs, [](const std::string& input) { return input; }) + "; " + std::to_string(elements) +
          " elements of outputs\n";
  text += "trials: " + std::to_string(seeds.size()) + ", seeds " +
          (seeds.size() > 4 ? hexadecimal(seeds[0]) + " to " + hexadecimal(seeds.back())
                            : joined(seeds, hexadecimal)) +
          "; " + std::to_string(redrawn) + " redrawn\n";
  text += "degree: " + print_number(degree) + ", of exponents " + print_number(exponent_degree) + "; " +
          print_number(exponentials) + " exponentials, " + print_number(opaques) + " opaque values, " +
          print_number(choices) + " choices\n";
  text += "error bound: " + scientific(error_bound) + "\n";
  if (shrunk)
    text += "full shape: " + std::to_string(samples) + " elements compared" +
            (samples_note.empty() ? "" : "; " + samples_note) + "\n";
  return text;
}

}  // namespace quern
