#include "core/profile/verdict_text.h"

#include <cstdio>

#include "core/base/facts.h"
#include "core/base/statistics.h"

namespace quern {

namespace {

std::string formatted(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string two_digits(double value) { return formatted("%.2f", value); }

double Measured::cold_us() const { return median(time.cold); }

Plan measured_plan(const Measured& program, const std::string& device, double baseline_us) {
  Plan plan = program.plan;
  plan.tier = Tier::measured;
  std::string facts;
  if (const auto known = parse_facts(plan.certificate); known.ok())
    for (const Fact& fact : *known)
      if (fact.name.rfind("measured", 0) != 0) facts += print_fact(fact.name, fact.value);
  const Bench::Check& check = program.check;
  facts += print_fact("measured", two_digits(program.cold_us()) + " us cold, " +
                                      two_digits(median(program.time.hot)) + " us hot, " +
                                      std::to_string(program.time.cold.size()) + " rounds");
  facts += print_fact("measured device", device);
  if (baseline_us > 0) facts += print_fact("measured baseline", two_digits(baseline_us) + " us cold");
  facts += print_fact("measured error", formatted("%.2e", check.error) + ", at most " +
                                            two_digits(check.largest) + " of an element's bound");
  facts += print_fact("measured inputs", check.inputs);
  facts += print_fact("measured elements",
                      std::to_string(check.compared) + " of " + std::to_string(check.elements) + " compared");
  plan.certificate = std::move(facts);
  return plan;
}

std::string timing_line(const Program& program, size_t number, const ProgramTiming& timing, bool tried,
                        bool won) {
  std::string line = program.is_baseline() ? "baseline" : "program " + std::to_string(number);
  line += ", modelled " + two_digits(static_cast<double>(program.modelled_ns) / 1e3) + " us: ";
  if (!tried)
    line += "not tried";
  else if (!timing.refusal.empty())
    line += "refused: " + timing.refusal;
  else
    line += two_digits(timing.cold_ns / 1e3) + " us cold, " + two_digits(timing.hot_ns / 1e3) + " us hot" +
            (won ? ", the winner" : "");
  return line + "\n";
}

const char* measure_end_name(MeasureEnd end) {
  switch (end) {
    case MeasureEnd::finished:
      return "finished";
    case MeasureEnd::budget:
      return "time was up";
    case MeasureEnd::cancelled:
      return "cancelled";
    case MeasureEnd::disturbed:
      return "disturbed";
    case MeasureEnd::lost:
      return "GPU lost";
  }
  return "?";
}

std::string choice_text(const std::string& winner, double us, double stood_us, double baseline_us) {
  std::string text = winner.empty() ? "nothing is faster than what stands, " + two_digits(us) + " us"
                                    : winner + " takes " + two_digits(us) + " us, " +
                                          (stood_us > 0 ? "what stood " + two_digits(stood_us) + " us"
                                                        : "and what stood is refused");
  if (baseline_us > 0) text += ", the baseline " + two_digits(baseline_us) + " us";
  return text;
}

}  // namespace quern
