// The model of schedules against programs that were timed on a GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>

#include "core/base/statistics.h"
#include "core/schedule/model.h"
#include "tools/bench/model/fit.h"
#include "tools/bench/need.h"

namespace {

using namespace quern;

constexpr const char* kUsage = R"(usage: fit_model [OPTIONS] FOLDER

Reads timings of programs (FOLDER/GRAPH.json as mugraph_bench writes it, FOLDER/graphs/GRAPH.qg and
FOLDER/qmu/GRAPH-N.qmu), asks the model for every program, and prints for each graph and each family the rank
correlation of modelled and measured times, and the regret: the time of the program that the model takes over the
best measured one, the baseline's program among them.

  --fit               fits the constants of model_constants.def to all graphs, and leaving out families, and prints
                      both regrets: of graphs that the constants were fitted to, and of graphs that they were not
  --programs GRAPH    instead, the programs of this graph, measured and modelled
  --target NAME       sm_90a
  --dram GBPS         of the device that the timings are of, where that is another than the target's
)";

constexpr double kOnStack = 1e3;  // that what has values on the stack is put back by

struct Options {
  std::string folder, programs, target = "sm_90a";
  double dram_gbps = 0;
  bool fit = false;
};

std::vector<size_t> order_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order;
}

struct Verdict {
  double regret = 1, searched_regret = 1, correlation = NAN, error = 0;
  double best = 0, taken = 0, baseline = 0, modelled_baseline = 0, modelled_taken = 0;
};

Verdict judge(const TimedGraph& graph, const Target& target) {
  Verdict out;
  std::vector<double> measured, modelled;
  std::vector<std::pair<double, double>> pairs;
  double searched_best = INFINITY, searched_taken = 0, searched_least = INFINITY;
  double squares = 0;
  for (const TimedProgram& program : graph.programs) {
    const double us = graph.modelled_us(program, target) * (program.is_on_stack() ? kOnStack : 1);
    if (!program.model) {
      out.baseline = program.measured_us;
      out.modelled_baseline = us;
    } else {
      searched_best = std::min(searched_best, program.measured_us);
      if (us < searched_least) searched_least = us, searched_taken = program.measured_us;
    }
    measured.push_back(program.measured_us);
    modelled.push_back(us);
    pairs.emplace_back(program.measured_us, us);
    squares +=
        std::isfinite(us) && !program.is_on_stack() ? std::pow(std::log(us / program.measured_us), 2) : 0;
  }
  // As optimize() chooses.
  std::vector<double> asked = modelled;
  for (size_t i = 0; i < asked.size(); ++i)
    if (graph.programs[i].model) asked[i] *= kBaselineMargin;
  const size_t taken = static_cast<size_t>(std::min_element(asked.begin(), asked.end()) - asked.begin());
  out.best = *std::min_element(measured.begin(), measured.end());
  out.taken = measured[taken];
  out.modelled_taken = modelled[taken];
  out.regret = out.taken / out.best;
  if (searched_taken > 0) out.searched_regret = searched_taken / searched_best;
  out.correlation = rank_correlation(pairs).value_or(NAN);
  out.error = std::sqrt(squares / static_cast<double>(measured.size()));
  return out;
}

// What bounds the kernels of a program.
void print_kernels(const TimedProgram& program, const Target& target) {
  const MuGraph applied = program.model->applied(program.schedule);
  for (size_t k = 0; k < applied.kernels.size(); ++k) {
    if (!applied.kernels[k].custom) continue;
    const BlockWork work = block_work(applied, applied.kernels[k], program.schedule.kernels[k], target);
    const KernelTime time = modelled_block(work, program.schedule.kernels[k], target);
    std::printf("%28.2f us: memory %.2f, compute %.2f, registers %.0f of %.0f, %lld blocks an SM\n", time.us,
                time.memory_us, time.compute_us, time.registers, work.registers,
                static_cast<long long>(time.blocks_per_sm));
    for (const Work* each : {&work.loop, &work.once})
      std::printf(
          "%32s mma %.0f wgmma %.0f issue %.0f special %.0f shared %.0f chain %.0f round trips %.1f "
          "copies %.0f lines %.0f\n",
          each == &work.loop ? "loop" : "once", each->mma, each->wgmma, each->issue, each->special,
          each->shared_bytes, each->chain, each->round_trips, each->copies, each->lines);
    std::printf("%32s bytes: loop %.0f once %.0f unique %.0f\n", "", work.loop_l2, work.once_l2,
                work.unique_bytes);
  }
}

