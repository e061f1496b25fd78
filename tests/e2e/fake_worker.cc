// A worker for tests: the real loop of a worker with a compiler that is none. Files in $QUERN_FAKE_DIR tell
// it what to do:
//   toolchain      its fingerprint (default "fake 1.0");  no_compiler: it has none, and this is why
//   crashes        how many of the next jobs kill it;     hangs, spins: the same for jobs that never end
//   delay_ms       how long a job takes, read while it runs, so that less ends it;  fails: what every job fails with
//   search_crashes, search_hangs, search_delay_ms: the same for searches;  search_finds: their plans are
//   better;  search_lists: they list programs;
//   search_tells: they say that they have a plan before they go on
//   gpu            the device that it measures on, of target sm_90a (default: there is no driver)
//   measure_crashes, measure_hangs, measure_delay_ms: the same for measuring, after an early plan if measure_early says so;
//   measure_fails: what every measuring fails with, as NO_DEVICE or, with measure_busy, as BUSY
// and it writes there: `compiles`, `searches` and `measures` one byte a job, once it has counted down, `pids`, `search_pids` and
// `measure_pids` one line a process.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "core/optimize/program.h"
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

void take_time(const char* name) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  while (Clock::now() - begin < std::chrono::milliseconds(std::atoi(read_text(name).c_str()))) usleep(2000);
}

void put_plan(const wire::Job& job, wire::JobDone& done) {
  done.plan = fake_plan(job.graph, job.target, 5000, Tier::modelled);
  done.modelled_ns = 1000;
  done.reason.clear();
  done.mugraph = "the muGraph";
  done.schedule = "the schedule";
  done.cuda = "the CUDA text";
}

// A plan, and where the search stands.
wire::JobProgress what_it_has(const wire::Job& job) {
  wire::JobDone done;
  put_plan(job, done);
  done.state = "piece 1";
  wire::JobProgress progress;
  progress.so_far = wire::encode(0, done);
  return progress;
}

Result<wire::JobDone> run_search(const wire::Job& job, const WorkerSkill::Send& send) {
  const bool crashes = take_one("search_crashes"), hangs = take_one("search_hangs");
  append("searches", "x");
  if (crashes) abort();
  if (!read_text("search_tells").empty()) send(what_it_has(job));
  if (hangs) pause();
  take_time("search_delay_ms");
  wire::JobDone done;
  done.reason = "the fake finds nothing";
  done.report = "search: 0 candidates\n";
  if (!read_text("search_lists").empty()) {
    std::vector<Program> programs = {{"", "", 9000, ""}, {"the muGraph", "the schedule", 1000, ""}};
    programs.push_back({"the muGraph", "another schedule", 2000, ""});
    done.programs = encode_programs(programs);
  }
  if (read_text("search_finds").empty()) return done;
  put_plan(job, done);
  done.report = "search: 1 candidate\ncandidate 0 (1.00 us): taken\n";
  return done;
}

// The last program of the list is the fastest.
Result<wire::JobDone> run_measure(const wire::Job& job, const WorkerSkill::Send& send) {
  const bool crashes = take_one("measure_crashes"), hangs = take_one("measure_hangs");
  append("measures", "x");
  const auto programs = decode_programs(job.programs);
  if (!programs) return programs.status();
  wire::JobProgress progress;
  progress.tried = 1;
  progress.programs = static_cast<uint32_t>(programs->size());
  progress.best_ps = 5'000'000;
  progress.device = read_text("gpu");
  if (!read_text("measure_early").empty()) {
    progress.plan = fake_plan(job.graph, job.target, 6000, Tier::measured);
    progress.program = (*programs)[1].name();
  }
  send(progress);
  if (crashes) abort();
  if (hangs) pause();
  take_time("measure_delay_ms");
  const bool busy = !read_text("measure_busy").empty();
  if (const std::string why = read_text("measure_fails"); !why.empty())
    return Status(busy ? ErrorCode::BUSY : ErrorCode::NO_DEVICE, why);
  wire::JobDone done;
  done.device = progress.device;
  done.plan = fake_plan(job.graph, job.target, 7000, Tier::measured);
  done.mugraph = programs->back().mugraph;
  done.schedule = programs->back().schedule;
  done.reason = "the last is the fastest";
  for (size_t i = 0; i < programs->size(); ++i) {
    wire::TimingRow row;
    row.program = (*programs)[i].name();
    row.cold_ps = (9 - i) * 1'000'000;
    row.samples = 25;
    done.timings.push_back(row);
  }
  return done;
}

Result<wire::JobDone> run(const wire::Job& job, const WorkerSkill::Send& send) {
  if (job.kind == wire::JobKind::measure) return run_measure(job, send);
  if (job.kind == wire::JobKind::optimize) return run_search(job, send);
  const bool crashes = take_one("crashes"), hangs = take_one("hangs"), spins = take_one("spins");
  append("compiles", "x");
  if (crashes) abort();
  if (hangs) pause();
  if (spins)
    while (getpid() != 0) {
    }
  take_time("delay_ms");
  if (const std::string why = read_text("fails"); !why.empty()) return Status(ErrorCode::COMPILE, why);
  return wire::JobDone{fake_plan(job.graph, job.target, 4000), 1000, 2000};
}

int serve(int argc, char** argv) {
  WorkerLimits limits;
  bool background = false;
  int measure = -1;
  const option options[] = {{"cpu-seconds", required_argument, nullptr, 'c'},
                            {"memory-mb", required_argument, nullptr, 'm'},
                            {"background", no_argument, nullptr, 'b'},
                            {"measure", required_argument, nullptr, 't'},
                            {nullptr, 0, nullptr, 0}};
  for (int option; (option = getopt_long(argc, argv, "", options, nullptr)) != -1;)
    if (option == 'c')
      limits.cpu_seconds = std::strtoull(optarg, nullptr, 10);
    else if (option == 'b')
      background = true;
    else if (option == 't')
      measure = std::atoi(optarg);
  append(measure >= 0 ? "measure_pids"
         : background ? "search_pids"
                      : "pids",
         std::to_string(getpid()) + "\n");
  WorkerSkill skill;
  if (measure >= 0) {
    skill.measures = true;
    skill.gpus = 1;
    skill.gpu = {measure, GpuState::Kind::ready, read_text("gpu"), "sm_90a", ""};
    if (skill.gpu.device.empty()) skill.gpu = {measure, GpuState::Kind::missing, "", "", "no driver"};
    limits = {0, 0};
  }
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
