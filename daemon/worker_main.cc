// quern-worker: started by quernd, with the socket to it as standard input. Of no use by hand.
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>

#include "core/jit/compiler.h"
#include "core/profile/bench_process.h"
#include "daemon/baseline_job.h"
#include "daemon/optimize_job.h"
#include "daemon/worker.h"

int main(int argc, char** argv) {
  quern::WorkerLimits limits;
  std::string nvrtc;
  int bench = -1;  // the GPU that programs are tried on for a parent (core/profile/bench_process.h)
  const option options[] = {
      {"nvrtc", required_argument, nullptr, 'n'},     {"cpu-seconds", required_argument, nullptr, 'c'},
      {"memory-mb", required_argument, nullptr, 'm'}, {"background", no_argument, nullptr, 'b'},
      {"bench", required_argument, nullptr, 'g'},     {nullptr, 0, nullptr, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    if (option == 'n')
      nvrtc = optarg;
    else if (option == 'c')
      limits.cpu_seconds = std::strtoull(optarg, nullptr, 10);
    else if (option == 'm')
      limits.memory_bytes = std::strtoull(optarg, nullptr, 10) << 20;
    else if (option == 'b')
      setpriority(PRIO_PROCESS, 0, 19);
    else if (option == 'g')
      bench = std::atoi(optarg);
    else
      return 2;
  }
  // A search goes on for a while before it would notice that the daemon is gone.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(0, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    std::fprintf(stderr, "quern-worker is started by quernd, with a socket as its standard input\n");
    return 2;
  }
  if (bench >= 0)
    return quern::serve_bench(0, [&](const quern::Graph& graph, quern::DeviceBenchOptions options) {
      options.device = bench;
      return quern::open_device_bench(graph, options);
    });
  auto compiler = quern::open_nvrtc(nvrtc);
  quern::WorkerSkill skill;
  if (!compiler)
    skill.reason = compiler.status().message();
  else
    skill.toolchain = (*compiler)->fingerprint();
  quern::PieceMemo memo;
  skill.run = [&](const quern::wire::Job& job) {
    return job.kind == quern::wire::JobKind::optimize
               ? quern::run_optimize(**compiler, memo, job)
               : quern::compile_baseline(**compiler, job.graph, job.target);
  };
  return quern::run_worker(0, skill, limits);
}
