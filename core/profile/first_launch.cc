#include "core/profile/first_launch.h"

#include "core/base/facts.h"
#include "core/base/statistics.h"
#include "core/profile/rounds.h"
#include "core/profile/verdict_text.h"

namespace quern {

namespace {

constexpr int kRounds = 25;

}  // namespace

std::optional<WaitingPlan> faster_where_it_waits(Bench& bench, uint32_t id, const Plan& plan, bool tf32) {
  if (plan.launches.empty() || !plan.launches[0].overlaps) return {};
  WaitingPlan waiting{plan, {}};
  waiting.plan.launches[0].overlaps = false;
  const Result<uint32_t> other = bench.add(waiting.plan, tf32);
  if (!other) return {};
  const auto check = bench.check(*other);
  const uint32_t both[] = {id, *other};
  auto times = check && check->wrong.empty() ? bench.time(both, kRounds) : check.status();
  bench.remove(*other);
  if (!times || !drop_disturbed_rounds(*times) || !is_faster((*times)[1].cold, (*times)[0].cold)) return {};
  waiting.plan.certificate +=
      print_fact(kFirstLaunchFact, "waits for what is in front of it, beside which it took " +
                                       two_digits(median((*times)[0].cold)) + " us");
  waiting.time = std::move((*times)[1]);
  return waiting;
}

}  // namespace quern
