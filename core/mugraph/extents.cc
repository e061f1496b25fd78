// Depth-first search with propagation, one connected component after the other: axes first, so that they
// become as small as they can be, then tiles; whole dimensions mostly follow.
#include "core/mugraph/extents.h"

#include <algorithm>
#include <map>

#include "core/base/integers.h"
#include "core/mugraph/mugraph.h"

namespace quern {

namespace {

constexpr int64_t kLargestChoice = 16;   // of a variable that does not follow from others
constexpr int64_t kLargestValue = 4096;  // of any
constexpr int64_t kEndless = int64_t{1} << 40;
constexpr int kChoices = 20000;  // before a component counts as unsolvable

int64_t limited_product(int64_t a, int64_t b) { return b != 0 && a > kEndless / b ? kEndless : a * b; }

}  // namespace

Extents::Var Extents::add(int64_t extent, Role role) {
  const Var var = static_cast<Var>(variables_.size());
  variables_.push_back(
      {var, extent, {std::min<int64_t>(extent, 2), std::min(extent, kLargestValue)}, role, false});
  return var;
}

Extents::Var Extents::constant(int64_t extent) {
  const Var var = add(extent, Role::whole);
  variables_.back().bounds = {extent, extent};
  return var;
}

Extents::Var Extents::root(Var var) const {
  while (variables_[static_cast<size_t>(var)].parent != var)
    var = variables_[static_cast<size_t>(var)].parent;
  return var;
}

void Extents::equal(Var a, Var b) {
  a = root(a), b = root(b);
  if (a == b) return;
  if (a > b) std::swap(a, b);
  Variable &first = variables_[static_cast<size_t>(a)], &second = variables_[static_cast<size_t>(b)];
  check(first.original == second.original, "dimensions of different extents are no one dimension");
  second.parent = a;
  first.role = std::min(first.role, second.role);
  first.kept |= second.kept;
  first.bounds = {std::max(first.bounds.least, second.bounds.least),
                  std::min(first.bounds.most, second.bounds.most)};
}

void Extents::product(std::vector<Var> left, std::vector<Var> right) {
  constraints_.push_back({Constraint::Kind::product, std::move(left), std::move(right)});
}

void Extents::reshape(std::vector<Var> left, std::vector<Var> right) {
  constraints_.push_back({Constraint::Kind::product, std::move(left), std::move(right), true});
}

void Extents::follows(std::string rule, std::vector<Var> from, Var result) {
  rules_.push_back({std::move(rule), std::move(from), result});
}

void Extents::sum(Var total, std::vector<Var> parts) {
  constraints_.push_back({Constraint::Kind::sum, {total}, std::move(parts)});
}

bool Extents::cut(Var whole, Var axis, Var tile) {
  const int64_t extent = original(whole), parts = original(axis), covered = parts * original(tile);
  const bool even = covered - parts < extent;
  follows("cut " + std::to_string(extent), {axis, tile}, whole);
  constraints_.push_back({covered == extent ? Constraint::Kind::product
                          : even            ? Constraint::Kind::ragged
                                            : Constraint::Kind::uneven,
                          {whole},
                          {axis, tile}});
  return even;
}

std::vector<Extents::Var> Extents::roots(const std::vector<Var>& vars) const {
  std::vector<Var> result;
  for (Var var : vars) result.push_back(root(var));
  return result;
}

void Extents::align() {
  while (align_results() || align_reshapes()) continue;
}

bool Extents::align_results() {
  std::map<std::pair<std::string, std::vector<Var>>, Var> known;
  bool changed = false;
  for (const Rule& rule : rules_) {
    const Var first = known.try_emplace({rule.name, roots(rule.from)}, rule.result).first->second;
    if (root(first) == root(rule.result)) continue;
    equal(first, rule.result);
    changed = true;
  }
  return changed;
}

// All reshapes of the same dimensions, in either direction.
bool Extents::align_reshapes() {
  std::map<std::vector<Var>, std::vector<std::vector<Var>>> shapes;
  for (const Constraint& constraint : constraints_) {
    if (!constraint.ordered) continue;
    const std::vector<Var> left = roots(constraint.left), right = roots(constraint.right);
    shapes[left].push_back(right);
    shapes[right].push_back(left);
  }
  for (const auto& [of, list] : shapes)
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (align_factors(list[i], list[j])) return true;
  return false;
}

// Between two boundaries at which both shapes split the elements lies the same.
bool Extents::align_factors(const std::vector<Var>& a, const std::vector<Var>& b) {
  bool changed = false;
  std::vector<Var> left, right;
  int64_t left_extent = 1, right_extent = 1;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (j == b.size() || (i < a.size() && left_extent <= right_extent)) {
      left_extent *= original(a[i]);
      left.push_back(a[i++]);
    } else {
      right_extent *= original(b[j]);
      right.push_back(b[j++]);
    }
    if (left_extent != right_extent || left.empty() || right.empty()) continue;
    if (left.size() == 1 && right.size() == 1 && root(left[0]) != root(right[0])) {
      equal(left[0], right[0]);
      changed = true;
    } else if (left != right && (left.size() < a.size() || right.size() < b.size())) {
      const bool known = std::any_of(constraints_.begin(), constraints_.end(), [&](const Constraint& other) {
        const std::vector<Var> l = roots(other.left), r = roots(other.right);
        return other.ordered && ((l == left && r == right) || (l == right && r == left));
      });
      if (!known) reshape(left, right);
      changed |= !known;
    }
    left.clear(), right.clear();
    left_extent = right_extent = 1;
  }
  return changed;
}

