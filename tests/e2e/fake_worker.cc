// A worker for tests: the real loop of a worker with a compiler that is none. Files in $QUERN_FAKE_DIR tell
// it what to do:
//   toolchain      its fingerprint (default "fake 1.0");  no_compiler: it has none, and this is why
//   crashes        how many of the next jobs kill it;     hangs, spins: the same for jobs that never end
//   delay_ms       how long a job takes;                  fails: what every job fails with
//   search_crashes, search_hangs, search_delay_ms: the same for searches;  search_finds: their plans are
//   better
// and it writes there: `compiles` and `searches` one byte a job, `pids` and `search_pids` one line a process.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/worker.h"
#include "tests/daemon/fake_plan.h"

namespace quern {

namespace {

std::string path_of(const char* name) { return std::string(std::getenv("QUERN_FAKE_DIR")) + "/" + name; }

std::string read_text(const char* name) {
  std::ifstream in(path_of(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void append(const char* name, const std::string& text) {
  const int fd = open(path_of(name).c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  [[maybe_unused]] const ssize_t size = write(fd, text.data(), text.size());
  close(fd);
}

// Counts the number in the file down; false when it has come to 0.
bool take_one(const char* name) {
  const int left = std::atoi(read_text(name).c_str());
  if (left <= 0) return false;
  std::ofstream(path_of(name)) << left - 1;
  return true;
}

Result<wire::JobDone> run_search(const wire::Job& job) {
  append("searches", "x");
  if (take_one("search_crashes")) abort();
  if (take_one("search_hangs")) pause();
  if (const int delay = std::atoi(read_text("search_delay_ms").c_str()))
    usleep(static_cast<useconds_t>(delay) * 1000);
  wire::JobDone done;
  done.reason = "the fake finds nothing";
  done.report = "search: 0 candidates\n";
  if (read_text("search_finds").empty()) return done;
  done.plan = fake_plan(job.graph, job.target, 5000, Tier::modelled);
  done.modelled_ns = 1000;
  done.reason.clear();
  done.report = "search: 1 candidate\n";
  done.mugraph = "the muGraph";
  done.schedule = "the schedule";
  done.cuda = "the CUDA text";
  return done;
}

Result<wire::JobDone> run(const wire::Job& job) {
  if (job.kind == wire::JobKind::optimize) return run_search(job);
  append("compiles", "x");
  if (take_one("crashes")) abort();
  if (take_one("hangs")) pause();
  if (take_one("spins"))
    while (getpid() != 0) {
    }
  if (const int delay = std::atoi(read_text("delay_ms").c_str()))
    usleep(static_cast<useconds_t>(delay) * 1000);
  if (const std::string why = read_text("fails"); !why.empty()) return Status(ErrorCode::COMPILE, why);
  return wire::JobDone{fake_plan(job.graph, job.target, 4000), 1000, 2000};
}

int serve(int argc, char** argv) {
  WorkerLimits limits;
  bool background = false;
  const option options[] = {{"cpu-seconds", required_argument, nullptr, 'c'},
                            {"memory-mb", required_argument, nullptr, 'm'},
                            {"background", no_argument, nullptr, 'b'},
                            {nullptr, 0, nullptr, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) != -1;)
    if (option == 'c')
      limits.cpu_seconds = std::strtoull(optarg, nullptr, 10);
    else if (option == 'b')
      background = true;
  append(background ? "search_pids" : "pids", std::to_string(getpid()) + "\n");
  WorkerSkill skill;
  skill.reason = read_text("no_compiler");
  skill.toolchain = read_text("toolchain");
  if (skill.toolchain.empty()) skill.toolchain = "fake 1.0";
  if (!skill.reason.empty()) skill.toolchain.clear();
  skill.run = run;
  return run_worker(0, skill, limits);
}

}  // namespace

}  // namespace quern

int main(int argc, char** argv) { return quern::serve(argc, argv); }
