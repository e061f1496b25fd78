#include "core/optimize/program_list.h"

#include <algorithm>

#include "core/codegen/mugraph_emitter.h"
#include "core/mugraph/text.h"

namespace quern {

namespace {

constexpr size_t kExact = 6;  // programs without 3xTF32, at most

// One of each after the other, until one list has no more.
std::vector<Implementation> in_turn(const std::vector<Implementation>& a,
                                    const std::vector<Implementation>& b) {
  std::vector<Implementation> out;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    for (const std::vector<Implementation>* of : {&a, &b})
      if (i < of->size()) out.push_back((*of)[i]);
  return out;
}

}  // namespace

void ProgramList::add(const std::vector<Implementation>& programs, size_t most) {
  for (const Implementation& program : programs) {
    if (listed_.size() >= most) break;
    const MuGraph& mugraph = candidates_[program.candidate].mugraph;
    const auto emitted = emit_mugraph(graph_, mugraph, program.schedule, target_);
    if (!emitted || !sources_.insert(hash128(emitted->source)).second) continue;
    std::string& text = mugraphs_[program.candidate];
    if (text.empty()) text = print_mugraph(mugraph);
    listed_.push_back({text, print_schedule(program.schedule), static_cast<uint64_t>(1000 * program.us), ""});
  }
}

std::vector<Implementation> ProgramList::without_tf32x3(const Implementation& first) {
  const std::vector<KernelSchedule>& kernels = first.schedule.kernels;
  if (std::none_of(kernels.begin(), kernels.end(), [](const KernelSchedule& each) { return each.tf32x3; }))
    return {};
  return ranking_.rank(
      constraints_, 1,
      [&](const KernelSchedule& schedule, bool joined, const std::function<MuKernel()>& applied) {
        return schedule.tf32x3 || refuse_(schedule, joined, applied);
      });
}

std::vector<Program> ProgramList::of(const std::vector<Implementation>& ranked, size_t candidate, size_t most,
                                     size_t varied) {
  if (ranked.empty()) return {};
  const std::vector<Implementation> exact = without_tf32x3(ranked[0]);
  add(in_turn(ranking_.vary_all(candidate, constraints_, varied, refuse_), ranked),
      most - std::min({most, exact.size(), kExact}));
  add(exact, most);
  return std::move(listed_);
}

}  // namespace quern
