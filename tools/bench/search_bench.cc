// What the search takes and what it goes through, as tables:
//   search_bench full [--runs N] GRAPH.qg...
//     the whole search at the default bound, and each verification
//   search_bench ablation [--limit S] GRAPH.qg...
//     bounds 5 to 11 with pruning, and 1 on without it until the limit (60 s of processor time) is reached
//
// Every measurement is a process of its own. Times are processor time, summed over threads, unless a column
// says wall: that is what a machine which is shared with others does not distort.
#include <time.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/graph/text.h"
#include "core/search/search.h"
#include "core/verify/verifier.h"
#include "tools/bench/in_child.h"
#include "tools/bench/unpruned.h"

namespace {

using namespace quern;

struct Input {
  std::string name;
  Graph graph;
};

Input read_input(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  return {name.substr(0, name.rfind('.')), need(parse_graph(read_file(path)))};
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class T>
T median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What a search went through, over all pieces.
struct Counts {
  size_t seen = 0, extended = 0, dags = 0, emitted = 0, verified = 0, failures = 0;
  double wall_s = 0;
  bool exhausted = true;
};

Counts count(const SearchReport& report) {
  Counts counts;
  for (const PieceReport& piece : report.pieces) {
    counts.seen += piece.generator.seen;
    counts.extended += piece.generator.extended;
    counts.dags += piece.generator.dags;
    counts.emitted += piece.emitted;
    counts.verified += piece.verified;
    counts.failures += piece.failures.size();
    counts.exhausted &= piece.generator.stop == GeneratorStop::exhausted;
  }
  counts.wall_s = report.seconds;
  return counts;
}

// ---- the whole search ----

// Processor time of one verification by a verifier of its own, which computes the reference, too; and of the
// slowest of those that share one, as in a search.
struct Verifications {
  size_t count = 0, accepted = 0;
  double alone_median_s = 0, alone_most_s = 0, shared_s = 0;
};

Verifications time_verifications(const Graph& graph, const SearchResult& found) {
  Verifications result;
  std::vector<double> alone;
  Verifier shared(graph, {.seed = 1});
  for (const Candidate& candidate : found.candidates) {
    double start = cpu_seconds();
    const Certificate certificate = verify(graph, candidate.mugraph, {.seed = 1});
    alone.push_back(cpu_seconds() - start);
    start = cpu_seconds();
    shared.verify(candidate.mugraph);
    result.shared_s += cpu_seconds() - start;
    ++result.count;
    result.accepted += certificate.verdict == Verdict::accepted;
  }
  if (alone.empty()) return result;
  result.alone_most_s = *std::max_element(alone.begin(), alone.end());
  result.alone_median_s = median(alone);
  result.shared_s /= static_cast<double>(alone.size());
  return result;
}

void print_full(const Input& input, const Target& target, int runs) {
  std::vector<double> cpu, wall, peak;
  Counts counts;
  for (int run = 0; run < runs; ++run) {
    Usage usage;
    counts = in_child([&] { return count(need(search(input.graph, target)).report); }, usage);
    cpu.push_back(usage.cpu_s);
    wall.push_back(counts.wall_s);
    peak.push_back(usage.peak_mib);
  }
  Usage usage;
  const Verifications verified =
      in_child([&] { return time_verifications(input.graph, need(search(input.graph, target))); }, usage);
  std::printf("| %s | %.2f | %.2f | %.0f | %zu | %zu | %zu | %zu | %.3f | %.3f | %.3f |\n",
              input.name.c_str(), median(cpu), median(wall), median(peak), counts.seen, counts.dags,
              counts.emitted, verified.accepted, verified.shared_s, verified.alone_median_s,
              verified.alone_most_s);
  std::fflush(stdout);
}

// ---- with pruning and without ----

std::string row(const Input& input, int bound, const char* pruning, const std::string& cells,
                const Usage& usage) {
  char line[256];
  std::snprintf(line, sizeof line, "| %s | %d | %s | %s | %.2f | %.0f |\n", input.name.c_str(), bound,
                pruning, cells.c_str(), usage.cpu_s, usage.peak_mib);
  return line;
}

std::string cells(std::initializer_list<size_t> counts, const char* suffix) {
  std::string text;
  for (size_t number : counts) text += (text.empty() ? "" : " | ") + std::to_string(number);
  return text + " | " + suffix;
}

void print_pruned(const Input& input, const Target& target, int bound) {
  Usage usage;
  const Counts counts = in_child(
      [&] {
        SearchOptions options;
        options.bound = bound;
        return count(need(search(input.graph, target, options)).report);
      },
      usage);
  std::printf("%s", row(input, bound, "on",
                        cells({counts.seen, counts.extended, counts.dags, counts.emitted, counts.verified},
                              counts.exhausted ? "yes" : "no"),
                        usage)
                        .c_str());
  std::fflush(stdout);
}

// False when the limit was reached.
bool print_unpruned(const Input& input, int bound, int limit_s) {
  Usage usage;
  const UnprunedReport report = in_child(
      [&] {
        const Terms program = need(make_terms(input.graph));
        EGraph saturated = program.egraph;
        saturate(saturated, all_axioms());
        return enumerate_unpruned(program, saturated, bound, limit_s);
      },
      usage);
  std::printf("%s", row(input, bound, "off",
                        cells({report.seen, report.extended, report.equal, report.complete, report.equal},
                              report.finished ? "yes" : "no"),
                        usage)
                        .c_str());
  std::fflush(stdout);
  return report.finished;
}

void print_ablation(const Input& input, const Target& target, int limit_s) {
  for (int bound = 5; bound <= 11; ++bound) print_pruned(input, target, bound);
  for (int bound = 1; bound <= 11; ++bound)
    if (!print_unpruned(input, bound, limit_s)) break;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  int runs = 5, limit_s = 60;
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
      runs = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--limit") == 0 && i + 1 < argc)
      limit_s = std::max(1, std::atoi(argv[++i]));
    else
      files.push_back(argv[i]);
  }
  if ((mode != "full" && mode != "ablation") || files.empty())
    stop(Status(ErrorCode::INVALID_ARGUMENT, "wanted: full or ablation, and graphs"));
  const Target& target = *need(find_target("sm_90a"));
  if (mode == "full")
    std::printf(
        "| graph | search s | wall s | peak MiB | operators tried | DAGs | muGraphs emitted | accepted | "
        "verification s: mean | alone, median | alone, most "
        "|\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  else
    std::printf(
        "| graph | bound | pruning | operators tried | prefixes | right DAGs | emitted | verified | finished "
        "| s | "
        "peak MiB |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& file : files) {
    const Input input = read_input(file);
    if (mode == "full")
      print_full(input, target, runs);
    else
      print_ablation(input, target, limit_s);
  }
}
