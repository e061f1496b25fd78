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

Frame Frame::of(const Kernel& kernel, IndexSpace& space, const Index& row, const Index& inner) {
  Ints outer_shape, inner_shape;
  auto reduced = [&](size_t i) {
    return std::binary_search(kernel.axes.begin(), kernel.axes.end(), int64_t(i));
  };
  for (size_t i = 0; i < kernel.domain.size(); ++i)
    (reduced(i) ? inner_shape : outer_shape).push_back(kernel.domain[i]);
  const Coords outer_coords = space.unflatten(outer_shape, row),
               inner_coords = space.unflatten(inner_shape, inner);
  Frame frame;
  frame.row = row;
  size_t next_outer = 0, next_inner = 0;
  for (size_t i = 0; i < kernel.domain.size(); ++i)
    frame.coords.push_back(reduced(i) ? inner_coords[next_inner++] : outer_coords[next_outer++]);
  frame.position = space.flatten(kernel.domain, frame.coords);
  return frame;
}

Coords Frame::own(IndexSpace& space, const Ints& shape, Role role) const {
  const bool by_row = role == Role::row || role == Role::reduction;
  return space.unflatten(shape, by_row ? row : position);
}

Meet kernel_meet(const Graph& graph, IndexSpace& space, const Kernel& kernel, const Frame& frame,
                 const std::vector<bool>& is_root) {
  return [&, frame](ValueId value, const Coords& coords) {
    if (!is_root[static_cast<size_t>(value)]) return Meeting::expand;
    const auto made = kernel.makes.find(value);
    if (made == kernel.makes.end()) return Meeting::load;
    if (coords != frame.own(space, graph.node(value).type.shape, made->second)) return Meeting::refuse;
    return made->second == Role::reduction || made->second == Role::product ? Meeting::hold : Meeting::expand;
  };
}

}  // namespace quern
