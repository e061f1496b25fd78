#include "core/verify/certificate.h"

#include <charconv>

#include "core/base/facts.h"
#include "core/lang/attrs.h"

namespace quern {

namespace {

constexpr Verdict kVerdicts[] = {Verdict::accepted, Verdict::rejected, Verdict::undecided};

// The fields in the order of their lines: a row a field is all that its text takes.
template <class Visit>
void for_each_field(Visit visit) {
  visit("reason", &Certificate::reason);
  visit("graph", &Certificate::graph);
  visit("mugraph", &Certificate::mugraph);
  visit("method", &Certificate::method);
  visit("seed", &Certificate::seed);
  visit("inputs", &Certificate::inputs);
  visit("shrunk", &Certificate::shrunk);
  visit("elements", &Certificate::elements);
  visit("seeds of trials", &Certificate::seeds);
  visit("redrawn", &Certificate::redrawn);
  visit("primes q", &Certificate::primes);
  visit("degree", &Certificate::degree);
  visit("degree of exponents", &Certificate::exponent_degree);
  visit("exponentials", &Certificate::exponentials);
  visit("opaque values", &Certificate::opaques);
  visit("choices", &Certificate::choices);
  visit("error bound", &Certificate::error_bound);
  visit("ordered trials", &Certificate::ordered_trials);
  visit("missed with probability", &Certificate::ordered_miss);
  visit("unknown elements", &Certificate::unknown);
  visit("conditions seen", &Certificate::conditions);
  visit("elements at the full shape", &Certificate::samples);
  visit("at the full shape", &Certificate::samples_note);
}

// ---- values as text, and back: false when the text is none ----

std::string print_value(const std::string& value) { return value; }
std::string print_value(bool value) { return value ? "true" : "false"; }
std::string print_value(double value) { return print_number(value); }
template <class Integer>
requires std::is_integral_v<Integer> std::string print_value(Integer value) { return std::to_string(value); }
template <class T>
std::string print_value(const std::vector<T>& list) {
  std::string all;
  for (const T& item : list) all += (all.empty() ? "" : "; ") + print_value(item);
  return all;
}

bool read_value(std::string_view text, std::string& value) {
  value = text;
  return true;
}
bool read_value(std::string_view text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
template <class Number>
requires std::is_arithmetic_v<Number>
bool read_value(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
template <class T>
bool read_value(std::string_view text, std::vector<T>& list) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find("; ", at), text.size());
    if (!read_value(text.substr(at, end - at), list.emplace_back())) return false;
    at = end + 2;
  }
  return true;
}

Status corrupt(std::string message) { return Status(ErrorCode::CORRUPT, std::move(message)); }

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

std::string Certificate::print(const std::string& prefix) const {
  std::string text = print_fact(prefix + "verdict", verdict_name(verdict));
  for_each_field([&](const char* name, auto member) {
    if (this->*member != Certificate().*member) text += print_fact(prefix + name, print_value(this->*member));
  });
  return text;
}

Result<Certificate> parse_certificate(std::string_view text) {
  Result<std::vector<Fact>> facts = parse_facts(text);
  if (!facts) return facts.status();
  Certificate certificate;
  const std::string* verdict = find_fact(*facts, "verdict");
  if (!verdict) return corrupt("the certificate has no verdict");
  for (Verdict known : kVerdicts)
    if (*verdict == verdict_name(known)) certificate.verdict = known;
  if (*verdict != verdict_name(certificate.verdict)) return corrupt("\"" + *verdict + "\" is no verdict");
  Status status;
  for_each_field([&](const char* name, auto member) {
    const std::string* value = find_fact(*facts, name);
    if (value && !read_value(*value, certificate.*member) && status.ok())
      status = corrupt(std::string(name) + ": \"" + *value + "\" is no value of it");
  });
  if (!status.ok()) return status;
  return certificate;
}

}  // namespace quern
