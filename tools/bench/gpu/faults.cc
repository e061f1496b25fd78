#include "tools/bench/gpu/faults.h"

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/random.h"
#include "core/codegen/baseline.h"
#include "core/kernel/expr.h"
#include "core/profile/bench_process.h"
#include "core/profile/measure.h"
#include "tests/support/random_workload.h"
#include "tools/bench/need.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

double minutes_since(Clock::time_point start) {
  return std::chrono::duration<double, std::ratio<60>>(Clock::now() - start).count();
}

struct Fault {
  const char* name;
  const char* body;  // of a kernel with one thread: T* out, long long elements, char* in
};
constexpr Fault kFaults[] = {
    {"faults", "*reinterpret_cast<volatile int*>(16) = 1;"},
    {"writes behind an output", "reinterpret_cast<char*>(out + elements)[8] ^= 0x55;"},
    {"writes before an output", "reinterpret_cast<char*>(out)[-8] ^= 0x55;"},
    {"writes an input", "in[0] ^= 1;"},
    {"gives NaN", "out[elements / 2] = not_a_number(out);"},
    {"is wrong in one element", "out[elements - 1] = another(out[elements - 1]);"},
    {"hangs", "while (true) asm volatile(\"nanosleep.u32 200;\");"},
};

constexpr size_t kHangs = std::size(kFaults) - 1;
// Of small graphs, while no other kernel hangs.
constexpr std::chrono::milliseconds kLeast{700};

std::string planted(size_t fault) { return "planted" + std::to_string(fault); }

constexpr const char* kValues = R"(
__device__ f16 not_a_number(f16*) { return f16{0x7e00}; }
__device__ bf16 not_a_number(bf16*) { return bf16{0x7fc0}; }
__device__ float not_a_number(float*) { return __int_as_float(0x7fc00000); }
__device__ int not_a_number(int* of) { return of[0] ^ 0x40000000; }
__device__ bool not_a_number(bool* of) { return !of[0]; }
template <class T>
__device__ T another(T value) { return from_float<T>(2 * to_float(value) + 3); }
__device__ int another(int value) { return value ^ 1; }
__device__ bool another(bool value) { return !value; }
)";

// One graph with a program for each fault.
struct Subject {
  Graph graph;
  Program baseline;
  std::vector<Program> faulty;  // as kFaults
};

std::string kernel_text(size_t fault, DType dtype) {
  return "extern \"C\" __global__ void " + planted(fault) + "(" + ir::cuda_name(ir::scalar_of(dtype)) +
         "* out, long long elements, char* in) {\n" + kFaults[fault].body + "\n}\n";
}

Result<Subject> make_subject(uint64_t seed, Compiler& compiler, const Target& target) {
  Subject subject{random_workload(seed), {}, {}};
  auto emitted = emit_baseline(subject.graph, target);
  if (!emitted) return emitted.status();
  const TensorDesc& output = emitted->plan.outputs[0];
  // All of one source, so that only the launches differ.
  std::string source = emitted->source + kValues;
  for (size_t i = 0; i < std::size(kFaults); ++i) source += kernel_text(i, output.dtype);
  auto compiled = compiler.compile({source, target.name, {}});
  if (!compiled) return compiled.status();
  Plan plan = std::move(emitted->plan);
  plan.cubin = std::move(compiled->cubin);
  subject.baseline = {"", "", 2000, encode_plan(plan)};
  plan.tier = Tier::modelled;
  using Kind = LaunchArg::Kind;
  plan.launches.push_back(
      {"", {}, {}, {}, 0, {{Kind::output, 0}, {Kind::integer, output.element_count()}, {Kind::input, 0}}});
  for (size_t i = 0; i < std::size(kFaults); ++i) {
    plan.launches.back().kernel = planted(i);
    subject.faulty.push_back({kFaults[i].name, "", 1000, encode_plan(plan)});
  }
  return subject;
}

// A kernel that hangs takes its share of the GPU from every step of all others until its process is killed,
// so those of all threads hang together, and nothing else is measured meanwhile.
class HangTogether : public Bench {
 public:
  HangTogether(std::unique_ptr<Bench> bench, std::barrier<>& all) : bench_(std::move(bench)), all_(all) {}

  const std::string& device() const override { return bench_->device(); }
  Result<uint32_t> add(const Plan& plan, bool tf32, const LaunchRange& timed) override {
    auto id = bench_->add(plan, tf32, timed);
    if (id && plan.launches.back().kernel == planted(kHangs)) hangs_ = *id;
    return id;
  }
  void remove(uint32_t plan) override { bench_->remove(plan); }
  Result<Check> check(uint32_t plan) override {
    if (plan != hangs_) return bench_->check(plan);
    all_.arrive_and_wait();
    auto check = bench_->check(plan);
    all_.arrive_and_wait();
    met_ = true;
    return check;
  }
  Result<std::vector<Time>> time(std::span<const uint32_t> plans, int rounds) override {
    return bench_->time(plans, rounds);
  }
  Result<double> disturbance() override { return bench_->disturbance(); }

