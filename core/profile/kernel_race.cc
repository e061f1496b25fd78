#include "core/profile/kernel_race.h"

#include <algorithm>
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

constexpr int kRounds = 11;

// Block graphs that follow each other and do not depend on each other: their first, and how many.
std::vector<std::pair<size_t, size_t>> neighbours_of(const MuGraph& mugraph) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t k = 0; k < mugraph.kernels.size();) {
    const size_t count = std::max<size_t>(1, independent_kernels(mugraph, k));
    if (mugraph.kernels[k].custom) out.emplace_back(k, count);
    k += count;
  }
  return out;
}

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

KernelRace::Family& KernelRace::family_of(const Program& program, const MuGraph& mugraph,
                                          const Schedule& schedule) {
  const auto known = std::find_if(families_.begin(), families_.end(),
                                  [&](const Family& family) { return family.text == program.mugraph; });
  if (known != families_.end()) return *known;
  Family& family = families_.emplace_back();
  family.text = program.mugraph;
  family.schedule = schedule;
  for (const auto& [first, count] : neighbours_of(mugraph)) {
    std::vector<MuGraph> kernels;
    for (size_t k = first; k < first + count; ++k)
      kernels.push_back(kernel_alone(mugraph, mugraph.kernels[k]));
    family.places.emplace_back(first, place_of(std::move(kernels), first == 0));
  }
  return family;
}

Status KernelRace::enter(const Program& program, const Plan& plan, bool tf32,
                         const std::map<size_t, size_t>& launches) {
  const auto mugraph = parse_mugraph(program.mugraph);
  const auto schedule = parse_schedule(program.schedule);
  if (!mugraph || !schedule) return {};
  Family& family = family_of(program, *mugraph, *schedule);
  family.schedules.insert(print_schedule(*schedule));
  for (size_t i = 0; i < family.places.size() && family.places.size() > 1; ++i) {
    const auto [first, number] = family.places[i];
    Place& place = places_[number];
    const auto begin = schedule->kernels.begin() + static_cast<ptrdiff_t>(first);
    const std::vector<KernelSchedule> own(begin, begin + static_cast<ptrdiff_t>(place.kernels.size()));
    if (!place.seen.insert(print_schedule({own})).second || !launches.contains(first)) continue;
    // What is launched in front of the next block graph belongs to this one.
    LaunchRange range{launches.at(first), plan.launches.size()};
    if (i + 1 < family.places.size() && launches.contains(family.places[i + 1].first))
      range.end = launches.at(family.places[i + 1].first);
    Status status = race(place, own, plan, tf32, range);
    if (status.code() == ErrorCode::NO_DEVICE) return status;
  }
  return {};
}

Status KernelRace::race(Place& place, const std::vector<KernelSchedule>& schedules, const Plan& plan,
                        bool tf32, const LaunchRange& launches) {
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
  drop_disturbed_rounds(*times);
  if (!first && !is_faster((*times)[0].cold, (*times)[1].cold)) return {};
  place.fastest = schedules;
  place.plan = plan;
  place.tf32 = tf32;
  place.launches = launches;
  place.us = median((*times)[0].cold);
  return {};
}

Schedule KernelRace::best_schedule(const Family& family) const {
  Schedule out = family.schedule;
  for (const auto& [first, number] : family.places)
    std::copy(places_[number].fastest.begin(), places_[number].fastest.end(),
              out.kernels.begin() + static_cast<ptrdiff_t>(first));
  return out;
}

const KernelRace::Family* KernelRace::best_family() const {
  const Family* fastest = nullptr;
  double least = 0;
  for (const Family& family : families_) {
    double us = 0;
    for (const auto& [first, number] : family.places) us += places_[number].us;
    if (family.places.size() < 2 || (fastest && us >= least)) continue;
    fastest = &family;
    least = us;
  }
  return fastest && !fastest->schedules.contains(print_schedule(best_schedule(*fastest))) ? fastest : nullptr;
}

std::optional<Program> KernelRace::best() const {
  const Family* fastest = best_family();
  if (!fastest) return {};
  const Schedule schedule = best_schedule(*fastest);
  Program out;
  out.mugraph = fastest->text;
  out.schedule = print_schedule(schedule);
  auto mugraph = parse_mugraph(out.mugraph);
  if (!mugraph) return {};
  note_rounded_values(graph_, *mugraph);
  const auto model = ProgramModel::make(graph_, *mugraph, target_);
  if (!model) return {};
  const Result<double> us = model->us(schedule);
  if (us && std::isfinite(*us)) out.modelled_ns = static_cast<uint64_t>(1000 * *us);
  return out;
}

}  // namespace quern
