// What a measuring says of its programs, to people and in certificates.
#pragma once

#include <string>

#include "core/base/plan.h"
#include "core/profile/measure.h"

namespace quern {

// A program that was checked, and timed in rounds of its own or shared ones.
struct Measured {
  const Plan& plan;
  const Bench::Check& check;
  const Bench::Time& time;
  double cold_us() const;
};

// The plan, of tier measured, with what was found out about it in its certificate in place of what an earlier
// measuring said. `baseline_us` 0: not known.
Plan measured_plan(const Measured& program, const std::string& device, double baseline_us);

// "program 3, modelled 2.00 us: 1.90 us cold, 1.80 us hot, the winner\n"
std::string timing_line(const Program& program, size_t number, const ProgramTiming& timing, bool tried,
                        bool won);

// "program 3 takes 6.00 us, what stood 7.00 us, the baseline 20.00 us"; `winner` empty: nothing is faster than what stands.
// Times of the others in microseconds, 0 where they are the same or not known.
std::string choice_text(const std::string& winner, double us, double stood_us, double baseline_us);

// "1.90", for times in microseconds and shares.
std::string two_digits(double value);

}  // namespace quern
