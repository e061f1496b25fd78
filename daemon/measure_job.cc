#include "daemon/measure_job.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/base/numerics.h"
#include "core/base/target.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/jit/driver.h"
#include "core/mugraph/text.h"
#include "core/optimize/program.h"
#include "core/profile/device_bench.h"
#include "core/profile/measure.h"
#include "core/schedule/schedule.h"
#include "core/verify/rounded_values.h"

namespace quern {

namespace {

// Beside the threads that check outputs, on a machine that others use too.
constexpr unsigned kMostCompilers = 8;

// Counts of thousandths of the unit; what is not finite has no place in a message.
uint64_t scaled(double value, double factor) {
  constexpr double kMost = 1e18;
  return std::isfinite(value) && value > 0 ? static_cast<uint64_t>(std::min(value * factor, kMost)) : 0;
}

wire::TimingRow row_of(const ProgramTiming& timing) {
  wire::TimingRow row;
  row.program = timing.program;
  // A refused program may have been timed before it went wrong: that time is of no use.
  row.cold_ps = timing.refusal.empty() ? scaled(timing.cold_ns, 1e3) : 0;
  row.hot_ps = timing.refusal.empty() ? scaled(timing.hot_ns, 1e3) : 0;
  row.samples = timing.samples;
  row.error_ppb = scaled(timing.error, 1e9);
  row.refusal = timing.refusal;
  return row;
}

// The text that a searched program was compiled from: its certificate has the hash of it. Empty if it cannot
// be emitted any more.
std::string cuda_of(const Graph& graph, const Target& target, const Program& program) {
  if (program.is_baseline()) return "";
  auto mugraph = parse_mugraph(program.mugraph);
  const auto schedule = parse_schedule(program.schedule);
  if (!mugraph || !schedule) return "";
  note_rounded_values(graph, *mugraph);
  auto emitted = emit_mugraph(graph, *mugraph, *schedule, target);
  return emitted ? std::move(emitted->source) : "";
}

wire::JobProgress progress_of(const MeasureProgress& from, const std::string& device) {
  wire::JobProgress progress;
  progress.tried = static_cast<uint32_t>(from.tried);
  progress.programs = static_cast<uint32_t>(from.programs);
  progress.best_ps = scaled(from.best_us, 1e6);
  progress.baseline_ps = scaled(from.baseline_us, 1e6);
  progress.plan = from.plan;
  progress.program = from.program;
  progress.device = device;
  return progress;
}

wire::JobDone done_of(MeasureResult result) {
  wire::JobDone done;
  done.device = std::move(result.device);
  done.plan = std::move(result.plan);
  done.mugraph = std::move(result.winner.mugraph);
  done.schedule = std::move(result.winner.schedule);
  done.programs = encode_programs(result.programs);
  for (const ProgramTiming& timing : result.timings) done.timings.push_back(row_of(timing));
  done.reason = std::move(result.reason);
  done.report = std::move(result.report);
  return done;
}

}  // namespace

Result<wire::JobDone> run_measure(Compiler* compiler, const OpenGraphBench& open, const wire::Job& job,
                                  const WorkerSkill::Send& send) {
  auto graph = parse_graph(job.graph);
  if (!graph) return graph.status();
  auto target = find_target(job.target);
  if (!target) return target.status();
  auto programs = decode_programs(job.programs);
  if (!programs) return programs.status();
  MeasureOptions options;
  options.budget = std::chrono::milliseconds(job.budget_ms);
  options.jobs = std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMostCompilers);
  options.allow_tf32 = (job.numerics & kAllowTf32) != 0;
  options.make_solver = make_z3_solver;
  options.standing = job.standing;
  if (job.any_load) options.most_disturbance = 1;
  std::unique_ptr<Bench> bench;
  auto open_bench = [&]() -> Result<Bench*> {
    auto opened = open(*graph, options.allow_tf32);
    if (!opened) return opened.status();
    bench = std::move(*opened);
    return bench.get();
  };
  const std::vector<Program> list = *programs;
  options.on_progress = [&](const MeasureProgress& progress) {
    wire::JobProgress message = progress_of(progress, bench->device());
    for (const Program& program : list)
      if (!message.plan.empty() && program.name() == message.program)
        message.cuda = cuda_of(*graph, **target, program);
    send(message);
  };
  if (compiler && compiler->fingerprint() != job.toolchain) compiler = nullptr;
  auto result = measure(*graph, **target, std::move(*programs), compiler, open_bench, options);
  if (!result) return result.status();
  if (result->end == MeasureEnd::disturbed) return Status(ErrorCode::BUSY, result->reason);
  if (result->end == MeasureEnd::lost)
    return Status(ErrorCode::NO_DEVICE, "the GPU is lost: " + result->reason);
  std::string cuda = cuda_of(*graph, **target, result->winner);
  wire::JobDone done = done_of(std::move(*result));
  done.cuda = std::move(cuda);
  return done;
}

GpuState find_gpu(int number, uint32_t& count) {
  GpuState gpu;
  gpu.number = number;
  gpu.kind = GpuState::Kind::missing;
  count = 0;
  const auto driver = Driver::open();
  if (!driver) {
    gpu.reason = driver.status().message();
    return gpu;
  }
  count = static_cast<uint32_t>((*driver)->device_count());
  const auto info = (*driver)->device(number);
  const auto target =
      info.ok() ? target_for_device(info->major, info->minor) : Result<const Target*>(info.status());
  if (!target) {
    gpu.reason = target.status().message();
    return gpu;
  }
  gpu.kind = GpuState::Kind::ready;
  gpu.target = (*target)->name;
  gpu.device = device_text(**driver, *info);
  return gpu;
}

}  // namespace quern
