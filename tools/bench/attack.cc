// The standing attack, for as long as one likes:
//   attack [--what programs|verifier|texts] [--first SEED] [--graphs N] [--seconds N] [--findings FOLDER]
//          [--report FILE] [--targets sm_80,sm_90a] [--best N] [--others N] [--mutants N] [--jobs N]
//
//   attack --case FILE
//     one finding again, or any graph behind the lines "seed 1" and "== graph"
//
// programs: the best-ranked programs of random graphs in the emulator on hostile inputs; verifier: --mutants
// of each of their muGraphs; texts: --mutants of the texts of each graph. Goes through the seeds from --first
// on until --graphs are done or --seconds have passed, and prints what it counted and the seed to go on from;
// every finding becomes a file that tests/hostile/cases takes as it is.
// --report is written anew after every batch. Exits with 1 if anything was found. --jobs: compilers at a time,
// all processors without it.
//
// Any number of processes may go through seeds of their own, and their counts be added:
//   seq 1 4 1997 | xargs -P $(nproc) -I{} attack --first {} --graphs 4 --jobs 1 --findings F --report F/{}.report
//   awk '/: [0-9]+$/ { n = $NF; sub(/: [0-9]+$/, ""); sum[$0] += n }
//     END { for (what in sum) print what ": " sum[what] }' F/*.report | sort
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "core/base/target.h"
#include "tests/hostile/campaign.h"
#include "tests/hostile/texts.h"
#include "tests/hostile/wrong_mugraphs.h"

namespace {

using namespace quern;
using Clock = std::chrono::steady_clock;

struct Options {
  CampaignOptions campaign;
  std::string what = "programs";
  uint64_t first = 1, graphs = UINT64_MAX, mutants = 40;
  double seconds = 1e18;
  std::string findings = ".", report, case_file;
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
    else if (flag == "--seconds")
      options.seconds = static_cast<double>(number(value));
    else if (flag == "--targets")
      options.campaign.targets = split(value);
    else if (flag == "--best")
      options.campaign.best = number(value);
    else if (flag == "--jobs")
      options.campaign.compilers = number(value);
    else if (flag == "--others")
      options.campaign.others = number(value);
    else if (flag == "--findings")
      options.findings = value;
    else if (flag == "--case")
      options.case_file = value;
    else if (flag == "--report")
      options.report = value;
    else
      refuse("no option " + flag);
  }
  for (const std::string& target : options.campaign.targets)
    if (!find_target(target)) refuse("no target " + target);
  return options;
}

Tally attack(const Options& options, uint64_t first, size_t count) {
  if (!options.case_file.empty()) {
    std::stringstream text;
    text << std::ifstream(options.case_file).rdbuf();
    auto test = parse_case(text.str());
    if (!test) refuse(options.case_file + ": " + test.status().message());
    return attack_cases({*test}, options.campaign);
  }
  if (options.what == "programs") return attack_graphs(first, count, options.campaign);
  if (options.what == "verifier") return attack_verifier(first, count, options.mutants);
  if (options.what != "texts") refuse("--what is programs, verifier or texts");
  std::vector<Texts> corpus;
  for (uint64_t seed = first; seed < first + count; ++seed)
    for (Texts& texts : searched_texts(seed)) corpus.push_back(std::move(texts));
  return corpus.empty() ? Tally() : attack_texts(corpus, first * options.mutants, count * options.mutants);
}

void write_finding(const Options& options, const Finding& finding, uint64_t batch, size_t index) {
  const std::string path = options.findings + "/" + finding.cause + "-" + std::to_string(batch) + "-" +
                           std::to_string(index) + ".case";
  std::ofstream(path) << finding.text;
  std::cerr << path << ": " << finding.text.substr(0, finding.text.find('\n')) << "\n";
}

std::string table(const Tally& tally, uint64_t first, uint64_t next, double seconds) {
  std::ostringstream out;
  out << "seeds " << first << " to " << next - 1 << ", " << static_cast<int64_t>(seconds)
      << " s; go on with --first " << next << "\n";
  for (const auto& [what, count] : tally.counts) out << "  " << what << ": " << count << "\n";
  std::map<std::string, size_t> causes;
  for (const Finding& finding : tally.findings) ++causes[finding.cause];
  out << "findings: " << tally.findings.size() << "\n";
  for (const auto& [cause, count] : causes) out << "  " << cause << ": " << count << "\n";
  return out.str();
}

}  // namespace

int main(int argc, char** argv) {
  Options options = read_options(argc, argv);
  if (!options.case_file.empty()) options.graphs = 1;
  const Clock::time_point start = Clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Tally tally;
  uint64_t next = options.first;
  while (next - options.first < options.graphs && elapsed() < options.seconds) {
    const size_t batch = std::min<uint64_t>(options.campaign.batch, options.graphs - (next - options.first));
    const Tally now = attack(options, next, batch);
    for (size_t i = 0; i < now.findings.size(); ++i) write_finding(options, now.findings[i], next, i);
    tally.merge(now);
    next += batch;
    if (!options.report.empty())
      std::ofstream(options.report) << table(tally, options.first, next, elapsed());
  }
  std::cout << table(tally, options.first, next, elapsed());
  return tally.findings.empty() ? 0 : 1;
}
