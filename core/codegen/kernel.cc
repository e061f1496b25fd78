#include "core/codegen/kernel.h"

#include <algorithm>

namespace quern {

int64_t Kernel::points() const {
  int64_t count = 1;
  for (int64_t extent : domain) count *= extent;
  return count;
}

int64_t Kernel::row_length() const {
  int64_t count = 1;
  for (int64_t axis : axes) count *= domain[static_cast<size_t>(axis)];
  return count;
}

KernelTrace::KernelTrace(const Graph& graph, const Kernel& kernel, const std::vector<bool>& is_root)
    : graph_(graph),
      kernel_(kernel),
      is_root_(is_root),
      row_(space_.variable("row", kernel.rows())),
      inner_(space_.variable("inner", kernel.row_length())),
      trace_(graph, space_, [this](ValueId value, const Coords& coords) { return meet(value, coords); }) {
  Ints outer_shape, inner_shape;
  auto reduced = [&](size_t i) {
    return std::binary_search(kernel.axes.begin(), kernel.axes.end(), int64_t(i));
  };
  for (size_t i = 0; i < kernel.domain.size(); ++i)
    (reduced(i) ? inner_shape : outer_shape).push_back(kernel.domain[i]);
  const Coords outer_coords = space_.unflatten(outer_shape, row_),
               inner_coords = space_.unflatten(inner_shape, inner_);
  size_t next_outer = 0, next_inner = 0;
  for (size_t i = 0; i < kernel.domain.size(); ++i)
    coords_.push_back(reduced(i) ? inner_coords[next_inner++] : outer_coords[next_outer++]);
  position_ = space_.flatten(kernel.domain, coords_);

  for (const auto& [value, role] : kernel.makes)
    computed_[value] = role == Role::product     ? -1
                       : role == Role::reduction ? trace_.read(graph.node(value).operands[0], coords_)
                                                 : trace_.root(value, own(value, role));
  cost_ = trace_.cost();
  for (const auto& [value, role] : kernel.makes)
    stored_[value] = role == Role::reduction || role == Role::product ? trace_.read(value, own(value, role))
                                                                      : computed_[value];
}

// Where a value that the kernel makes in this role is made, in the value's own coordinates.
Coords KernelTrace::own(ValueId value, Role role) {
  const bool by_row = role == Role::row || role == Role::reduction;
  return space_.unflatten(graph_.node(value).type.shape, by_row ? row_ : position_);
}

Meeting KernelTrace::meet(ValueId value, const Coords& coords) {
  if (!is_root_[static_cast<size_t>(value)]) return Meeting::expand;
  const auto made = kernel_.makes.find(value);
  if (made == kernel_.makes.end()) return Meeting::load;
  const Role role = made->second;
  if (coords != own(value, role)) return Meeting::refuse;
  return role == Role::reduction || role == Role::product ? Meeting::hold : Meeting::expand;
}

KernelTrace::Placed KernelTrace::place(IndexSpace& space, const Index& row, const Index& inner) const {
  std::map<AtomId, Index> values;
  if (!row_.is_constant()) values[row_.terms[0].atom] = row;
  if (!inner_.is_constant()) values[inner_.terms[0].atom] = inner;
  Placed out;
  out.position = space.import(space_, position_, values);
  for (Item item : trace_.items()) {
    const VariableSet uses = item.uses;
    item.index = space.import(space_, item.index, values);
    item.uses = space.uses(item.index);
    for (int operand : item.operands) item.uses |= out.items[static_cast<size_t>(operand)].uses;
    if (item.guard >= 0) item.uses |= out.items[static_cast<size_t>(item.guard)].uses;
    if (item.kind == Item::Kind::held) {
      if (uses & space_.uses(row_)) item.uses |= space.uses(row);
      if (uses & space_.uses(inner_)) item.uses |= space.uses(inner);
    }
    out.items.push_back(std::move(item));
  }
  return out;
}

}  // namespace quern
