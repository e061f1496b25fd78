#include "core/search/keeper.h"

#include <algorithm>
#include <map>
#include <optional>

namespace quern {

namespace {

constexpr size_t kKeptPerForm = 3;

}  // namespace

void Keeper::offer(const std::string& form, Kept kept) {
  std::vector<Kept>& best = by_form_[form];
  if (best.size() == kKeptPerForm && !(kept < best.back())) return;
  if (best.size() == kKeptPerForm) best.pop_back();
  best.insert(std::upper_bound(best.begin(), best.end(), kept), std::move(kept));
}

void Keeper::merge(const Keeper& other) {
  for (const auto& [form, best] : other.by_form_)
    for (const Kept& kept : best) offer(form, kept);
}

std::vector<Kept> Keeper::all() const {
  std::vector<Kept> kept;
  for (const auto& [form, best] : by_form_) kept.insert(kept.end(), best.begin(), best.end());
  std::sort(kept.begin(), kept.end());
  return kept;
}

std::string form_of(const Dag& dag, const Terms& terms) {
  std::string form;
  const KernelDag kernel{dag, {}};
  for (Label label = 0; label < static_cast<Label>(terms.labels.size()); ++label) {
    const std::optional<LoopForm> loop = loop_form(kernel, label, terms);
    if (!loop) continue;
    std::map<Combine, int> counts;
    for (size_t at = 0; at < dag.ops.size(); ++at)
      if (loop->accumulates[at]) ++counts[combine_of(dag, *loop, at)];
    if (counts.empty()) continue;
    form += "l" + std::to_string(label);
    for (const auto& [combine, count] : counts) form += "," + combine_text(combine) + std::to_string(count);
  }
  for (const DagOp& op : dag.ops)
    if (op.term.kind == BlockKind::concat_matmul || op.term.kind == BlockKind::composite)
      form += std::string(" ") + op_info(op.term.code).text;
  return form;
}

}  // namespace quern
