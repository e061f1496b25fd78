#include "core/search/z3_model.h"

#include <bit>

namespace quern {

Model::Model(z3::context& z, const EGraph& egraph, std::span<const ClassId> goals)
    : Structure(z.bv_sort(static_cast<unsigned>(std::bit_width(egraph.classes().size())))),
      z_(z),
      egraph_(egraph),
      classes_(egraph.classes()) {
  for (size_t i = 0; i < classes_.size(); ++i) position_.emplace(classes_[i], i);
  for (ClassId id : classes_)
    for (const ENode& node : egraph.nodes(id)) {
      std::vector<size_t> operands;
      for (ClassId child : node.children) operands.push_back(position(child));
      tables_[symbol_of(node)].emplace(std::move(operands), position(id));
    }
  std::vector<ClassId> todo(goals.begin(), goals.end());
  while (!todo.empty()) {
    const ClassId id = egraph.find(todo.back());
    todo.pop_back();
    if (!parts_.insert(position(id)).second) continue;
    for (const ENode& node : egraph.nodes(id))
      todo.insert(todo.end(), node.children.begin(), node.children.end());
  }
}

z3::expr Model::apply(const Symbol& symbol, const Exprs& operands) {
  const std::map<std::vector<size_t>, size_t>& table = tables_[symbol];
  const std::vector<Row> rows(table.begin(), table.end());
  return choose(rows, operands, 0);
}

bool Model::is_part(const ENode& op) const {
  const ClassId id = egraph_.lookup(op);
  return id >= 0 && parts_.count(position(id)) > 0;
}

std::set<size_t> Model::along(Label label) const {
  std::set<size_t> positions;
  for (size_t i = 0; i < classes_.size(); ++i)
    if (has_label(egraph_.labels(classes_[i]), label)) positions.insert(i);
  return positions;
}

z3::expr Model::one_of(const std::set<size_t>& positions, const z3::expr& x) const {
  z3::expr_vector cases(z_);
  for (size_t position : positions) cases.push_back(x == element(position));
  return z3::mk_or(cases);
}

// The row whose operands from `depth` on are these, as nested choices.
z3::expr Model::choose(std::span<const Row> rows, const Exprs& operands, size_t depth) const {
  if (depth == operands.size()) return element(rows.empty() ? classes_.size() : rows.front().second);
  z3::expr result = element(classes_.size());
  for (size_t first = 0, next; first < rows.size(); first = next) {
    const size_t key = rows[first].first[depth];
    for (next = first; next < rows.size() && rows[next].first[depth] == key;) ++next;
    result = z3::ite(operands[depth] == element(key),
                     choose(rows.subspan(first, next - first), operands, depth + 1), result);
  }
  return result;
}

}  // namespace quern
