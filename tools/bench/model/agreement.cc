#include "tools/bench/model/agreement.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/kernel/count.h"
#include "core/mugraph/tile_masks.h"
#include "core/optimize/program_model.h"
#include "core/optimize/ranking.h"
#include "core/schedule/block_work.h"
#include "core/verify/rounded_values.h"
#include "tools/bench/need.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;
using ir::Path;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The numbers of one kernel, by the model and of its lowering.
struct Compared {
  const char* what;
  double modelled, lowered;
  double more = 0;  // that the lowering may have: of products that are pipelined, an iteration's
};

unsigned widths_of(const ir::Counts& counts, Path path) {
  unsigned widths = 0;
  for (const auto& [width, count] : counts.of(path))
    if (count.accesses > 0) widths |= static_cast<unsigned>(width);
  return widths;
}

std::vector<Compared> compare(const BlockWork& work, const KernelSchedule& schedule, const ir::Counts& counts,
                              const ir::Kernel& kernel) {
  const auto trips = static_cast<double>(work.trip_count);
  const double ring = schedule.stages * work.loop_room;  // beside which there may be exchanges
  unsigned copied = 0, direct = 0;
  for (const TileLoad& load : work.loads) {
    if (load.staged && !load.tma && load.width >= 4) copied |= static_cast<unsigned>(load.width);
    if (load.fragments && load.bytes > 0) direct |= static_cast<unsigned>(load.width);
  }
  std::vector<Compared> out = {
      {"copies by TMA", work.once.copies + trips * work.loop.copies, counts.tma_loads},
      {"widths of cp.async", static_cast<double>(copied),
       static_cast<double>(widths_of(counts, Path::cp_async))},
      {"products by mma", work.once.mma + trips * work.loop.mma, counts.mma},
      {"products by wgmma", 16 * 8 * 16 * 2 * (work.once.wgmma + trips * work.loop.wgmma), counts.wgmma_flops,
       1 / trips},
      {"bytes of the ring", ring, std::min(ring, static_cast<double>(kernel.shared_bytes))}};
  const unsigned seen = widths_of(counts, Path::global_load);
  out.push_back(
      {"widths of operands from memory", static_cast<double>(direct), static_cast<double>(direct & seen)});
  return out;
}

bool differ(const Compared& each) {
  constexpr double kTolerance = 0.001;
  return each.modelled > each.lowered * (1 + kTolerance) ||
         each.lowered > std::max(each.modelled, kTolerance) * (1 + each.more) * (1 + kTolerance);
}

class Comparison {
 public:
  Comparison(const Graph& graph, const Target& target) : graph_(graph), target_(target) {}

  Agreement run(size_t best) {
    SearchOptions options;
    options.time_of = SubgraphModel(target_);
    const SearchResult found = need(search(graph_, target_, options));
    constexpr size_t kOfCandidate = 200;
    const std::vector<Implementation> ranked =
        rank_implementations(graph_, found.candidates, target_, {}, kOfCandidate);
    out_.ranked = ranked.size();
    for (size_t i = 0; i < std::min(best, ranked.size()); ++i)
      add(i, found.candidates[ranked[i].candidate].mugraph, ranked[i].schedule);
    for (size_t i = 0; i < best && ranked.size() > 2 * best; ++i) {
      const size_t at = best + (ranked.size() - best) * i / best;
      add(at, found.candidates[ranked[at].candidate].mugraph, ranked[at].schedule);
    }
    return std::move(out_);
  }

 private:
  void add(size_t program, const MuGraph& mugraph, const Schedule& schedule) {
    const auto start = Clock::now();
    const auto emitted = emit_mugraph(graph_, mugraph, schedule, target_);
    if (!emitted) {
      ++out_.refused;
      return;
    }
    out_.lower_ms += ms_since(start);
    ++out_.programs;
    MuGraph noted = mugraph;
    note_rounded_values(graph_, noted);
    const MuGraph cut = need(apply_schedule(noted, schedule));
    for (const EmittedBlock& block : emitted->blocks)
      for (const LaunchedKernel& code : emitted->code)
        if (code.kernel.name == block.function) add_kernel(program, cut, schedule, block.kernel, code);
  }

  void add_kernel(size_t program, const MuGraph& cut, const Schedule& schedule, size_t k,
                  const LaunchedKernel& code) {
    const KernelSchedule& how = schedule.kernels[k];
    if (how.persistent > 0 || unmasked_share(cut, cut.kernels[k]).mean < 1) return;
    ++out_.kernels;
    const auto start = Clock::now();
    const ir::Counts counts = ir::count_block(code.kernel, code.facts, {});
    out_.count_ms += ms_since(start);
    const BlockWork work = block_work(cut, cut.kernels[k], how, target_);
    for (const Compared& each : compare(work, how, counts, code.kernel))
      if (differ(each))
        out_.disagreements.push_back(
            {program, k, each.what, print_schedule({{how}}), each.modelled, each.lowered});
  }

  const Graph& graph_;
  const Target& target_;
  Agreement out_;
};

}  // namespace

Agreement compare_counts(const Graph& graph, const Target& target, size_t best) {
  return Comparison(graph, target).run(best);
}

std::string print(const Disagreement& each) {
  char numbers[100];
  std::snprintf(numbers, sizeof numbers, "%.10g by the model, %.10g lowered", each.modelled, each.lowered);
  std::string schedule = each.schedule;
  std::replace(schedule.begin(), schedule.end(), '\n', ' ');
  return "program " + std::to_string(each.program) + ", kernel " + std::to_string(each.kernel) + ", " +
         each.what + ": " + numbers + "; " + schedule;
}

}  // namespace quern
