#include "core/optimize/optimize.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/base/facts.h"
#include "core/base/statistics.h"
#include "core/codegen/arithmetic_verifier.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/certify.h"
#include "core/optimize/explain.h"
#include "core/optimize/parts.h"
#include "core/optimize/program_list.h"
#include "core/optimize/program_model.h"
#include "core/optimize/prove_program.h"
#include "core/optimize/registers.h"
#include "core/verify/rounded_values.h"
#include "core/verify/verifier.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

uint64_t ns_since(Clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

constexpr std::chrono::milliseconds kBaselineLimit{300};  // for the proof of a kernel of the baseline
constexpr double kSpillCost = 1.5;                        // what a suspect is expected to lose
constexpr double kRegisterBytes = 255 * 4;                // of a thread, at most
constexpr size_t kMostRankings = 4;                       // behind the first
constexpr const char* kCrowded = "registers are not enough for it";
constexpr const char* kUnfit = "one of its kernels did not fit in another program";
constexpr const char* kSpillsBesideWgmma =
    "registers are not enough for its wgmma, which compilers get wrong";
constexpr const char* kSameProgram = "it gives the same text as another one";
constexpr const char* kNoSchedule = "none of its schedules fits";

uint64_t in_ns(double us) { return static_cast<uint64_t>(us * 1000); }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

class OptimizeRun {
 public:
  OptimizeRun(const Graph& graph, const Target& target, Compiler& compiler, const OptimizeOptions& options)
      : graph_(graph), target_(target), compiler_(compiler), options_(options) {}

  Result<OptimizeResult> run() {
    SearchOptions how = options_.search;
    how.limit = std::min(how.limit, options_.limit);
    how.time_of = SubgraphModel(target_, enumerator_options());
    auto found = search(graph_, target_, how);
    if (!found) return found.status();
    search_ = std::move(*found);
    out_.search_ns = ns_since(start_);
    out_.state = search_.state;
    out_.timed_out = search_.report.timed_out;
    fates_.resize(search_.candidates.size(), kNoSchedule);
    tell_progress();
    refusals_.resize(search_.candidates.size());
    if (Status status = name_as_text(); !status.ok()) return status;
    auto baseline = baseline_work(graph_, target_);
    if (!baseline) return baseline.status();
    baseline_us_ = modelled_launches(*baseline, target_);
    ranked_ = ranking({});
    refused_.resize(ranked_.size());
    try_all();
    prove_baseline();
    write_report();
    const auto start = Clock::now();
    list_programs();
    out_.emit_ns += ns_since(start);
    return std::move(out_);
  }

 private:
  // It is out already, and nobody waits for this: what is wrong with it goes into the report.
  void prove_baseline() {
    const auto emitted = emit_baseline(graph_, target_);
    if (!emitted) return;
    const auto start = Clock::now();
    baseline_proof_ = proof_fact(prove_program(*emitted, options_.solver, kBaselineLimit));
    prove_ns_ += ns_since(start);
  }

  struct Compiled {
    size_t rank = 0;
    EmittedMuGraph emitted;
    std::string cubin;
    int64_t stack = 0;
    ArithmeticVerdict arithmetic;
  };

  void tell_progress() {
    if (!options_.progress) return;
    OptimizeResult so_far = out_;
    so_far.timed_out = true;
    if (!so_far.found()) so_far.reason = "the search found candidates, and no time to compile one";
    so_far.report = "search: " + std::to_string(search_.candidates.size()) + " candidates\n";
    options_.progress(so_far);
  }

  bool over() {
    if (kept_.size() >= std::max<size_t>(1, options_.keep)) return true;
    if (compile_ms_.size() >= options_.compiles + kept_.size())
      stopped_ = "as many programs were compiled as may be";
    else if (Clock::now() - start_ >= options_.limit || (options_.search.cancel && *options_.search.cancel)) {
      stopped_ = "the time was up, or it was cancelled";
      // The list of programs is complete whether or not as many are compiled as were asked for.
      if (kept_.empty()) out_.timed_out = true;
    }
    return !stopped_.empty();
  }

  // Names of values are in the emitted text: with those that the printed muGraph has, it gives the same text
  // again.
  Status name_as_text() {
    for (Candidate& candidate : search_.candidates) {
      auto named = parse_mugraph(print_mugraph(candidate.mugraph));
      if (!named) return named.status().with_context("the text of a muGraph that was found");
      copy_notes(candidate.mugraph, *named);
      candidate.mugraph = std::move(*named);
      note_rounded_values(graph_, candidate.mugraph);
    }
    return {};
  }

  // The model does not know what the compiler puts on the stack, so a program that has some there is taken
  // only when no other is found, nothing like its kernels is compiled again, and what is suspected of the
  // same comes last.
  void try_all() {
    std::optional<Compiled> spilling;
    std::deque<size_t> suspects;
    // Each may rank anew what was not looked at.
    while (!suspects.empty() || looked_at_ < ranked_.size() || rank_rest()) {
      if (over()) break;
      if (!suspects.empty() && (looked_at_ == ranked_.size() ||
                                ranked_[suspects.front()].us * kSpillCost < ranked_[looked_at_].us)) {
        const size_t suspect = suspects.front();
        suspects.pop_front();
        try_one(suspect, spilling);
        continue;
      }
      const size_t rank = looked_at_++;
      if (unfit_.suspects(mugraph_of(rank), ranked_[rank].schedule))
        suspects.push_back(rank);
      else
        try_one(rank, spilling);
    }
    if (kept_.empty() && spilling) accept(std::move(*spilling));
  }

  // What is on the stack is written to memory and read again, which the model does not know. Measured on an
  // H200, a decoder layer with 0.9, 2.8 and 4.1 KB of a thread there took 1.4, 3.5 and 4.6 times what the
  // model said.
  double expected_us(const Compiled& program) const {
    return ranked_[program.rank].us * (1 + static_cast<double>(program.stack) / kRegisterBytes);
  }

  bool replaces_baseline(double us) const { return us * kBaselineMargin < baseline_us_; }

  // "61.00 us by the model, slower than the baseline"
  std::string by_model(double us) const {
    return number(us) + " us by the model" +
           (replaces_baseline(us) ? ""
            : us < baseline_us_   ? ", not surely faster than the baseline"
                                  : ", slower than the baseline");
  }

  const MuGraph& mugraph_of(size_t rank) const { return search_.candidates[ranked_[rank].candidate].mugraph; }

  // What spills is kept if it does so less than what was kept before.
  void try_one(size_t rank, std::optional<Compiled>& spilling) {
    if (unfit_.expects(mugraph_of(rank), ranked_[rank].schedule)) return note(rank, kUnfit);
    if (!judge(rank)) return;
    std::optional<Compiled> program = emit(rank);
    if (program && !compile(*program)) program.reset();
    if (program && program->stack == 0) return accept(std::move(*program));
    if (program) {
      note(rank, kCrowded);
      if (!spilling || program->stack < spilling->stack) spilling = std::move(program);
    }
    if (rankings_ < kMostRankings && unfit_.expects(mugraph_of(rank), ranked_[rank].schedule) &&
        !has_alternative(ranked_[rank].us))
      rank_without_unfit();
  }

  // Whether something that fits and is not much slower is still to be tried.
  bool has_alternative(double us) const {
    constexpr double kMuch = 1.03;
    for (size_t rank = looked_at_; rank < ranked_.size(); ++rank)
      if (ranked_[rank].us < kMuch * us && !unfit_.expects(mugraph_of(rank), ranked_[rank].schedule))
        return true;
    return false;
  }

  EnumeratorOptions enumerator_options() const {
    return {.allow_tf32 = options_.allow_tf32, .threads = options_.search.threads};
  }

  std::vector<Implementation> ranking(const RefuseKernel& refuse) {
    if (!ranking_) ranking_.emplace(graph_, search_.candidates, target_, enumerator_options());
    return ranking_->rank(options_.search.constraints, options_.schedules, refuse, tapered_);
  }

  RefuseKernel does_not_fit() const {
    return [this](const KernelSchedule& schedule, bool joined, const std::function<MuKernel()>& applied) {
      return unfit_.expects(schedule, joined, applied);
    };
  }

  // Programs of several kernels differ in one of them, the others at their best: where that is one that does not fit,
  // it is in nearly all. What was not tried yet is ranked anew without it.
  void rank_without_unfit() {
    ++rankings_;
    rank_again();
  }

  // Where nothing was right and fitted, and there is time: all schedules of those that are far behind, too. Whether some
  // were not there.
  bool rank_rest() {
    if (!tapered_ || !kept_.empty() || over()) return false;
    tapered_ = false;
    rank_again();
    return looked_at_ < ranked_.size();
  }

  void rank_again() {
    ranked_.resize(looked_at_);
    std::set<std::pair<size_t, std::string>> known;
    for (const Implementation& each : ranked_) known.emplace(each.candidate, print_schedule(each.schedule));
    for (const Implementation& each : ranking(does_not_fit()))
      if (!known.count({each.candidate, print_schedule(each.schedule)})) ranked_.push_back(each);
    refused_.resize(looked_at_);
    refused_.resize(ranked_.size());
  }

  // Whether it is right in the arithmetic of its kernels, as far as hostile inputs show.
  bool judge(size_t rank) {
    const auto start = Clock::now();
    const MuGraph& mugraph = mugraph_of(rank);
    const Schedule& schedule = ranked_[rank].schedule;
    arithmetic_ = options_.judge ? options_.judge(mugraph, schedule) : verifier_.judge(mugraph, schedule);
    out_.judge_ns += ns_since(start);
    judge_ms_.push_back(static_cast<double>(ns_since(start)) / 1e6);
    if (arithmetic_.verdict == Verdict::accepted) return true;
    const bool wrong = arithmetic_.verdict == Verdict::rejected;
    refuse(rank, (wrong ? "wrong in the arithmetic of its kernels: " : "its arithmetic cannot be judged: ") +
                     arithmetic_.reason);
    return false;
  }

  std::optional<Compiled> emit(size_t rank) {
    const auto start = Clock::now();
    const MuGraph& mugraph = mugraph_of(rank);
    const Schedule& schedule = ranked_[rank].schedule;
    std::optional<size_t> refused;
    auto emitted = emit_mugraph(graph_, mugraph, schedule, target_, options_.optimizer, {}, &refused);
    out_.emit_ns += ns_since(start);
    if (!emitted) {
      if (refused) unfit_.add(mugraph, schedule, *refused);
      refuse(rank, emitted.status().message());
      return {};
    }
    if (!sources_.insert(hash128(emitted->source)).second) {
      refuse(rank, kSameProgram);
      return {};
    }
    return Compiled{rank, std::move(*emitted), "", 0, arithmetic_};
  }

  bool compile(Compiled& program) {
    const auto start = Clock::now();
    const std::clock_t cpu_start = std::clock();
    auto output = compiler_.compile({program.emitted.source, target_.name, {"--ptxas-options=-v"}});
    compile_ms_.push_back(static_cast<double>(ns_since(start)) / 1e6);
    compile_cpu_ms_.push_back(1e3 * static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
    out_.compile_ns += ns_since(start);
    if (!output) {
      refuse(program.rank, "the compiler refused it: " + output.status().message());
      return false;
    }
    program.cubin = std::move(output->cubin);
    const Schedule& schedule = ranked_[program.rank].schedule;
    program.stack = unfit_.add(mugraph_of(program.rank), schedule, program.emitted, output->log);
    if (!spilling_warpgroups(schedule, program.emitted.blocks, output->log).empty()) {
      refuse(program.rank, kSpillsBesideWgmma);
      return false;
    }
    return true;
  }

  // What becomes of a candidate is what became of its best schedule; the rest are counted.
  void note(size_t rank, const std::string& refusal) {
    const size_t candidate = ranked_[rank].candidate;
    if (candidate == taken_) return;
    if (refusals_[candidate]++ == 0) fates_[candidate] = refusal.substr(0, refusal.find('\n'));
  }

  // It may never run.
  void refuse(size_t rank, const std::string& refusal) {
    note(rank, refusal);
    refused_[rank] = true;
  }

  // Which is what matters of a candidate, whatever became of its other schedules.
  void refuse_as_wrong(size_t rank, const std::string& reason) {
    refuse(rank, reason);
    fates_[ranked_[rank].candidate] = reason.substr(0, reason.find('\n'));
  }

  // The search has verified the pieces; this is the verdict on all of it, for random inputs of its own. It
  // rejects the muGraph only if there is a bug.
  const Certificate& verdict_on(size_t candidate) {
    auto at = verdicts_.find(candidate);
    if (at == verdicts_.end())
      at = verdicts_.emplace(candidate, verify(graph_, search_.candidates[candidate].mugraph)).first;
    return at->second;
  }

  // Keeps the program; the first one is the result's plan.
  void accept(Compiled program) {
    const Implementation& from = ranked_[program.rank];
    const double us = expected_us(program);
    const Candidate& candidate = search_.candidates[from.candidate];
    const Certificate& verdict = verdict_on(from.candidate);
    if (verdict.verdict == Verdict::rejected)
      return refuse_as_wrong(program.rank, "as a whole it is wrong: " + verdict.reason);
    std::string parts;  // what carries a verdict that is undecided
    if (verdict.verdict == Verdict::undecided) {
      const auto verdicts = verify_parts(graph_, candidate.mugraph, verdict.seed);
      for (size_t i = 0; verdicts && i < verdicts->size(); ++i)
        if ((*verdicts)[i].verdict == Verdict::rejected)
          return refuse_as_wrong(program.rank,
                                 "part " + std::to_string(i) + " is wrong: " + (*verdicts)[i].reason);
      parts = part_facts(verdicts);
    }
    const auto start = Clock::now();
    const std::vector<KernelProof> proofs = prove_program(program.emitted, options_.solver);
    prove_ns_ += ns_since(start);
    if (const KernelProof* wrong = find_disproof(proofs))
      return refuse_as_wrong(program.rank,
                             "a bug of the emitter: " + wrong->kernel + " is " + wrong->proof.summary());
    Program kept;
    kept.mugraph = print_mugraph(candidate.mugraph);
    kept.schedule = print_schedule(with_choices(from.schedule, program.emitted));
    kept.modelled_ns = in_ns(us);
    Plan plan = program.emitted.plan;
    plan.cubin = std::move(program.cubin);
    plan.certificate +=
        source_facts({print_graph(graph_), kept.mugraph, kept.schedule, program.emitted.source}, plan.cubin,
                     compiler_.fingerprint()) +
        proof_fact(proofs) + verdict.print() + parts + program.arithmetic.print() +
        print_fact("modelled", number(us) + " us") +
        print_fact("candidate",
                   std::to_string(from.candidate) + " of " + std::to_string(search_.candidates.size()));
    kept.plan = encode_plan(plan);
    if (!out_.found() && replaces_baseline(us))
      take(program, kept, std::move(plan));
    else
      note(program.rank, "compiled, " + by_model(us));
    kept_.emplace(program.rank, std::move(kept));
  }

  void take(Compiled& program, const Program& kept, Plan plan) {
    const Implementation& from = ranked_[program.rank];
    out_.plan = std::move(plan);
    out_.us = expected_us(program);
    out_.mugraph = kept.mugraph;
    out_.schedule = kept.schedule;
    choices_ = explain_choices(graph_, mugraph_of(program.rank), from.schedule, target_, program.emitted,
                               options_.optimizer != nullptr);
    out_.cuda = std::move(program.emitted.source);
    taken_ = from.candidate;
    fates_[from.candidate] =
        "taken, " + by_model(out_.us) +
        (program.stack ? ", " + std::to_string(program.stack) + " bytes of a thread on the stack" : "");
    refusals_[from.candidate] = 0;
    tell_progress();
  }

  // The ranked ones in turn with programs that vary all kernels of the best candidate, as far as there are some.
  void list_programs() {
    out_.programs.push_back({"", "", in_ns(baseline_us_), ""});
    for (auto& [rank, kept] : kept_) out_.programs.push_back(std::move(kept));
    if (ranked_.empty()) return;
    std::vector<Implementation> ranked;
    for (size_t rank : best_of_each_first(ranked_))
      if (!refused_[rank] && !kept_.contains(rank)) ranked.push_back(ranked_[rank]);
    const size_t left = options_.list - std::min(options_.list, kept_.size());
    const auto listed = ProgramList(graph_, search_.candidates, *ranking_, options_.search.constraints,
                                    does_not_fit(), target_, sources_)
                            .of(ranked, taken_.value_or(ranked_[0].candidate), left, options_.list / 2);
    out_.programs.insert(out_.programs.end(), listed.begin(), listed.end());
  }

  void write_report() {
    for (const Implementation& best : ranked_)
      if (std::string& fate = fates_[best.candidate]; fate == kNoSchedule)
        fate = "not tried, " + by_model(best.us);
    const SearchReport& report = search_.report;
    out_.report = "search: " + std::to_string(search_.candidates.size()) + " candidates in " +
                  number(report.seconds) + " s" +
                  (report.cancelled   ? ", cancelled"
                   : report.timed_out ? ", its time was up"
                                      : "") +
                  "\n";
    for (const PieceReport& piece : report.pieces)
      if (!piece.outside.empty()) out_.report += "not searched: " + piece.name + ": " + piece.outside + "\n";
    out_.report += "baseline: " + number(baseline_us_) + " us by the model\n";
    for (size_t i = 0; i < fates_.size(); ++i)
      out_.report += "candidate " + std::to_string(i) + " (" + number(search_.candidates[i].us) +
                     " us): " + fates_[i] +
                     (refusals_[i] > 1 ? " (" + std::to_string(refusals_[i]) + " schedules)" : "") + "\n";
    if (!compile_ms_.empty())
      out_.report += "programs compiled: " + std::to_string(compile_ms_.size()) + ", median " +
                     number(median(compile_ms_)) + " ms, " + number(median(compile_cpu_ms_)) +
                     " ms of processor time\n";
    if (!judge_ms_.empty())
      out_.report += "programs judged: " + std::to_string(judge_ms_.size()) + ", median " +
                     number(median(judge_ms_)) + " ms, at most " +
                     number(*std::max_element(judge_ms_.begin(), judge_ms_.end())) + " ms\n";
    out_.report +=
        "baseline's " + baseline_proof_ + "proofs: " + number(static_cast<double>(prove_ns_) / 1e6) + " ms\n";
    if (!stopped_.empty()) out_.report += "stopped: " + stopped_ + "\n";
    out_.report += choices_;
    if (!out_.found()) out_.reason = why_nothing();
  }

  std::string why_nothing() const {
    if (search_.report.cancelled) return "the search was cancelled";
    if (!kept_.empty()) {
      const double us = static_cast<double>(kept_.begin()->second.modelled_ns) / 1000;
      return std::string(us < baseline_us_ ? "not surely faster" : "slower") +
             " than the baseline by the model: " + number(us) + " us against " + number(baseline_us_) + " us";
    }
    if (!fates_.empty())
      return "none of " + std::to_string(fates_.size()) +
             " candidates became a program; the first: " + fates_[0];
    for (const PieceReport& piece : search_.report.pieces)
      if (!piece.outside.empty()) return "nothing to search: " + piece.name + ": " + piece.outside;
    if (search_.report.timed_out) return "the search found nothing in its time";
    return options_.search.constraints.empty() ? "the search found nothing"
                                               : "the search found nothing within the constraints";
  }

  const Graph& graph_;
  const Target& target_;
  Compiler& compiler_;
  const OptimizeOptions& options_;
  const Clock::time_point start_ = Clock::now();
  SearchResult search_;
  std::optional<Ranking> ranking_;  // of its candidates
  double baseline_us_ = 0;  // by the model
  std::vector<Implementation> ranked_;
  bool tapered_ = true;                     // Ranking::rank
  std::vector<bool> refused_;               // by rank
  size_t looked_at_ = 0, rankings_ = 0;     // ranks, by try_all; how often what was left was ranked anew
  std::set<Hash128> sources_;               // of programs that were emitted
  std::map<size_t, Program> kept_;          // by rank
  std::map<size_t, Certificate> verdicts_;  // by candidate
  std::vector<std::string> fates_;          // of candidates
  std::vector<size_t> refusals_;            // schedules of them that were refused
  UnfitKernels unfit_{target_};
  ArithmeticVerifier verifier_{graph_, {.stop = [this] { return over(); }}};
  ArithmeticVerdict arithmetic_;  // of what is tried
  std::vector<double> judge_ms_, compile_ms_, compile_cpu_ms_;
  uint64_t prove_ns_ = 0;
  std::string baseline_proof_;
  std::string stopped_;
  std::optional<size_t> taken_;  // the candidate of the result's plan
  std::string choices_;          // of that program
  OptimizeResult out_;
};

}  // namespace

Result<OptimizeResult> optimize(const Graph& graph, const Target& target, Compiler& compiler,
                                const OptimizeOptions& options) {
  return OptimizeRun(graph, target, compiler, options).run();
}

}  // namespace quern