void print_programs(const TimedGraph& graph, const Target& target) {
  std::vector<double> measured;
  for (const TimedProgram& program : graph.programs) measured.push_back(program.measured_us);
  for (size_t i : order_of(measured)) {
    const TimedProgram& program = graph.programs[i];
    std::string schedule = print_schedule(program.schedule);
    std::replace(schedule.begin(), schedule.end(), '\n', ';');
    std::printf("%9.2f %9.2f %s %s %s\n", program.measured_us, graph.modelled_us(program, target),
                program.label.c_str(), schedule.c_str(), program.resources.c_str());
    if (program.model) print_kernels(program, target);
  }
}

// What bounds the launches of the baseline's program.
void print_launches(const TimedGraph& graph, const Target& target) {
  std::printf("%8s %8s %8s %8s %6s %8s %9s %9s\n", "us", "memory", "compute", "blocks", "iterations",
              "blocks/SM", "DRAM MB", "L2 MB");
  for (const LaunchWork& launch : graph.baseline) {
    const KernelTime time = modelled_block(launch.block, launch.schedule, target);
    const double blocks = static_cast<double>(launch.block.blocks);
    std::printf(
        "%8.2f %8.2f %8.2f %8.0f %6lld %8lld %9.2f %9.2f\n", time.us, time.memory_us, time.compute_us, blocks,
        static_cast<long long>(launch.block.trip_count), static_cast<long long>(time.blocks_per_sm),
        launch.block.unique_bytes / 1e6,
        blocks *
            (launch.block.once_l2 + launch.block.loop_l2 * static_cast<double>(launch.block.trip_count)) /
            1e6);
  }
}

// What ptxas says of each launch, the last one first, as "0 bytes on the stack, 64 registers".
std::vector<std::string> resources_of(const TimedProgram& program) {
  std::vector<std::string> out;
  std::istringstream all(program.resources);
  for (std::string each; std::getline(all, each, ';');)
    if (each.find(" registers") != std::string::npos) out.push_back(each);
  return out;
}

// The registers that the model says a thread of each launch wants, and what ptxas says; not of programs in
// which others are between them.
void print_registers(const TimedGraph& graph, const Target& target) {
  for (const TimedProgram& program : graph.programs) {
    if (!program.model) continue;
    const MuGraph applied = program.model->applied(program.schedule);
    std::vector<std::string> resources = resources_of(program), lines;
    for (size_t k = 0; k < applied.kernels.size(); k = launch_of(program.schedule, k).end) {
      if (!applied.kernels[k].custom) continue;
      double wanted = 0;
      for (size_t part = k; part < launch_of(program.schedule, k).end; ++part)
        wanted = std::max(
            wanted,
            block_work(applied, applied.kernels[part], program.schedule.kernels[part], target).registers);
      const KernelSchedule& how = program.schedule.kernels[k];
      std::string text = print_schedule({{how}});
      text.pop_back();
      char line[400];
      std::snprintf(line, sizeof line, "%s | %s %zu | %.1f | %d | %s", graph.name.c_str(),
                    program.label.c_str(), k, wanted, how.threads(), text.c_str());
      lines.push_back(line);
    }
    for (size_t i = 0; lines.size() == resources.size() && i < lines.size(); ++i)
      std::printf("%s |%s\n", lines[i].c_str(), resources[lines.size() - 1 - i].c_str());
  }
}

