#include "core/profile/waiting_launches.h"

#include <optional>

#include "core/base/facts.h"
#include "core/base/statistics.h"
#include "core/profile/rounds.h"
#include "core/profile/verdict_text.h"

namespace quern {

namespace {

constexpr int kRounds = 25, kRoundsOfOthers = 11;  // of the first launch, and of later ones

// The program with a launch that waits, if that is right and faster.
std::optional<TimedProgram> faster_where_it_waits(Bench& bench, const TimedProgram& program, size_t launch) {
  TimedProgram waits{0, program.plan, program.tf32, {}};
  waits.plan.launches[launch].overlaps = false;
  const Result<uint32_t> id = bench.add(waits.plan, waits.tf32);
  if (!id) return {};
  waits.id = *id;
  const auto check = bench.check(*id);
  const uint32_t both[] = {program.id, *id};
  auto times = check && check->wrong.empty() ? bench.time(both, launch == 0 ? kRounds : kRoundsOfOthers)
                                             : check.status();
  if (!times || !drop_disturbed_rounds(*times) || !is_faster((*times)[1].cold, (*times)[0].cold)) {
    bench.remove(*id);
    return {};
  }
  waits.plan.certificate +=
      print_fact(waiting_fact(launch), "waits for what is in front of it, beside which it took " +
                                           two_digits(median((*times)[0].cold)) + " us");
  waits.time = std::move((*times)[1]);
  return waits;
}

void settle(Bench& bench, TimedProgram& program, size_t launch) {
  if (launch >= program.plan.launches.size() || !program.plan.launches[launch].overlaps) return;
  auto waits = faster_where_it_waits(bench, program, launch);
  if (!waits) return;
  bench.remove(program.id);
  program = std::move(*waits);
}

}  // namespace

void settle_launches(Bench& bench, TimedProgram& program) {
  settle(bench, program, 0);
  settle_clusters(bench, program, [] { return true; });
}

// Other blocks are kept from taking more than their share of an SM wherever there are SMs (core/jit/spread.h).
void settle_clusters(Bench& bench, TimedProgram& program, const std::function<bool()>& may_go_on) {
  for (size_t launch = 1; launch < program.plan.launches.size() && may_go_on(); ++launch)
    if (program.plan.launches[launch].cluster.count() > 1) settle(bench, program, launch);
}

}  // namespace quern
