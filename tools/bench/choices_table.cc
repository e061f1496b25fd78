// What the three choices of a block come to, greedy and by Z3, as a table:
//   choices_table TARGET GRAPHS MUGRAPH.qmu...
//
// GRAPHS are folders, separated by commas, with NAME.qg for every NAME-VARIANT.qmu. Each muGraph is emitted
// with its best-ranked straight and its best-ranked staged schedule, and with those whose warps divide the
// inner dimension of products: partial results are what blocks exchange most.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/schedule/enumerate.h"
#include "core/schedule/z3_optimizer.h"
#include "core/verify/rounded_values.h"
#include "tools/bench/need.h"

namespace {

using namespace quern;

Graph find_graph(const std::string& folders, const std::string& name) {
  std::stringstream list(folders);
  for (std::string folder; std::getline(list, folder, ',');)
    if (const std::filesystem::path path = folder + "/" + name + ".qg"; std::filesystem::exists(path))
      return need(parse_graph(read_file(path)));
  stop(Status(ErrorCode::NOT_FOUND, name + ".qg is in none of " + folders));
}

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

std::string pair_of(int64_t a, int64_t b) { return std::to_string(a) + " / " + std::to_string(b); }

class Table {
 public:
  Table(const Target& target, std::string folders) : target_(target), folders_(std::move(folders)) {}

  void head() const {
    std::printf(
        "| muGraph | warps, stages | barriers once / an iteration: listed | greedy | Z3 | shared bytes: greedy | "
        "Z3 | "
        "layout cycles: greedy | Z3 | conversions | proven | ms greedy | ms Z3 "
        "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  }

  void add(const std::filesystem::path& file) {
    const std::string name = file.stem().string();
    MuGraph mugraph = need(parse_mugraph(read_file(file)));
    const Graph graph = find_graph(folders_, name.substr(0, name.find('-')));
    note_rounded_values(graph, mugraph);
    const std::vector<Schedule> schedules = enumerate_schedules(mugraph, target_);
    const std::function<bool(const KernelSchedule&)> kinds[] = {
        [](const KernelSchedule& kernel) { return kernel.stages == 0 && kernel.warps[2] == 1; },
        [](const KernelSchedule& kernel) { return kernel.stages > 0 && kernel.warps[2] == 1; },
        [](const KernelSchedule& kernel) { return kernel.stages == 0 && kernel.warps[2] > 1; },
        [](const KernelSchedule& kernel) { return kernel.stages > 0 && kernel.warps[2] > 1; }};
    for (const auto& wanted : kinds)
      for (const Schedule& schedule : schedules) {
        const KernelSchedule& kernel = schedule.kernels[0];
        if (wanted(kernel) && row(name, graph, mugraph, schedule)) break;
      }
  }

 private:
  // False if the schedule is not emitted, or the program has no blocks.
  bool row(const std::string& name, const Graph& graph, const MuGraph& mugraph, const Schedule& schedule) {
    const double start = milliseconds();
    const auto greedy = emit_mugraph(graph, mugraph, schedule, target_);
    const double between = milliseconds();
    const auto best = emit_mugraph(graph, mugraph, schedule, target_, optimizer_.get());
    const double end = milliseconds();
    if (!greedy || !best || best->blocks.empty()) return false;
    for (size_t b = 0; b < best->blocks.size(); ++b) {
      const BlockCosts &own = greedy->blocks[b].costs, &least = best->blocks[b].costs;
      const KernelSchedule& kernel = schedule.kernels[best->blocks[b].kernel];
      std::printf(
          "| %s%s | %dx%dx%d, %d | %s | %s | %s | %lld | %lld | %lld | %lld | %lld | %s | %.1f | %.1f |\n",
          name.c_str(), best->blocks.size() > 1 ? (" #" + std::to_string(b)).c_str() : "", kernel.warps[0],
          kernel.warps[1], kernel.warps[2], kernel.stages,
          pair_of(own.listed_once, own.listed_per_iteration).c_str(),
          pair_of(own.barriers_once, own.barriers_per_iteration).c_str(),
          pair_of(least.barriers_once, least.barriers_per_iteration).c_str(),
          static_cast<long long>(own.shared_bytes), static_cast<long long>(least.shared_bytes),
          static_cast<long long>(own.layout_cycles), static_cast<long long>(least.layout_cycles),
          static_cast<long long>(least.conversion_cycles), best->blocks[b].proven.all() ? "yes" : "no",
          between - start, end - between);
    }
    return true;
  }

  const Target& target_;
  const std::string folders_;
  const std::unique_ptr<Optimizer> optimizer_ = make_z3_optimizer(kChoiceLimit);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) stop(Status(ErrorCode::INVALID_ARGUMENT, "wanted: TARGET GRAPHS MUGRAPH.qmu..."));
  Table table(*need(find_target(argv[1])), argv[2]);
  table.head();
  for (int i = 3; i < argc; ++i) table.add(argv[i]);
  return 0;
}
