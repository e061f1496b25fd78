#include "core/profile/kernel_race.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/statistics.h"
#include "core/mugraph/edit.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/profile/rounds.h"
#include "core/schedule/joined.h"
#include "core/verify/rounded_values.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 11;
constexpr double kCrowded = 1.1;  // times what the launches of a program take one by one

}  // namespace

size_t KernelRace::place_of(std::vector<MuGraph> kernels, bool leads) {
  const auto known = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
    return place.leads == leads && place.kernels == kernels;
  });
  if (known != places_.end()) return static_cast<size_t>(known - places_.begin());
  Place& place = places_.emplace_back();
  place.kernels = std::move(kernels);
  place.leads = leads;
  return places_.size() - 1;
}

size_t KernelRace::family_of(const Program& program, const MuGraph& mugraph, const Schedule& schedule) {
  const auto known = std::find_if(families_.begin(), families_.end(),
                                  [&](const Family& family) { return family.text == program.mugraph; });
  if (known != families_.end()) return static_cast<size_t>(known - families_.begin());
  Family& family = families_.emplace_back();
  family.text = program.mugraph;
  family.schedule = schedule;
  for (const auto& [first, end] : independent_neighbours(mugraph)) {
    if (!mugraph.kernels[first].custom) continue;
    std::vector<MuGraph> kernels;
    for (size_t k = first; k < end; ++k) kernels.push_back(kernel_alone(mugraph, mugraph.kernels[k]));
    family.places.emplace_back(first, place_of(std::move(kernels), first == 0));
  }
  return families_.size() - 1;
}

Status KernelRace::enter(size_t number, const Program& program, const Plan& plan, bool tf32,
                         const std::map<size_t, LaunchRange>& launches, bool may_time) {
  const auto mugraph = parse_mugraph(program.mugraph);
  const auto schedule = parse_schedule(program.schedule);
  if (!mugraph || !schedule || schedule->kernels.size() != mugraph->kernels.size() || launches.empty())
    return {};
  Entered entered{family_of(program, *mugraph, *schedule), {}, 0, false};
  Family& family = families_[entered.family];
  family.schedules.insert(print_schedule(*schedule));
  if (family.places.size() < 2 || broken_) return {};
  const auto start = Clock::now();
  Status status;
  size_t of_places = 0;
  for (const auto& [first, place_number] : family.places) {
    Place& place = places_[place_number];
    const size_t end = first + place.kernels.size();
    const Schedule own = kernels_of(*schedule, {first, end});
    entered.ways.push_back(print_schedule(own));
    const std::string& way = entered.ways.back();
    if (!launches.contains(first) || !launches.contains(end - 1)) continue;
    const LaunchRange range{launches.at(first).first, launches.at(end - 1).end};
    of_places += range.end - range.first;
    if (place.seen.contains(way) || !may_time) continue;
    status = race(place, way, own.kernels, plan, tf32, range);
    broken_ = status.code() == ErrorCode::WORKER;
    if (broken_ || status.code() == ErrorCode::NO_DEVICE) break;
  }
  entered.whole = of_places == plan.launches.size();
  entered_[number] = std::move(entered);
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return status.code() == ErrorCode::NO_DEVICE ? status : Status();
}

Status KernelRace::race(Place& place, const std::string& way, const std::vector<KernelSchedule>& schedules,
                        const Plan& plan, bool tf32, const LaunchRange& launches) {
  std::vector<uint32_t> ids;
  Status status;
  auto add = [&](const Plan& of, bool in_tf32, const LaunchRange& part) {
    const Result<uint32_t> id = bench_.add(of, in_tf32, part);
    if (id)
      ids.push_back(*id);
    else
      status = id.status();
  };
  add(plan, tf32, launches);
  const bool first = place.fastest.empty();
  if (!first) add(place.plan, place.tf32, place.launches);
  Result<std::vector<Bench::Time>> times = status.ok() ? bench_.time(ids, kRounds) : status;
  for (const uint32_t id : ids) bench_.remove(id);
  if (!times) return times.status();
  if (!drop_disturbed_rounds(*times)) return Status(ErrorCode::BUSY, "something else uses the GPU");
  place.seen[way] = median((*times)[0].cold);
  if (!first && !is_faster((*times)[0].cold, (*times)[1].cold)) return {};
  place.fastest = way;
  place.schedules = schedules;
  place.plan = plan;
  place.tf32 = tf32;
  place.launches = launches;
  return {};
}

void KernelRace::timed(size_t number, double us) {
  if (const auto found = entered_.find(number); found != entered_.end()) found->second.us = us;
}

bool KernelRace::crowd(size_t number, double best_us) const {
  const auto found = entered_.find(number);
  if (found == entered_.end() || !found->second.whole) return false;
  const auto in_turn = in_turn_us(found->second);
  return in_turn && found->second.us > kCrowded * *in_turn && *in_turn < kCrowded * best_us;
}

// Its kernels one by one. Nothing where not all are known.
std::optional<double> KernelRace::in_turn_us(const Entered& program) const {
  const Family& family = families_[program.family];
  if (program.ways.size() < family.places.size()) return {};
  double us = 0;
  for (size_t i = 0; i < family.places.size(); ++i) {
    const auto& seen = places_[family.places[i].second].seen;
    const auto own = seen.find(program.ways[i]);
    if (own == seen.end()) return {};
    us += own->second;
  }
  return us;
}

// With the fastest kernels instead of its own. Nothing where not all are known.
std::optional<double> KernelRace::expected_us(const Entered& program) const {
  const auto own = in_turn_us(program);
  if (program.us == 0 || !own) return {};
  double us = program.us - *own;
  for (const auto& [first, number] : families_[program.family].places) {
    const Place& place = places_[number];
    us += place.seen.at(place.fastest);
  }
  return us;
}

std::optional<KernelRace::Better> KernelRace::better_schedule() const {
  const Family* best = nullptr;
  double least = 0;
  for (const auto& [number, program] : entered_) {
    const auto us = expected_us(program);
    if (!us || (best && *us >= least)) continue;
    best = &families_[program.family];
    least = *us;
  }
  if (!best) return {};
  Schedule schedule = best->schedule;
  for (const auto& [first, number] : best->places)
    std::copy(places_[number].schedules.begin(), places_[number].schedules.end(),
              schedule.kernels.begin() + static_cast<ptrdiff_t>(first));
  if (best->schedules.contains(print_schedule(schedule))) return {};
  return Better{*best, std::move(schedule)};
}

std::optional<Program> KernelRace::best() const {
  const auto better = better_schedule();
  if (!better) return {};
  Program out{better->family.text, print_schedule(better->schedule), 0, ""};
  auto mugraph = parse_mugraph(out.mugraph);
  if (!mugraph) return {};
  note_rounded_values(graph_, *mugraph);
  const auto model = ProgramModel::make(graph_, *mugraph, target_);
  const Result<double> us = model ? model->us(better->schedule) : model.status();
  if (us && std::isfinite(*us)) out.modelled_ns = static_cast<uint64_t>(1000 * *us);
  return out;
}

}  // namespace quern