void Extents::keep(Var var) { variables_[static_cast<size_t>(root(var))].kept = true; }

bool Extents::narrow(Var var, Bounds to, bool& changed) {
  Bounds& own = variables_[static_cast<size_t>(var)].bounds;
  to = {std::max(own.least, to.least), std::min(own.most, to.most)};
  if (to.least > to.most) return false;
  if (to.least == own.least && to.most == own.most) return true;
  trail_.emplace_back(var, own);
  own = to;
  changed = true;
  return true;
}

bool Extents::set(Var var, int64_t value) {
  bool changed = false;
  return narrow(var, {value, value}, changed);
}

// What was narrowed since the trail was so long.
void Extents::undo(size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back())
    variables_[static_cast<size_t>(trail_.back().first)].bounds = trail_.back().second;
}

// Bounds of the product or the sum of a side, without one of its variables.
Extents::Bounds Extents::total(std::span<const Var> side, bool product, size_t without) const {
  Bounds total = product ? Bounds{1, 1} : Bounds{0, 0};
  for (size_t i = 0; i < side.size(); ++i) {
    if (i == without) continue;
    const auto [least, most] = bounds(side[i]);
    total = product ? Bounds{limited_product(total.least, least), limited_product(total.most, most)}
                    : Bounds{total.least + least, total.most + most};
  }
  return total;
}

// Products and sums: each is what the others leave.
bool Extents::propagate_sides(const Constraint& constraint, bool& changed) {
  const bool product = constraint.kind == Constraint::Kind::product;
  for (int side = 0; side < 2; ++side) {
    const std::vector<Var>& here = side == 0 ? constraint.left : constraint.right;
    const Bounds there = total(side == 0 ? constraint.right : constraint.left, product);
    for (size_t i = 0; i < here.size(); ++i) {
      const Bounds others = total(here, product, i);
      Bounds own = {there.least - others.most, there.most - others.least};
      if (product)
        own = {others.most == 0 ? (there.least == 0 ? 0 : kEndless) : divide_up(there.least, others.most),
               others.least == 0 ? kEndless : there.most / others.least};
      if (!narrow(here[i], own, changed)) return false;
    }
  }
  return true;
}

// The last tile lacks something, axis * tile > whole. Even tiles are no larger than they must be, axis * (tile - 1) < whole;
// of uneven ones none is empty, (axis - 1) * tile < whole.
bool Extents::propagate_cut(const Constraint& constraint, bool& changed) {
  const Var whole = constraint.left[0], axis = constraint.right[0], tile = constraint.right[1];
  const bool uneven = constraint.kind == Constraint::Kind::uneven;
  const Var full = uneven ? tile : axis, other = uneven ? axis : tile;  // full * (other - 1) < whole
  if (bounds(axis).least < 1) return false;
  if (!narrow(whole,
              {limited_product(bounds(full).least, bounds(other).least - 1) + 1,
               limited_product(bounds(axis).most, bounds(tile).most) - 1},
              changed))
    return false;
  const int64_t most = bounds(whole).most - 1;
  auto at_least = [&](Var partner) {
    return bounds(partner).most == 0 ? kEndless : divide_up(bounds(whole).least + 1, bounds(partner).most);
  };
  const int64_t less = bounds(other).least - 1;
  return narrow(other, {at_least(full), bounds(full).least == 0 ? kEndless : most / bounds(full).least + 1},
                changed) &&
         narrow(full, {at_least(other), less <= 0 ? kEndless : most / less}, changed);
}

bool Extents::propagate_one(const Constraint& constraint, bool& changed) {
  return constraint.leaves_rest() ? propagate_cut(constraint, changed) : propagate_sides(constraint, changed);
}

bool Extents::propagate() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Constraint* constraint : active_)
      if (!propagate_one(*constraint, changed)) return false;
  }
  return true;
}

// Whether it cuts what other things divide, and does not divide it: two parts of something even are even.
bool Extents::leaves_rest(Var axis) const {
  auto has = [](const std::vector<Var>& side, Var var) {
    return std::find(side.begin(), side.end(), var) != side.end();
  };
  return std::any_of(active_.begin(), active_.end(), [&](const Constraint* cut) {
    return cut->leaves_rest() && has(cut->right, axis) &&
           std::any_of(active_.begin(), active_.end(), [&](const Constraint* other) {
             return other->kind == Constraint::Kind::product &&
                    (has(other->left, cut->left[0]) || has(other->right, cut->left[0]));
           });
  });
}