void print_graphs(const std::vector<TimedGraph>& graphs, const Target& target) {
  std::printf("%-24s %8s %8s %8s %8s %8s %7s %7s %6s %6s\n", "graph", "baseline", "model's", "best", "taken",
              "model's", "regret", "search", "rank", "error");
  double all = 0, searched = 0, rank = 0;
  int ranked = 0;
  for (const TimedGraph& graph : graphs) {
    const Verdict verdict = judge(graph, target);
    std::printf("%-24s %8.2f %8.2f %8.2f %8.2f %8.2f %7.3f %7.3f %6.2f %6.2f\n", graph.name.c_str(),
                verdict.baseline, verdict.modelled_baseline, verdict.best, verdict.taken,
                verdict.modelled_taken, verdict.regret, verdict.searched_regret, verdict.correlation,
                verdict.error);
    all += std::log(verdict.regret);
    searched += std::log(verdict.searched_regret);
    if (std::isfinite(verdict.correlation)) rank += verdict.correlation, ++ranked;
  }
  const double count = static_cast<double>(graphs.size());
  std::printf("%zu graphs: regret %.3f, of searched programs alone %.3f, rank correlation %.2f\n",
              graphs.size(), std::exp(all / count), std::exp(searched / count), rank / ranked);
}

struct Regret {
  double sum = 0, count = 0;
  void add(double regret) { sum += std::log(regret), ++count; }
  double mean() const { return std::exp(sum / std::max(1.0, count)); }
};

// The families are dealt to so many parts; the graphs of a part are judged by constants fitted to the others.
constexpr size_t kParts = 6;

void print_fits(const std::vector<TimedGraph>& graphs, Target& target) {
  std::set<std::string> names;
  for (const TimedGraph& graph : graphs) names.insert(graph.family);
  std::map<std::string, size_t> part_of;
  for (const std::string& name : names) part_of.emplace(name, part_of.size() % kParts);
  const ModelConstants own = model_constants(target);
  struct Row {
    Regret own, fitted, unseen;
  };
  std::map<std::string, Row> rows;
  Row all;
  auto judge_all = [&](Regret Row::*column, auto in) {
    for (const TimedGraph& graph : graphs)
      if (in(graph)) {
        const double regret = judge(graph, target).regret;
        (rows[graph.family].*column).add(regret);
        (all.*column).add(regret);
      }
  };
  const auto every = [](const TimedGraph&) { return true; };
  judge_all(&Row::own, every);
  ModelConstants constants = own;
  fit(graphs, every, target, constants);
  judge_all(&Row::fitted, every);
  std::printf("fitted to all graphs:\n%s", print_changes(own, constants).c_str());
  for (size_t part = 0; part < kParts; ++part) {
    const auto held = [&](const TimedGraph& graph) { return part_of.at(graph.family) == part; };
    ModelConstants others = own;
    fit(
        graphs, [&](const TimedGraph& graph) { return !held(graph); }, target, others);
    judge_all(&Row::unseen, held);
  }
  std::printf("%-12s %6s %8s %8s %9s\n", "family", "graphs", "as it is", "fitted", "held out");
  auto print = [](const std::string& name, const Row& row) {
    std::printf("%-12s %6.0f %8.3f %8.3f %9.3f\n", name.c_str(), row.own.count, row.own.mean(),
                row.fitted.mean(), row.unseen.mean());
  };
  for (const auto& [name, row] : rows) print(name, row);
  print("all", all);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--programs" && i + 1 < argc)
      options.programs = argv[++i];
    else if (argument == "--fit")
      options.fit = true;
    else if (argument == "--target" && i + 1 < argc)
      options.target = argv[++i];
    else if (argument == "--dram" && i + 1 < argc)
      options.dram_gbps = std::atof(argv[++i]);
    else if (options.folder.empty() && argument.rfind("--", 0) != 0)
      options.folder = argument;
    else
      stop(Status(ErrorCode::INVALID_ARGUMENT, "no option " + argument + "\n" + kUsage));
  }
  if (options.folder.empty()) stop(Status(ErrorCode::INVALID_ARGUMENT, kUsage));
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  Target target = *need(find_target(options.target));
  if (options.dram_gbps > 0) target.dram_gbps = options.dram_gbps;
  const std::vector<TimedGraph> graphs = read_timings(options.folder, target);
  if (options.fit) {
    print_fits(graphs, target);
    return 0;
  }
  if (options.programs.empty()) {
    print_graphs(graphs, target);
    return 0;
  }
  for (const TimedGraph& graph : graphs)
    if (options.programs == "registers") print_registers(graph, target);
  for (const TimedGraph& graph : graphs)
    if (graph.name == options.programs) {
      print_programs(graph, target);
      print_launches(graph, target);
    }
}
