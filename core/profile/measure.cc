#include "core/profile/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "core/base/facts.h"
#include "core/base/statistics.h"
#include "core/profile/kernel_race.h"
#include "core/profile/rounds.h"
#include "core/profile/verdict_text.h"
#include "core/profile/waiting_launches.h"
#include "core/profile/workshop.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuickRounds = 3, kFinalRounds = 25, kTries = 3;
constexpr double kFarBehind = 1.4;  // times the best after the quick rounds
constexpr size_t kMostFinalists = 8;
// After so many programs, what the model says of the others is judged by the most pessimistic that it was.
constexpr size_t kEnoughToJudgeModel = 20;
// And the model may be more wrong about what was not timed than about what was.
constexpr double kRoom = 0.9;
// Of the time so far, what may go to kernels by themselves.
constexpr double kKernelShare = 0.4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Race {
 public:
  Race(const Graph& graph, const Target& target, std::vector<Program> programs, Compiler* compiler,
       const MeasureOptions& options)
      : options_(options),
        graph_(graph),
        target_(target),
        compiles_(compiler != nullptr),
        programs_(std::move(programs)),
        timings_(programs_.size()),
        workshop_(graph, target, programs_, compiler,
                  {options.jobs, options.allow_tf32, options.make_solver}) {
    for (size_t i = 0; i < programs_.size(); ++i) timings_[i].program = programs_[i].name();
  }

  // programs_[0] is the baseline's, and what stands is it or programs_[1].
  MeasureResult run(Bench& bench) {
    bench_ = &bench;
    kernels_.emplace(graph_, target_, bench);
    start_ = Clock::now();
    result_.device = bench_->device();
    if (is_quiet()) {
      admit_anchors();
      if (going()) try_candidates();
    }
    if (going()) try_best_kernels();
    workshop_.stop();  // the finals are timed in quiet
    if (going()) decide();
    finish();
    return std::move(result_);
  }

 private:
  struct Entrant {
    size_t number = 0;
    uint32_t id = 0;
    Plan plan;
    bool tf32 = false;
    Bench::Check check;
    Bench::Time time;  // of the last rounds
    double cold() const { return median(time.cold); }
  };

  // ---- the end ----

  bool going() {
    if (!over_ && options_.cancel && *options_.cancel) end(MeasureEnd::cancelled, "it was cancelled");
    return !over_;
  }
  void end(MeasureEnd how, std::string reason) {
    over_ = true;
    result_.end = how;
    result_.reason = std::move(reason);
  }
  // Left of the budget when the finals have what they need.
  double seconds_left() const {
    const double finals = per_round_ * static_cast<double>(kFewestRounds * (kMostFinalists + 2) * 2);
    return std::chrono::duration<double>(options_.budget).count() - seconds_since(start_) - finals;
  }
  Clock::time_point deadline() const { return start_ + options_.budget; }

  bool is_quiet() {
    if (options_.most_disturbance >= 1) return true;
    const Result<double> disturbance = bench_->disturbance();
    if (!disturbance) {
      end(MeasureEnd::lost, disturbance.status().message());
      return false;
    }
    if (*disturbance <= options_.most_disturbance) return true;
    end(MeasureEnd::disturbed, "others use " + two_digits(100 * *disturbance) + " % of the GPU");
    return false;
  }

  // ---- programs come in ----

  void refuse(size_t program, const std::string& why) {
    timings_[program].refusal = why.empty() ? "refused" : why;
    tried_.insert(program);
  }
  // Of a call of the bench for one program. A GPU that is gone says nothing about it.
  void refuse(size_t program, const Status& status) {
    if (status.code() == ErrorCode::NO_DEVICE)
      end(MeasureEnd::lost, status.message());
    else
      refuse(program, status.message());
  }

  // Loads and checks it; null if it may not run.
  Entrant* admit(MadeProgram made) {
    if (!made.plan) return refuse(made.number, made.plan.status()), nullptr;
    auto entrant = std::make_unique<Entrant>();
    entrant->number = made.number;
    entrant->plan = std::move(*made.plan);
    entrant->tf32 = made.tf32;
    const Result<uint32_t> id = bench_->add(entrant->plan, entrant->tf32);
    if (!id) return refuse(made.number, id.status()), nullptr;
    entrant->id = *id;
    Result<Bench::Check> check = bench_->check(*id);
    if (!check || !check->wrong.empty()) {
      bench_->remove(*id);
      if (!check)
        refuse(made.number, check.status());
      else
        refuse(made.number, "wrong: " + check->wrong);
      return nullptr;
    }
    entrant->check = std::move(*check);
    timings_[made.number].error = entrant->check.error;
    tried_.insert(made.number);
    entrants_.push_back(std::move(entrant));
    race_kernels(*entrants_.back(), made.launches);
    return entrants_.back().get();
  }

  void race_kernels(const Entrant& entrant, const std::map<size_t, LaunchRange>& launches) {
    const bool may_time = kernels_->seconds() <= kKernelShare * seconds_since(start_);
    const Status status = kernels_->enter(entrant.number, programs_[entrant.number], entrant.plan,
                                          entrant.tf32, launches, may_time);
    if (!status.ok()) end(MeasureEnd::lost, status.message());
  }

  void admit_anchors() {
    const bool own = programs_[0].name() != options_.standing;
    for (size_t i = 0; i <= own && going(); ++i) {
      auto made = workshop_.next(i, Clock::time_point::max());
      Entrant* entrant = made ? admit(std::move(*made)) : nullptr;
      if (i == 0) baseline_ = entrant;
      standing_ = entrant;
      report_progress();
    }
    if (!standing_) standing_ = baseline_;
    if (!going()) return;
    // Buffers are made the first time, which says nothing of how long the next rounds take.
    for (int i = 0; i < 2 && going() && (standing_ || baseline_); ++i)
      if (time(with_anchors({}), kQuickRounds)) best_ = fastest(with_anchors({}));
  }

  void try_candidates() {
    while (going()) {
      if (seconds_left() <= (kernels_->knows_better() ? longest_making_ : 0)) {
        budget_spent_ = true;
        return;
      }
      if (hopeless()) return;
      auto made = workshop_.next(std::min(deadline(), Clock::now() + std::chrono::milliseconds(200)));
      if (!made) {
        if (tried_.size() == programs_.size()) return;
        continue;  // compilers are at work
      }
      try_one(std::move(*made));
    }
  }
  void try_one(MadeProgram made) {
    longest_making_ = std::max(longest_making_, made.seconds);
    Entrant* entrant = admit(std::move(made));
    if (entrant && going()) race(entrant);
    report_progress();
    keep_the_best();
  }

  // A program of the kernels that won by themselves. Whoever is told of progress does not know it yet.
  void try_best_kernels() {
    workshop_.end();
    if (!compiles_ || seconds_left() < longest_making_ / 2) return;
    std::optional<Program> program = kernels_->best();
    if (!program) return;
    MadeProgram made = workshop_.make(*program, programs_.size());
    workshop_.stop();
    combined_ = programs_.size();
    timings_.emplace_back().program = program->name();
    programs_.push_back(std::move(*program));
    published_ = true;
    try_one(std::move(made));
  }
  // Has launches wait where that is faster: in the end all that may gain, before that clusters, while there is time.
  void settle(Entrant& entrant, bool in_the_end) {
    TimedProgram settled{entrant.id, entrant.plan, entrant.tf32, {}};
    in_the_end ? settle_launches(*bench_, settled)
               : settle_clusters(*bench_, settled, [&] { return going() && seconds_left() > 0; });
    entrant.id = settled.id;
    entrant.plan = std::move(settled.plan);
    if (!settled.time.cold.empty()) note_time(entrant, std::move(settled.time));
  }

  // The quick rounds of a program that is right, beside the best so far.
  void race(Entrant* entrant) {
    std::vector<Entrant*> pair{entrant};
    if (best_) pair.insert(pair.begin(), best_);
    if (!time(pair, kQuickRounds) || !is_here(entrant)) return;
    if (kernels_->crowd(entrant->number, best_ ? best_->cold() : entrant->cold())) settle(*entrant, false);
    note_model(*entrant);
    if (best_ && entrant->cold() > kFarBehind * best_->cold()) return drop(entrant);
    if (best_ && !(entrant->cold() < best_->cold())) return;
    best_ = entrant;
    if (!published_) publish_early(entrant);
  }

  void publish_early(Entrant* entrant) {
    if (!time(with_anchors({entrant}), kFewestRounds + 2) || !is_here(entrant)) return;
    if (!beats_anchors(*entrant)) return;
    published_ = true;
    report_progress(entrant);
  }

  // None of the programs that are left can be better, even if the model is as wrong about it as it was about
  // any.
  bool hopeless() {
    if (tried_.size() == programs_.size()) return true;
    if (timed_ < kEnoughToJudgeModel || !best_) return false;
    for (size_t i = 0; i < programs_.size(); ++i) {
      if (tried_.count(i)) continue;
      const double modelled = static_cast<double>(programs_[i].modelled_ns) / 1e3;
      if (modelled == 0 || modelled * pessimism_ * kRoom < best_->cold()) return false;
    }
    why_enough_ = "the model expects nothing better of the others";
    return true;
  }
  void note_model(const Entrant& entrant) {
    const double modelled = static_cast<double>(programs_[entrant.number].modelled_ns) / 1e3;
    if (modelled == 0) return;
    ++timed_;
    pessimism_ = std::min(pessimism_, entrant.cold() / modelled);
  }

  // ---- timing ----

  bool is_here(const Entrant* entrant) const {
    return std::any_of(entrants_.begin(), entrants_.end(),
                       [&](const auto& each) { return each.get() == entrant; });
  }
  void drop(Entrant* entrant) {
    bench_->remove(entrant->id);
    if (entrant == baseline_) baseline_ = nullptr;
    if (entrant == standing_) standing_ = baseline_;
    if (entrant == best_) best_ = nullptr;
    std::erase_if(entrants_, [&](const auto& each) { return each.get() == entrant; });
  }

  // Rounds of these, which none has disturbed. False when there are none; what cannot be timed is dropped.
  bool time(std::vector<Entrant*> together, int rounds) {
    for (int tries = 0; tries < kTries && going();) {
      std::vector<uint32_t> ids;
      for (const Entrant* each : together) ids.push_back(each->id);
      const auto start = Clock::now();
      Result<std::vector<Bench::Time>> times = bench_->time(ids, rounds);
      if (!times && times.status().code() == ErrorCode::NO_DEVICE) {
        end(MeasureEnd::lost, times.status().message());
        return false;
      }
      if (!times) {
        drop_culprits(together, times.status());
        if (together.empty()) return false;
        continue;
      }
      // The first time of a program takes longer, which says nothing of the next.
      per_round_ = std::min(per_round_, seconds_since(start) / static_cast<double>(rounds * ids.size()));
      ++tries;
      const bool quiet = drop_disturbed_rounds(*times);
      if (!quiet && options_.most_disturbance < 1) continue;
      for (size_t i = 0; i < together.size(); ++i) note_time(*together[i], std::move((*times)[i]));
      return true;
    }
    if (!over_) end(MeasureEnd::disturbed, "the timings vary too much: something else uses the GPU");
    return false;
  }
  void note_time(Entrant& entrant, Bench::Time time) {
    entrant.time = std::move(time);
    ProgramTiming& timing = timings_[entrant.number];
    timing.cold_ns = 1e3 * entrant.cold();
    timing.hot_ns = 1e3 * median(entrant.time.hot);
    timing.samples = static_cast<uint32_t>(entrant.time.cold.size());
    kernels_->timed(entrant.number, entrant.cold());
  }
  // One of several hung or faulted: each by itself shows which.
  void drop_culprits(std::vector<Entrant*>& together, const Status& status) {
    std::vector<Entrant*> right;
    for (Entrant* each : together) {
      Status own = status;
      if (together.size() > 1 && !over_) own = bench_->time({&each->id, 1}, 1).status();
      if (own.ok() && right.size() + 1 < together.size()) {
        right.push_back(each);
        continue;
      }
      refuse(each->number, own.ok() ? status : own);
      drop(each);
    }
    together = std::move(right);
  }

  std::vector<Entrant*> with_anchors(std::vector<Entrant*> others) const {
    for (Entrant* anchor : {standing_, baseline_})
      if (anchor && std::find(others.begin(), others.end(), anchor) == others.end())
        others.insert(others.begin(), anchor);
    return others;
  }
  static Entrant* fastest(const std::vector<Entrant*>& of) {
    return *std::min_element(of.begin(), of.end(),
                             [](const Entrant* a, const Entrant* b) { return a->cold() < b->cold(); });
  }
  // By rounds that they shared.
  bool beats_anchors(const Entrant& entrant) const {
    for (const Entrant* anchor : {standing_, baseline_})
      if (anchor && !is_faster(entrant.time.cold, anchor->time.cold)) return false;
    return true;
  }

  // The fastest of those that are neither the baseline nor what stands.
  std::vector<Entrant*> challengers() const {
    std::vector<Entrant*> out;
    for (const auto& each : entrants_)
      if (each.get() != baseline_ && each.get() != standing_ && !each->time.cold.empty())
        out.push_back(each.get());
    std::sort(out.begin(), out.end(),
              [](const Entrant* a, const Entrant* b) { return a->cold() < b->cold(); });
    return out;
  }
  void keep_the_best() {
    const std::vector<Entrant*> sorted = challengers();
    for (size_t i = kMostFinalists; i < sorted.size(); ++i) drop(sorted[i]);
  }

  // ---- the finals ----

  // Fewer programs and more rounds, stage by stage.
  void decide() {
    const struct {
      size_t programs;
      int rounds;
    } stages[] = {{kMostFinalists, kFewestRounds}, {4, 11}, {2, kFinalRounds}};
    std::vector<Entrant*> last = challengers();
    for (const auto& stage : stages) {
      const bool final = &stage == std::end(stages) - 1;
      if (last.size() > stage.programs) last.resize(stage.programs);
      const double left = std::chrono::duration<double>(options_.budget).count() - seconds_since(start_);
      std::vector<Entrant*> together = with_anchors(last);
      if (together.empty()) break;
      const double affordable = left / (per_round_ * static_cast<double>(together.size()));
      if (!final && affordable < 4.0 * stage.rounds) continue;  // what is left is for the last stage
      const int rounds = std::clamp(static_cast<int>(affordable), kFewestRounds, stage.rounds);
      if (!time(together, rounds)) return;
      std::erase_if(last, [&](const Entrant* each) { return !is_here(each); });
      std::sort(last.begin(), last.end(),
                [](const Entrant* a, const Entrant* b) { return a->cold() < b->cold(); });
    }
    choose(last);
  }

  void choose(const std::vector<Entrant*>& challengers) {
    Entrant* winner = standing_;
    if (baseline_ && winner && winner != baseline_ && is_faster(baseline_->time.cold, winner->time.cold))
      winner = baseline_;
    if (!challengers.empty() && beats_anchors(*challengers[0])) winner = challengers[0];
    if (!winner) {
      result_.reason = "no program is right on this GPU";
      return;
    }
    winner_ = winner->number;
    settle(*winner, true);
    result_.cold_us = winner->cold();
    result_.replaces = programs_[winner->number].name() != options_.standing;
    result_.plan = encode_plan(measured(*winner));
    auto us_of = [&](const Entrant* other) { return other && other != winner ? other->cold() : 0; };
    result_.reason = choice_text(result_.replaces ? name_of(*winner) : "", winner->cold(), us_of(standing_),
                                 baseline_ == standing_ ? 0 : us_of(baseline_));
    if (budget_spent_) {
      result_.end = MeasureEnd::budget;
      result_.reason += "; the time was up with " + std::to_string(programs_.size() - tried_.size()) +
                        " programs not tried";
    } else if (!why_enough_.empty()) {
      result_.reason += "; " + why_enough_;
    }
  }
  std::string name_of(const Entrant& entrant) const {
    return "program " + std::to_string(entrant.number) +
           (entrant.number == combined_ ? ", of the fastest kernels of others," : "");
  }
  Plan measured(const Entrant& entrant) const {
    return measured_plan({entrant.plan, entrant.check, entrant.time}, bench_->device(),
                         baseline_ ? baseline_->cold() : 0);
  }

  // ---- what comes out ----

  void report_progress(const Entrant* better = nullptr) {
    if (!options_.on_progress) return;
    MeasureProgress progress;
    progress.programs = programs_.size();
    progress.tried = tried_.size();
    if (best_) progress.best_us = best_->cold();
    if (baseline_ && !baseline_->time.cold.empty()) progress.baseline_us = baseline_->cold();
    if (better) {
      progress.plan = encode_plan(measured(*better));
      progress.program = programs_[better->number].name();
    }
    options_.on_progress(progress);
  }

  void finish() {
    if (baseline_ && !baseline_->time.cold.empty()) result_.baseline_us = baseline_->cold();
    keep_code();
    for (size_t i = 0; i < programs_.size(); ++i) {
      result_.report += timing_line(programs_[i], i, timings_[i], tried_.count(i) > 0, winner_ == i);
      if (tried_.count(i)) result_.timings.push_back(timings_[i]);
    }
    if (winner_) {
      result_.winner = programs_[*winner_];
      result_.winner.plan = result_.plan;
    }
    result_.report += std::string(measure_end_name(result_.end)) + ": " + result_.reason + "\n";
    if (combined_ && winner_ != combined_) forget_combined();
    for (const auto& each : entrants_) bench_->remove(each->id);
    entrants_.clear();
    result_.programs = std::move(programs_);
  }
  // It is in no list, and may be made again.
  void forget_combined() {
    std::erase_if(result_.timings,
                  [&](const ProgramTiming& timing) { return timing.program == programs_.back().name(); });
    programs_.pop_back();
  }
  // What is known to be slower or refused need not keep its code.
  void keep_code() {
    std::vector<Entrant*> kept = challengers();
    if (kept.size() > options_.keep) kept.resize(options_.keep);
    kept = with_anchors(std::move(kept));
    if (result_.end == MeasureEnd::finished || result_.end == MeasureEnd::budget)
      for (const size_t i : tried_) programs_[i].plan.clear();
    for (const Entrant* each : kept) programs_[each->number].plan = encode_plan(each->plan);
  }

  const MeasureOptions& options_;
  const Graph& graph_;
  const Target& target_;
  const bool compiles_;
  Bench* bench_ = nullptr;
  Clock::time_point start_;
  std::vector<Program> programs_;
  std::vector<ProgramTiming> timings_;  // of each program
  std::set<size_t> tried_;
  Workshop workshop_;
  std::optional<KernelRace> kernels_;
  double longest_making_ = 0;                       // seconds
  std::vector<std::unique_ptr<Entrant>> entrants_;  // that are right and not far behind
  Entrant *baseline_ = nullptr, *standing_ = nullptr, *best_ = nullptr;
  std::optional<size_t> winner_, combined_;
  bool published_ = false, over_ = false, budget_spent_ = false;
  size_t timed_ = 0;
  double pessimism_ = std::numeric_limits<double>::infinity();  // the least of measured over modelled time
  double per_round_ = 0.05;                                     // seconds of one program in one round
  std::string why_enough_;
  MeasureResult result_;
};

}  // namespace

Result<MeasureResult> measure(const Graph& graph, const Target& target, std::vector<Program> programs,
                              Compiler* compiler, const GetBench& open, const MeasureOptions& options) {
  auto move_to_front = [&](const Hash128& name, size_t from) {
    const auto found = std::find_if(programs.begin() + static_cast<ptrdiff_t>(from), programs.end(),
                                    [&](const Program& each) { return each.name() == name; });
    if (found == programs.end()) return false;
    std::rotate(programs.begin() + static_cast<ptrdiff_t>(from), found, found + 1);
    return true;
  };
  if (!move_to_front(Program{}.name(), 0)) programs.insert(programs.begin(), Program{});
  if (options.standing != Program{}.name() && !move_to_front(options.standing, 1))
    return Status(ErrorCode::INVALID_ARGUMENT, "the program that stands is not in the list");
  // Compilers are at work meanwhile.
  Race race(graph, target, std::move(programs), compiler, options);
  const Result<Bench*> bench = open();
  if (!bench) return bench.status();
  return race.run(**bench);
}

}  // namespace quern
