// quern-worker: started by quernd, with the socket to it as standard input. Of no use by hand.
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "core/jit/compiler.h"
#include "core/profile/bench_process.h"
#include "daemon/baseline_job.h"
#include "daemon/isolate.h"
#include "daemon/measure_job.h"
#include "daemon/optimize_job.h"
#include "daemon/worker.h"

namespace quern {

namespace {

struct Arguments {
  WorkerLimits limits;
  std::string nvrtc;
  int measure = -1;  // the GPU to measure on
  int bench = -1;    // the GPU that programs are tried on for a parent (core/profile/bench_process.h)
};

bool parse(int argc, char** argv, Arguments& arguments) {
  const option options[] = {{"nvrtc", required_argument, nullptr, 'n'},
                            {"cpu-seconds", required_argument, nullptr, 'c'},
                            {"memory-mb", required_argument, nullptr, 'm'},
                            {"background", no_argument, nullptr, 'b'},
                            {"measure", required_argument, nullptr, 't'},
                            {"bench", required_argument, nullptr, 'g'},
                            {nullptr, 0, nullptr, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    if (option == 'n')
      arguments.nvrtc = optarg;
    else if (option == 'c')
      arguments.limits.cpu_seconds = std::strtoull(optarg, nullptr, 10);
    else if (option == 'm')
      arguments.limits.memory_bytes = std::strtoull(optarg, nullptr, 10) << 20;
    else if (option == 'b')
      setpriority(PRIO_PROCESS, 0, 19);
    else if (option == 't')
      arguments.measure = std::atoi(optarg);
    else if (option == 'g')
      arguments.bench = std::atoi(optarg);
    else
      return false;
  }
  return true;
}

std::string own_path() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

int bench(int number) {
  return serve_bench(0, [number](const Graph& graph, DeviceBenchOptions options) {
    options.device = number;
    return open_device_bench(graph, options);
  });
}

// The GPU is in a process of its own: this one outlives what hangs or faults there.
OpenGraphBench bench_opener(int number, const std::string& target, Compiler* compiler) {
  return [number, target, compiler](const Graph& graph, bool tf32) {
    BenchProcessOptions options;
    const auto known = find_target(target);
    options.target = known ? *known : nullptr;
    options.compiler = compiler;
    options.bench.threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
    options.command = {own_path(), "--bench", std::to_string(number)};
    options.bench.tf32 = tf32;
    return open_bench(graph, options);
  };
}

int serve(Arguments arguments) {
  auto compiler = open_nvrtc(arguments.nvrtc);
  WorkerSkill skill;
  if (!compiler)
    skill.reason = compiler.status().message();
  else
    skill.toolchain = (*compiler)->fingerprint();
  PieceMemo memo;
  if (arguments.measure >= 0) {
    skill.measures = true;
    skill.gpu = find_gpu(arguments.measure, skill.gpus);
    // CUDA reserves more address space than there is memory. The wall clock is the limit.
    arguments.limits = {0, 0};
  }
  skill.run = [&](const wire::Job& job, const WorkerSkill::Send& send) -> Result<wire::JobDone> {
    if (job.kind == wire::JobKind::measure) {
      Compiler* const own = compiler.ok() ? compiler->get() : nullptr;
      return run_measure(own, bench_opener(arguments.measure, skill.gpu.target, own), job, send);
    }
    return job.kind == wire::JobKind::optimize ? run_optimize(**compiler, memo, job, send)
                                               : compile_baseline(**compiler, job.graph, job.target);
  };
  return run_worker(0, skill, arguments.limits);
}

}  // namespace

}  // namespace quern

int main(int argc, char** argv) {
  quern::Arguments arguments;
  if (!quern::parse(argc, argv, arguments)) return 2;
  // A search goes on for a while before it would notice that the daemon is gone.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(0, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "quern-worker is started by quernd, with a socket as its standard input\n");
    return 2;
  }
  const quern::Status isolated = quern::isolate(arguments.bench >= 0     ? quern::Confinement::uses_gpu
                                                : arguments.measure >= 0 ? quern::Confinement::measures
                                                                         : quern::Confinement::compiles);
  if (!isolated.ok()) {
    std::fprintf(stderr, "quern-worker: %s\n", isolated.message().c_str());
    return 1;
  }
  return arguments.bench >= 0 ? quern::bench(arguments.bench) : quern::serve(std::move(arguments));
}
