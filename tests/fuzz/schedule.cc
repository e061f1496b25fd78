// Schedules and what a caller allows a search: what is read prints to something that reads as the
// same.
#include "core/schedule/schedule.h"

#include "core/search/constraints.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quern;
  const std::string_view text = text_of(data, size);
  if (const auto schedule = parse_schedule(text); schedule.ok()) {
    const auto again = parse_schedule(print_schedule(*schedule));
    must(again.ok() && *again == *schedule, "a printed schedule reads as the same");
  }
  if (const auto constraints = parse_constraints(text); constraints.ok())
    must(parse_constraints(print_constraints(*constraints)).ok(), "printed constraints can be read");
  return 0;
}
