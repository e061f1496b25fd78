#include "tools/bench/gpu/faults.h"

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/random.h"
#include "core/codegen/baseline.h"
#include "core/profile/bench_process.h"
#include "core/profile/measure.h"
#include "tests/support/random_workload.h"
#include "tools/bench/gpu/need.h"

namespace quern {

namespace {

struct Fault {
  const char* name;
  const char* body;  // of a kernel with one thread: T* out, long long elements, char* in
};
constexpr Fault kFaults[] = {
    {"hangs", "while (true) asm volatile(\"nanosleep.u32 200;\");"},
    {"faults", "*reinterpret_cast<volatile int*>(16) = 1;"},
    {"writes behind an output", "reinterpret_cast<char*>(out + elements)[8] ^= 0x55;"},
    {"writes before an output", "reinterpret_cast<char*>(out)[-8] ^= 0x55;"},
    {"writes an input", "in[0] ^= 1;"},
    {"gives NaN", "out[elements / 2] = not_a_number(out);"},
    {"is wrong in one element", "out[elements - 1] = another(out[elements - 1]);"},
};

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

const char* type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "float";
    case DType::i32:
      return "int";
    default:
      return "bool";
  }
}

}  // namespace

Result<FaultyJob> make_faulty_job(uint64_t number, Compiler& compiler, const Target& target) {
  const Fault& fault = kFaults[number % std::size(kFaults)];
  FaultyJob job{fault.name, random_workload(number + 1), {}};
  auto emitted = emit_baseline(job.graph, target);
  if (!emitted) return emitted.status();
  const TensorDesc& output = emitted->plan.outputs[0];
  std::string source = emitted->source + kValues;
  source += std::string("extern \"C\" __global__ void planted(") + type_of(output.dtype) +
            "* out, long long elements, char* in) {\n" + fault.body + "\n}\n";
  // Both of one source, so that only the launches differ.
  auto compiled = compiler.compile({source, target.name, {}});
  if (!compiled) return compiled.status();
  Plan plan = emitted->plan;
  plan.cubin = compiled->cubin;
  job.programs.push_back({"", "", 2000, encode_plan(plan)});
  using Kind = LaunchArg::Kind;
  plan.tier = Tier::modelled;
  plan.launches.push_back({"planted",
                           {},
                           {},
                           {},
                           0,
                           {{Kind::output, 0}, {Kind::integer, output.element_count()}, {Kind::input, 0}}});
  job.programs.push_back({std::string("planted: ") + fault.name, "", 1000, encode_plan(plan)});
  return job;
}

bool run_faults(const FaultOptions& options, Compiler& compiler, const Target& target) {
  struct Tally {
    int jobs = 0, published = 0, baseline_refused = 0, undecided = 0;
    std::map<std::string, int> refusals;
  };
  std::mutex mutex;
  std::map<std::string, Tally> tallies;
  std::atomic<int> next = 0;
  auto note = [&](const FaultyJob& job, const MeasureResult& result, bool early) {
    const std::lock_guard lock(mutex);
    Tally& tally = tallies[job.fault];
    ++tally.jobs;
    tally.published += early || (!result.plan.empty() && !result.winner.is_baseline());
    tally.undecided += result.plan.empty();
    if (result.plan.empty()) std::printf("%s: %s\n", job.graph.name.c_str(), result.report.c_str());
    for (const ProgramTiming& timing : result.timings) {
      if (timing.refusal.empty()) continue;
      if (timing.program == Program{}.name()) {
        ++tally.baseline_refused;
        std::printf("%s, the baseline: %s\n", job.graph.name.c_str(), timing.refusal.c_str());
      } else {
        ++tally.refusals[timing.refusal.substr(0, timing.refusal.find_first_of(",;[0123456789"))];
      }
    }
  };
  auto work = [&] {
    for (int number; (number = next++) < options.jobs;) {
      const FaultyJob job = need(make_faulty_job(static_cast<uint64_t>(number), compiler, target));
      BenchProcessOptions process;
      process.command = {options.worker, "--bench", std::to_string(options.device)};
      process.bench.memory_share = 0.02;
      process.compiler = &compiler;
      process.target = &target;
      const auto bench = need(open_bench(job.graph, process));
      MeasureOptions how;
      how.most_disturbance = 1;
      bool early = false;
      how.on_progress = [&](const MeasureProgress& progress) { early |= !progress.plan.empty(); };
      note(job, need(measure(job.graph, target, job.programs, nullptr, *bench, how)), early);
      if (number % 50 == 49) std::printf("%d jobs\n", number + 1), std::fflush(stdout);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < options.parallel; ++i) threads.emplace_back(work);
    work();
  }
  bool good = true;
  for (const auto& [fault, tally] : tallies) {
    std::printf("%s: %d jobs, %d published, %d baselines refused, %d undecided\n", fault.c_str(), tally.jobs,
                tally.published, tally.baseline_refused, tally.undecided);
    for (const auto& [refusal, times] : tally.refusals) std::printf("  %5d  %s\n", times, refusal.c_str());
    good &= tally.published == 0 && tally.baseline_refused == 0;
  }
  return good;
}

}  // namespace quern
