// The standing attack, for as long as one likes and on as many processors:
//   attack [--what all|programs|verifier|texts] [--jobs N] [--minutes M] [--report FILE] [--first SEED] [--graphs N]
//          [--targets sm_80,sm_90a] [--best N] [--others N] [--mutants N]
//
//   attack --case FILE
//     one finding again, or any graph behind the lines "seed 1" and "== graph"
//
// programs: the best-ranked programs of random graphs in the emulator on hostile inputs; verifier: --mutants
// of each of three muGraphs of a graph; texts: --mutants of the texts of each graph; all: programs of every
// graph, and mutants of those of every fourth one.
//
// Goes through the seeds from --first on, four graphs a batch, until --graphs are done or --minutes are over;
// a batch that would not be finished by then is not begun. FILE is a table of all that was counted, written
// anew every few seconds. Batches and findings, which tests/hostile/cases takes as they are, lie in the
// folder FILE.batches: run again with the same --report, it goes on with batches that are not there. Exits
// with 1 if anything was found.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "core/base/target.h"
#include "tests/hostile/campaign.h"
#include "tests/hostile/texts.h"
#include "tests/hostile/wrong_mugraphs.h"
#include "tools/bench/attack_ledger.h"

namespace {

using namespace quern;
using Clock = std::chrono::steady_clock;

constexpr double kGraceSeconds = 30;  // beyond --minutes, for batches that are under way
constexpr double kReportSeconds = 5;

struct Options {
  CampaignOptions campaign;
  std::string what = "all", report = "attack.md", case_file;
  uint64_t first = 1, graphs = UINT64_MAX, mutants = 18;
  size_t jobs = 1;
  double minutes = 1e18;
};

[[noreturn]] void refuse(const std::string& why) {
  std::cerr << "attack: " << why << "\n";
  std::exit(2);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

uint64_t number(const char* text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end) refuse(std::string("not a number: ") + text);
  return value;
}

double positive(const char* text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end || !(value > 0)) refuse(std::string("no positive number: ") + text);
  return value;
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) refuse(flag + " needs a value");
    const char* value = argv[i + 1];
    if (flag == "--what")
      options.what = value;
    else if (flag == "--mutants")
      options.mutants = number(value);
    else if (flag == "--first")
      options.first = number(value);
    else if (flag == "--graphs")
      options.graphs = number(value);
    else if (flag == "--minutes")
      options.minutes = positive(value);
    else if (flag == "--targets")
      options.campaign.targets = split(value);
    else if (flag == "--best")
      options.campaign.best = number(value);
    else if (flag == "--jobs")
      options.jobs = std::max<size_t>(1, number(value));
    else if (flag == "--others")
      options.campaign.others = number(value);
    else if (flag == "--case")
      options.case_file = value;
    else if (flag == "--report")
      options.report = value;
    else
      refuse("no option " + flag);
  }
  for (const std::string& target : options.campaign.targets)
    if (!find_target(target)) refuse("no target " + target);
  if (const std::vector<std::string> all = {"all", "programs", "verifier", "texts"};
      std::find(all.begin(), all.end(), options.what) == all.end())
    refuse("--what is all, programs, verifier or texts");
  options.campaign.compilers = options.case_file.empty() ? 1 : 0;
  return options;
}

Tally attack_case(const Options& options) {
  std::stringstream text;
  text << std::ifstream(options.case_file).rdbuf();
  auto test = parse_case(text.str());
  if (!test) refuse(options.case_file + ": " + test.status().message());
  return attack_cases({*test}, options.campaign);
}

Tally attack_batch(const Options& options, uint64_t first, size_t count) {
  Tally tally;
  if (options.what == "all" || options.what == "programs")
    tally.merge(attack_graphs(first, count, options.campaign));
  if (options.what == "all" || options.what == "verifier") {
    Tally verifier = attack_verifier(first, options.what == "all" ? 1 : count, options.mutants);
    if (options.what == "all") verifier.counts.erase("graphs");  // counted above
    tally.merge(verifier);
  }
  if (options.what == "texts") {
    std::vector<Texts> corpus;
    for (uint64_t seed = first; seed < first + count; ++seed)
      for (Texts& texts : searched_texts(seed)) corpus.push_back(std::move(texts));
    if (!corpus.empty()) tally.merge(attack_texts(corpus, first * options.mutants, count * options.mutants));
  }
  return tally;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Every jobs-th batch, from that of this worker on.
void work(const Options& options, size_t worker, Clock::time_point start, const AttackLedger& ledger) {
  const std::set<uint64_t> done = ledger.done();
  double longest = 0;  // batch
  for (uint64_t batch = worker;; batch += options.jobs) {
    const uint64_t begin = batch * options.campaign.batch;
    if (begin >= options.graphs || seconds_since(start) + longest > 60 * options.minutes) return;
    const uint64_t first = options.first + begin;
    if (done.count(first)) continue;
    const auto began = Clock::now();
    ledger.add(first, attack_batch(options, first,
                                   std::min<uint64_t>(options.campaign.batch, options.graphs - begin)));
    longest = std::max(longest, seconds_since(began));
  }
}

// A group of its own each, to be ended with all that it has started.
std::vector<pid_t> start_workers(const Options& options, Clock::time_point start,
                                 const AttackLedger& ledger) {
  std::vector<pid_t> workers;
  for (size_t worker = 0; worker < options.jobs; ++worker) {
    const pid_t child = fork();
    if (child < 0) refuse("no process can be started");
    if (child == 0) {
      setpgid(0, 0);
      work(options, worker, start, ledger);
      _exit(0);
    }
    workers.push_back(child);
  }
  return workers;
}

void write_report(const Options& options, const AttackLedger& ledger, Clock::time_point start) {
  std::ofstream(options.report) << attack_table(ledger.total(), seconds_since(start), options.jobs);
}

void wait_for(std::vector<pid_t> workers, const Options& options, const AttackLedger& ledger,
              Clock::time_point start) {
  double reported = 0;
  while (!workers.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::erase_if(workers, [](pid_t worker) { return waitpid(worker, nullptr, WNOHANG) == worker; });
    if (seconds_since(start) > 60 * options.minutes + kGraceSeconds)
      for (pid_t worker : workers) kill(-worker, SIGKILL);
    if (seconds_since(start) - reported < kReportSeconds) continue;
    reported = seconds_since(start);
    write_report(options, ledger, start);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  const auto start = Clock::now();
  if (!options.case_file.empty()) {
    const Tally tally = attack_case(options);
    std::cout << attack_table(tally, seconds_since(start), 1);
    return tally.findings.empty() ? 0 : 1;
  }
  const AttackLedger ledger(options.report + ".batches");
  wait_for(start_workers(options, start, ledger), options, ledger, start);
  write_report(options, ledger, start);
  const Tally tally = ledger.total();
  std::cout << attack_table(tally, seconds_since(start), options.jobs);
  return tally.findings.empty() ? 0 : 1;
}
