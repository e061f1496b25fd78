#include "core/search/egraph.h"

#include <algorithm>
#include <bit>

namespace quern {

size_t EGraph::NodeHash::operator()(const ENode& node) const {
  uint64_t hash = static_cast<uint64_t>(node.code) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(node.index);
  hash = (hash ^ std::bit_cast<uint64_t>(node.number)) * 0xbf58476d1ce4e5b9;
  for (ClassId child : node.children)
    hash = ((hash ^ (hash >> 29)) + static_cast<uint64_t>(child) + 1) * 0x94d049bb133111eb;
  return hash ^ (hash >> 32);
}

ClassId EGraph::find(ClassId id) const {
  while (parent_[id] != id) {
    const ClassId above = parent_[parent_[id]];
    if (parent_[id] != above) parent_[id] = above;
    id = above;
  }
  return id;
}

void EGraph::canonicalize(ENode& node) const {
  for (ClassId& child : node.children) child = find(child);
}

LabelSet EGraph::free_labels(const ENode& node) const {
  LabelSet set = 0;
  for (ClassId child : node.children) set |= labels(child);
  if (is_reduction(node.code)) set &= ~label_bit(node.index);
  return set;
}

ClassId EGraph::add(ENode node) {
  canonicalize(node);
  if (const auto at = table_.find(node); at != table_.end()) return find(at->second);
  const ClassId id = static_cast<ClassId>(parent_.size());
  parent_.push_back(id);
  classes_.push_back({{node}, {}, free_labels(node)});
  for (ClassId child : node.children) classes_[child].parents.emplace_back(node, id);
  table_.emplace(std::move(node), id);
  return id;
}

ClassId EGraph::add_leaf(int32_t index, LabelSet labels) {
  const ClassId id = add({OpCode::input, index, 0, {}});
  classes_[id].labels = labels;
  return id;
}

ClassId EGraph::lookup(ENode node) const {
  canonicalize(node);
  const auto at = table_.find(node);
  return at == table_.end() ? -1 : find(at->second);
}

bool EGraph::merge(ClassId a, ClassId b, Justification why) {
  why.left = a;
  why.right = b;
  ClassId into = find(a), from = find(b);
  if (into == from) return false;
  justifications_.push_back(std::move(why));
  if (classes_[into].parents.size() < classes_[from].parents.size()) std::swap(into, from);
  parent_[from] = into;
  Class& target = classes_[into];
  Class& source = classes_[from];
  target.nodes.insert(target.nodes.end(), source.nodes.begin(), source.nodes.end());
  target.parents.insert(target.parents.end(), source.parents.begin(), source.parents.end());
  target.labels &= source.labels;
  source = Class();
  dirty_.push_back(into);
  return true;
}

void EGraph::rebuild() {
  while (!dirty_.empty()) {
    std::vector<ClassId> todo;
    std::swap(todo, dirty_);
    for (ClassId& id : todo) id = find(id);
    std::sort(todo.begin(), todo.end());
    todo.erase(std::unique(todo.begin(), todo.end()), todo.end());
    for (ClassId id : todo) repair(find(id));
  }
  // An operator with two operands that were merged one after the other leaves its form in between.
  std::erase_if(table_, [&](const auto& entry) {
    const auto& children = entry.first.children;
    return std::any_of(children.begin(), children.end(), [&](ClassId child) { return find(child) != child; });
  });
  // Threads that ask at the same time find nothing to shorten.
  for (ClassId& id : parent_) id = find(id);
}

// Gives every operator over this class its canonical form; operators that become equal join their classes.
void EGraph::repair(ClassId id) {
  std::vector<std::pair<ENode, ClassId>> parents;
  std::swap(parents, classes_[id].parents);
  for (auto& [node, owner] : parents) {
    table_.erase(node);
    canonicalize(node);
    owner = find(owner);
    const auto [at, is_new] = table_.try_emplace(node, owner);
    if (!is_new && find(at->second) != owner) {
      merge(at->second, owner, {});
      at->second = find(owner);
    }
  }
  // Several parents may have become one.
  std::sort(parents.begin(), parents.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.code, a.first.index, a.first.number, a.first.children) <
           std::tie(b.first.code, b.first.index, b.first.number, b.first.children);
  });
  parents.erase(std::unique(parents.begin(), parents.end(),
                            [](const auto& a, const auto& b) { return a.first == b.first; }),
                parents.end());
  Class& self = classes_[find(id)];
  self.parents.insert(self.parents.end(), parents.begin(), parents.end());
  // The nodes of the classes that own these operators, in canonical form and once each.
  for (const auto& [node, owner] : parents) {
    std::vector<ENode>& nodes = classes_[find(owner)].nodes;
    std::vector<ENode> unique;
    for (ENode& own : nodes) {
      canonicalize(own);
      if (std::find(unique.begin(), unique.end(), own) == unique.end()) unique.push_back(std::move(own));
    }
    nodes = std::move(unique);
  }
}

std::vector<ClassId> EGraph::classes() const {
  std::vector<ClassId> ids;
  for (ClassId id = 0; id < static_cast<ClassId>(parent_.size()); ++id)
    if (find(id) == id) ids.push_back(id);
  return ids;
}

}  // namespace quern
