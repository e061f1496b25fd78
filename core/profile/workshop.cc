#include "core/profile/workshop.h"

#include <algorithm>

#include "core/base/facts.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/certify.h"
#include "core/optimize/prove_program.h"
#include "core/optimize/registers.h"
#include "core/verify/rounded_values.h"
#include "core/verify/verifier.h"

namespace quern {

namespace {

Status refused(ErrorCode code, const std::string& why) { return Status(code, why.substr(0, why.find('\n'))); }

bool computes_in_tf32(const Schedule& schedule) {
  return std::any_of(schedule.kernels.begin(), schedule.kernels.end(),
                     [](const KernelSchedule& kernel) { return kernel.tf32; });
}

}  // namespace

Workshop::Workshop(const Graph& graph, const Target& target, const std::vector<Program>& programs,
                   Compiler* compiler, const WorkshopOptions& options)
    : graph_(graph),
      target_(target),
      programs_(programs),
      compiler_(compiler),
      options_(options),
      graph_text_(print_graph(graph)) {
  for (unsigned i = 0; i < std::max(1u, options.jobs); ++i) threads_.emplace_back([this] { work(); });
}

Workshop::~Workshop() { stop(); }

void Workshop::end() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void Workshop::stop() {
  end();
  threads_.clear();
}

std::optional<MadeProgram> Workshop::next(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return !ready_.empty() || taken_ == programs_.size() || stopped_; });
  if (ready_.empty()) return std::nullopt;
  ++taken_;
  changed_.notify_all();
  return std::move(ready_.extract(ready_.begin()).mapped());
}

std::optional<MadeProgram> Workshop::next(size_t number, std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return ready_.count(number) > 0 || stopped_; });
  if (!ready_.count(number)) return std::nullopt;
  ++taken_;
  changed_.notify_all();
  return std::move(ready_.extract(number).mapped());
}

MadeProgram Workshop::make(const Program& program, size_t number) {
  ArithmeticVerifier verifier(graph_);
  return make(program, number, verifier);
}

void Workshop::work() {
  ArithmeticVerifier verifier(graph_);  // of this thread
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || begun_ < taken_ + 3 * std::max(1u, options_.jobs); });
    if (stopped_ || begun_ == programs_.size()) return;
    const size_t number = begun_++;
    lock.unlock();
    MadeProgram made = make(programs_[number], number, verifier);
    lock.lock();
    ready_.emplace(number, std::move(made));
    changed_.notify_all();
  }
}

MadeProgram Workshop::make(const Program& program, size_t number, ArithmeticVerifier& verifier) {
  const auto start = std::chrono::steady_clock::now();
  MadeProgram made{number, Status(ErrorCode::INTERNAL, "not made"), false, 0, {}};
  if (!program.plan.empty()) {
    made.plan = decode_plan(program.plan);
    if (made.plan && made.plan->target != target_.name)
      made.plan = Status(ErrorCode::UNSUPPORTED, "its code is for " + made.plan->target);
    const auto mugraph = parse_mugraph(program.mugraph);
    const auto schedule = parse_schedule(program.schedule);
    made.tf32 = schedule.ok() && computes_in_tf32(*schedule);
    if (made.plan && mugraph && schedule)
      if (const auto emitted = emit_mugraph(graph_, *mugraph, *schedule, target_);
          emitted && emitted->plan.launches.size() == made.plan->launches.size())
        made.launches = emitted->launches_of_kernels();
  } else if (!compiler_) {
    made.plan = Status(ErrorCode::NO_COMPILER, "it has no code, and there is no compiler");
  } else {
    made.plan = program.is_baseline() ? make_baseline() : make_searched(program, verifier, made);
    made.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return made;
}

Result<Plan> Workshop::make_baseline() const {
  auto emitted = emit_baseline(graph_, target_);
  if (!emitted) return emitted.status();
  auto output = compiler_->compile({emitted->source, target_.name, {}});
  if (!output) return output.status().with_context("the baseline");
  Plan plan = std::move(emitted->plan);
  plan.cubin = std::move(output->cubin);
  plan.certificate +=
      source_facts({graph_text_, "", "", emitted->source}, plan.cubin, compiler_->fingerprint());
  return plan;
}

// With greedy choices where the schedule names none, so that its texts alone make it again.
Result<Plan> Workshop::make_searched(const Program& program, ArithmeticVerifier& verifier,
                                     MadeProgram& made) {
  auto mugraph = parse_mugraph(program.mugraph);
  if (!mugraph) return mugraph.status().with_context("its muGraph");
  const auto schedule = parse_schedule(program.schedule);
  if (!schedule) return schedule.status().with_context("its schedule");
  note_rounded_values(graph_, *mugraph);
  made.tf32 = computes_in_tf32(*schedule);
  if (made.tf32 && !options_.allow_tf32)
    return Status(ErrorCode::UNSUPPORTED, "it computes in tf32, which is not allowed");
  auto emitted = emit_mugraph(graph_, *mugraph, *schedule, target_);
  if (!emitted) return refused(emitted.status().code(), "it is not emitted: " + emitted.status().message());
  const ArithmeticVerdict arithmetic = verifier.judge(*mugraph, *schedule);
  if (arithmetic.verdict != Verdict::accepted)
    return refused(ErrorCode::UNSUPPORTED,
                   (arithmetic.verdict == Verdict::rejected ? "wrong in the arithmetic of its kernels: "
                                                            : "its arithmetic cannot be judged: ") +
                       arithmetic.reason);
  auto verdict = verdict_on(program.mugraph, *mugraph);
  if (!verdict) return verdict.status();
  const std::unique_ptr<Solver> solver = options_.make_solver ? options_.make_solver() : nullptr;
  const std::vector<KernelProof> proofs =
      prove_program(*emitted, solver.get(), ProveOptions{}.limit, &proofs_);
  if (const KernelProof* wrong = find_disproof(proofs))
    return refused(ErrorCode::INTERNAL,
                   "a bug of the emitter: " + wrong->kernel + " is " + wrong->proof.summary());
  auto output = compiler_->compile({emitted->source, target_.name, {"--ptxas-options=-v"}});
  if (!output) return refused(ErrorCode::COMPILE, "the compiler refused it: " + output.status().message());
  if (const std::string kernel = spilling_warpgroups(*schedule, emitted->blocks, output->log);
      !kernel.empty())
    return Status(ErrorCode::UNSUPPORTED,
                  kernel + ": registers are not enough for its wgmma, which compilers get wrong");
  made.launches = emitted->launches_of_kernels();
  Plan plan = std::move(emitted->plan);
  plan.cubin = std::move(output->cubin);
  plan.certificate += source_facts({graph_text_, program.mugraph, program.schedule, emitted->source},
                                   plan.cubin, compiler_->fingerprint()) +
                      proof_fact(proofs) + *verdict + arithmetic.print() +
                      print_fact("modelled", std::to_string(program.modelled_ns) + " ns");
  return plan;
}

// The field's verdict on a muGraph, as facts. Its schedules share it.
Result<std::string> Workshop::verdict_on(const std::string& text, const MuGraph& mugraph) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = verdicts_.find(text); known != verdicts_.end()) return known->second;
  }
  const Certificate verdict = verify(graph_, mugraph);
  if (verdict.verdict == Verdict::rejected)
    return Status(ErrorCode::INTERNAL, "as a whole it is wrong: " + verdict.reason);
  const std::lock_guard lock(mutex_);
  return verdicts_.emplace(text, verdict.print()).first->second;
}

}  // namespace quern
