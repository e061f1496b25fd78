#include "core/codegen/trace.h"

#include <algorithm>
#include <set>

namespace quern {

namespace {

template <class T>
void put(std::string& key, T value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string key_of(ValueId value, const Coords& coords, int guard) {
  std::string key;
  put(key, value);
  put(key, guard);
  for (const Index& index : coords) {
    put(key, index.constant);
    put(key, index.terms.size());
    for (const Index::Term& term : index.terms) put(key, term.atom), put(key, term.factor);
  }
  return key;
}

// As numpy broadcasts: dimensions are aligned at the end, and extent 1 means index 0.
Coords broadcast_coords(const Coords& coords, const Ints& shape) {
  Coords out(shape.size());
  const size_t offset = coords.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) out[i] = coords[offset + i];
  return out;
}

}  // namespace

Coords move_coords(const Graph& graph, IndexSpace& space, const Node& node, const Coords& coords) {
  const Ints& shape = graph.node(node.operands[0]).type.shape;
  Coords out(shape.size());
  switch (node.code) {
    case OpCode::reshape:
      return space.unflatten(shape, space.flatten(node.type.shape, coords));
    case OpCode::transpose:
      for (size_t i = 0; i < out.size(); ++i) out[static_cast<size_t>((*node.attrs.perm)[i])] = coords[i];
      return out;
    case OpCode::slice:
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = space.add(space.scale(coords[i], (*node.attrs.step)[i]), (*node.attrs.start)[i]);
      return out;
    case OpCode::broadcast:
      return broadcast_coords(coords, shape);
    default:
      fatal(__FILE__, __LINE__, "not a movement operator");
  }
}

VariableSet Trace::uses(const Coords& coords) const {
  VariableSet set = 0;
  for (const Index& index : coords) set |= space_.uses(index);
  return set;
}

int Trace::append(Item item) {
  item.uses |= space_.uses(item.index);
  for (int operand : item.operands) item.uses |= items_[static_cast<size_t>(operand)].uses;
  if (item.guard >= 0) item.uses |= items_[static_cast<size_t>(item.guard)].uses;
  if (static_cast<int>(items_.size()) >= limit_) failed_ = true;
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

int Trace::root(ValueId value, const Coords& coords) {
  const std::string key = key_of(value, coords, -1);
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  const int item = expand(value, coords, -1);
  known_.emplace(key, item);
  return item;
}

int Trace::visit(ValueId value, const Coords& coords, int guard) {
  if (failed_) return append({});
  const Node& node = graph_.node(value);
  const std::string key = key_of(value, coords, guard);
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  int result = -1;
  switch (node.code == OpCode::input ? Meeting::load : meet_(value, coords)) {
    case Meeting::expand:
      result = expand(value, coords, guard);
      break;
    case Meeting::load: {
      Index offset;
      const Ints strides = node.code == OpCode::input ? node.strides : dense_strides(node.type.shape);
      for (size_t i = 0; i < coords.size(); ++i)
        offset = space_.add(offset, space_.scale(coords[i], strides[i]));
      result = append({Item::Kind::load, value, register_type(node.type.dtype), {}, guard, offset, 0, 0});
      break;
    }
    case Meeting::hold:
      result = append({Item::Kind::held, value, register_type(node.type.dtype), {}, -1, {}, 0, uses(coords)});
      break;
    case Meeting::refuse:
      failed_ = true;
      return append({});
  }
  known_.emplace(key, result);
  return result;
}

int Trace::expand(ValueId value, const Coords& coords, int guard) {
  const Node& node = graph_.node(value);
  if (node.code == OpCode::input) return visit(value, coords, guard);
  const DType type = register_type(node.type.dtype);
  switch (op_info(node.code).kind) {
    case OpKind::leaf:
      return append({Item::Kind::number, value, type, {}, -1, {}, 0, 0});
    case OpKind::generator:
      return append({Item::Kind::iota,
                     value,
                     type,
                     {},
                     -1,
                     coords[static_cast<size_t>(node.attrs.axis->front())],
                     0,
                     0});
    case OpKind::conversion: {
      const int operand = visit(node.operands[0], coords, guard);
      return append({Item::Kind::convert, value, type, {operand}, -1, {}, 0, 0});
    }
    case OpKind::elementwise:
      return compute(node, value, coords, guard);
    case OpKind::movement:
      if (node.code == OpCode::concat) return concat(node, coords, guard);
      ++moves_;
      return visit(node.operands[0], move_coords(graph_, space_, node, coords), guard);
    default:
      failed_ = true;
      return append({});
  }
}

int Trace::compute(const Node& node, ValueId value, const Coords& coords, int guard) {
  Item item{Item::Kind::compute, value, register_type(node.type.dtype), {}, -1, {}, 0, 0};
  for (ValueId operand : node.operands)
    item.operands.push_back(visit(operand, broadcast_coords(coords, graph_.node(operand).type.shape), guard));
  return append(std::move(item));
}

int Trace::concat(const Node& node, const Coords& coords, int guard) {
  const size_t axis = static_cast<size_t>(node.attrs.axis->front());
  const int64_t low = space_.smallest(coords[axis]), high = space_.largest(coords[axis]);
  Item choice{Item::Kind::choose, -1, register_type(node.type.dtype), {}, -1, {}, 0, 0};
  int64_t start = 0;
  struct Piece {
    ValueId value;
    int64_t start, extent;
  };
  std::vector<Piece> pieces;
  for (ValueId operand : node.operands) {
    const int64_t extent = graph_.node(operand).type.shape[axis];
    if (extent > 0 && start <= high && low < start + extent) pieces.push_back({operand, start, extent});
    start += extent;
  }
  for (const Piece& piece : pieces) {
    Coords at = coords;
    at[axis] = space_.add(coords[axis], -piece.start);
    int inside = guard;
    if (pieces.size() > 1)
      inside = append({Item::Kind::guard, -1, DType::boolean, {}, guard, at[axis], piece.extent, 0});
    const int value = visit(piece.value, at, inside);
    if (pieces.size() == 1 && item(value).type == choice.type) return value;
    if (&piece != &pieces.back()) choice.operands.push_back(inside);
    choice.operands.push_back(value);
  }
  return append(std::move(choice));
}

int Trace::cost() const {
  std::set<AtomId> atoms;
  std::function<void(const Index&)> collect = [&](const Index& index) {
    for (const Index::Term& term : index.terms)
      if (atoms.insert(term.atom).second) collect(space_.atom(term.atom).argument);
  };
  for (const Item& item : items_) collect(item.index);
  return static_cast<int>(items_.size() + atoms.size()) + moves_ / 4;
}

}  // namespace quern