// What to try for a variable, best first. A ragged dimension lacks as little as it can.
std::vector<int64_t> Extents::candidates(Var var, int first) const {
  for (const Constraint* constraint : active_) {
    if (!constraint->leaves_rest() || constraint->left[0] != var) continue;
    int64_t covered = 1;
    for (Var part : constraint->right) covered *= known(part) ? bounds(part).least : 0;
    std::vector<int64_t> list;
    for (int64_t value = covered - 1; value >= 2; --value) list.push_back(value);
    if (covered > 0) return list;
  }
  const Variable& variable = variables_[static_cast<size_t>(var)];
  const int64_t most = std::min(variable.original, kLargestChoice);
  std::vector<int64_t> list;
  const int64_t preferred = variable.role == Role::axis ? (leaves_rest(var) ? 3 : 2) : first;
  if (preferred <= most) list.push_back(preferred);
  for (int64_t value = std::min<int64_t>(variable.original, 2); value <= most; ++value)
    if (value != preferred) list.push_back(value);
  return list;
}

// The next variable to give a value; -1 when all have one. Of whole dimensions the one for which least is left: others, which may
// have to be larger than any choice, follow.
Extents::Var Extents::choose(const std::vector<Var>& members) const {
  auto role = [&](Var var) { return variables_[static_cast<size_t>(var)].role; };
  auto range = [&](Var var) { return role(var) == Role::whole ? bounds(var).most - bounds(var).least : 0; };
  Var best = -1;
  for (Var var : members)
    if (!known(var) && (best < 0 || std::pair(role(var), range(var)) < std::pair(role(best), range(best))))
      best = var;
  for (const Constraint* constraint : active_)
    if (constraint->leaves_rest() && !known(constraint->left[0]) &&
        std::all_of(constraint->right.begin(), constraint->right.end(), [&](Var var) { return known(var); }))
      return constraint->left[0];
  return best;
}

bool Extents::search(const std::vector<Var>& members, int first) {
  const size_t mark = trail_.size();
  bool found = --budget_ >= 0 && propagate();
  if (const Var var = found ? choose(members) : -1; var >= 0) {
    found = false;
    for (int64_t value : candidates(var, first)) {
      const size_t before = trail_.size();
      found = set(var, value) && search(members, first);
      if (found || budget_ < 0) break;
      undo(before);
    }
  }
  if (!found) undo(mark);
  return found;
}

// Variables that constraints connect.
std::vector<std::vector<Extents::Var>> Extents::components() {
  std::vector<Var> group(variables_.size());
  for (size_t i = 0; i < group.size(); ++i) group[i] = static_cast<Var>(i);
  auto find = [&](Var var) {
    while (group[static_cast<size_t>(var)] != var) var = group[static_cast<size_t>(var)];
    return var;
  };
  for (const Constraint& constraint : constraints_)
    for (const auto* side : {&constraint.left, &constraint.right})
      for (Var var : *side) {
        const Var a = find(constraint.left[0]), b = find(var);
        group[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
      }
  std::map<Var, std::vector<Var>> members;
  for (size_t i = 0; i < variables_.size(); ++i)
    if (root(static_cast<Var>(i)) == static_cast<Var>(i))
      members[find(static_cast<Var>(i))].push_back(static_cast<Var>(i));
  std::vector<std::vector<Var>> result;
  for (auto& [first, list] : members) result.push_back(std::move(list));
  return result;
}

void Extents::prefer(Var var, int64_t extent) {
  Variable& variable = variables_[static_cast<size_t>(root(var))];
  variable.preferred = std::min({extent, variable.original, kLargestChoice});
}

void Extents::solve() {
  for (Constraint& constraint : constraints_)
    for (auto* side : {&constraint.left, &constraint.right})
      for (Var& var : *side) var = root(var);
  int first = 2;
  for (const std::vector<Var>& members : components()) {
    active_.clear();
    for (const Constraint& constraint : constraints_)
      if (std::binary_search(members.begin(), members.end(), constraint.left[0]))
        active_.push_back(&constraint);
    trail_.clear();
    budget_ = kChoices;
    bool solved = std::none_of(members.begin(), members.end(),
                               [&](Var var) { return variables_[static_cast<size_t>(var)].kept; });
    bool matters = false;
    int64_t preferred = 0;
    for (Var var : members) {
      const Variable& variable = variables_[static_cast<size_t>(var)];
      preferred = std::max(preferred, variable.preferred);
      matters |= variable.original >= 2;
    }
    solved = solved && search(members, preferred > 0 ? static_cast<int>(preferred) : first);
    if (!solved)
      for (Var var : members) variables_[static_cast<size_t>(var)].bounds = {original(var), original(var)};
    // 2, 3, 4, 2, ...: dimensions that have nothing to do with each other differ.
    if (matters) first = first == 4 ? 2 : first + 1;
  }
}

}  // namespace quern