  // Behind the job: if it did not come to that, the others must not wait for it.
  void meet() {
    for (int i = 0; i < 2 && !met_; ++i) all_.arrive_and_wait();
    met_ = true;
  }

 private:
  const std::unique_ptr<Bench> bench_;
  std::barrier<>& all_;
  uint32_t hangs_ = UINT32_MAX;
  bool met_ = false;
};

class Campaign {
 public:
  Campaign(const FaultOptions& options, Compiler& compiler, const Target& target)
      : options_(options), compiler_(compiler), target_(target) {}

  bool run() {
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 1; i < options_.parallel; ++i) threads.emplace_back([this] { work(); });
      work();
    }
    return print();
  }

 private:
  struct Tally {
    int jobs = 0, published = 0, refused = 0, baselines_right = 0, timed_after = 0;
    std::map<std::string, int> refusals;
  };

  void work() {
    constexpr int kKinds = static_cast<int>(std::size(kFaults));
    for (int graph; (graph = next_++) * kKinds < options_.jobs && minutes_since(start_) < options_.minutes;) {
      const Subject subject = need(make_subject(static_cast<uint64_t>(graph) + 1, compiler_, target_));
      BenchProcessOptions process;
      process.command = {options_.worker, "--bench", std::to_string(options_.device)};
      process.bench.memory_share = 0.02;
      process.bench.threads = 1;
      process.compiler = &compiler_;
      process.target = &target_;
      process.least = kLeast;
      HangTogether bench(need(open_bench(subject.graph, process)), hang_);
      for (int i = 0; i < kKinds && graph * kKinds + i < options_.jobs; ++i)
        measure_one(subject, static_cast<size_t>(i), bench);
      bench.meet();
    }
    hang_.arrive_and_drop();
  }

  // What counts is the check: others use the GPU at the same time, so times say nothing.
  void measure_one(const Subject& subject, size_t fault, Bench& bench) {
    MeasureOptions how;
    how.most_disturbance = 1;
    how.jobs = 1;
    bool early = false;
    how.on_progress = [&](const MeasureProgress& progress) { early |= !progress.plan.empty(); };
    const MeasureResult result =
        need(measure(subject.graph, target_, {subject.baseline, subject.faulty[fault]}, nullptr, bench, how));
    const std::lock_guard lock(mutex_);
    Tally& tally = tallies_[fault];
    ++tally.jobs;
    tally.published += early || (!result.plan.empty() && !result.winner.is_baseline());
    // The last thing that is done is to time it.
    tally.timed_after +=
        result.end == MeasureEnd::finished && result.winner.is_baseline() && result.cold_us > 0;
    std::string own = "not tried", faulty;
    for (const ProgramTiming& timing : result.timings)
      (timing.program == subject.baseline.name() ? own : faulty) = timing.refusal;
    tally.baselines_right += own.empty();
    tally.refused += !faulty.empty();
    ++tally.refusals[faulty.substr(0, faulty.find_first_of(",;[0123456789"))];
    if (own.empty() && !faulty.empty() && result.end == MeasureEnd::finished) return;
    std::printf("%s, %s:\n%s", subject.graph.name.c_str(), kFaults[fault].name, result.report.c_str());
  }

  bool print() const {
    int done = 0;
    bool good = true;
    std::printf(
        "\n| planted | jobs | published | refused | baselines right | timed again behind it "
        "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < std::size(kFaults); ++i) {
      const Tally& tally = tallies_[i];
      std::printf("| %s | %d | %d | %d | %d | %d |\n", kFaults[i].name, tally.jobs, tally.published,
                  tally.refused, tally.baselines_right, tally.timed_after);
      done += tally.jobs;
      good &= tally.published == 0 && tally.refused == tally.jobs && tally.baselines_right == tally.jobs &&
              tally.timed_after == tally.jobs;
    }
    std::printf("\n%d of %d jobs in %.1f minutes\n", done, options_.jobs, minutes_since(start_));
    for (size_t i = 0; i < std::size(kFaults); ++i)
      for (const auto& [refusal, times] : tallies_[i].refusals)
        std::printf("%s: %d times \"%s\"\n", kFaults[i].name, times, refusal.c_str());
    return good && done == options_.jobs;
  }

  const FaultOptions& options_;
  Compiler& compiler_;
  const Target& target_;
  std::atomic<int> next_ = 0;
  std::mutex mutex_;
  std::array<Tally, std::size(kFaults)> tallies_;
  std::barrier<> hang_{options_.parallel};
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

bool run_faults(const FaultOptions& options, Compiler& compiler, const Target& target) {
  return Campaign(options, compiler, target).run();
}

}  // namespace quern
