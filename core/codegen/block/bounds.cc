#include "core/codegen/block/bounds.h"

#include <algorithm>

#include "core/codegen/block/last_tiles.h"

namespace quern {

TileBounds::TileBounds(const BlockFacts& facts, BlockBody& body)
    : BlockPart(facts, body), block_x_(ir::make_variable("block_x", Scalar::i32)) {
  for (const char* name : {"tile_x", "tile_y", "tile_z"}) {
    whole_.push_back(takes_whole_tiles(facts, static_cast<int>(tile_axes_.size())));
    tile_axes_.push_back(ir::make_variable(name, Scalar::i32));
  }
  const size_t count = program_.ops.size();
  dims_.resize(count);
  firsts_.resize(count);
  for (BlockValue value = 0; value < facts_.count(); ++value) find_extents(value);
}

Expr TileBounds::block_coordinate(int axis) const {
  if (schedule_.persistent > 0) return Expr(tile_axes_[static_cast<size_t>(axis)]);
  if (axis == 0 && facts_.cluster_blocks() > 1) return Expr(block_x_);
  const auto at = std::find(facts_.order.axes.begin(), facts_.order.axes.end(), axis);
  const int number = static_cast<int>(at - facts_.order.axes.begin());
  const int64_t together = facts_.order.together;
  Expr index = ir::block_index(number);
  if (number == 0) index = index / together;
  if (number == 1 && together > 1) index = index * together + ir::block_index(0) % together;
  return axis == facts_.order.backwards ? Expr(kernel_.grid[static_cast<size_t>(axis)] - 1) - index : index;
}

// Where the block's (and iteration's) part of a dimension begins, and what is left of it if it is ragged.
TileBounds::Interval TileBounds::interval(const BlockOp& op, int dim) {
  const Expr axes[] = {block_coordinate(0), block_coordinate(1), block_coordinate(2), Expr(rank()),
                       Expr(body_.iteration_number)};
  const int64_t extent = facts_.place(op).shape[static_cast<size_t>(dim)];
  int64_t tile = extent;
  Expr first = 0, last = extent, whole = ir::truth(true);
  std::string key = std::to_string(extent);
  bool ragged = false, takes_whole = false;
  for (int axis = 0; axis <= kGridAxes; ++axis) {
    if (!cuts(op, axis, dim)) continue;
    takes_whole |= axis < std::ssize(whole_) && whole_[static_cast<size_t>(axis)];
    const int64_t parts = kernel_.parts(axis), next = kernel_.part(axis, tile);
    ragged |= next * parts != tile;
    key += " " + print(axes[axis]) + "/" + std::to_string(parts);
    if (parts > 1) first = first + axes[axis] * next;
    if (axis == kGridAxes) whole = less_equal(first + next, last);
    last = ir::min_of(last, first + next);
    tile = next;
  }
  const bool loop = op.loop_dim() == dim;
  if (first.is_number(0)) return {first};
  const auto [at, fresh_one] = intervals_.try_emplace(key, Interval{first});
  if (fresh_one) {
    Builder to(loop ? body_.iteration : body_.prologue);
    const std::string name = fresh("first");
    at->second.first =
        to.let(ir::make_variable(name, Scalar::i32), takes_whole ? ir::min_of(first, extent - tile) : first);
    if (takes_whole) {
      at->second.own = ir::make_variable(name + "_own", Scalar::i32);
      to.let(at->second.own, first - at->second.first);
    } else if (ragged) {
      at->second.left = ir::make_variable(name + "_left", Scalar::i32);
      to.let(at->second.left, last - at->second.first);
      if (loop) {
        loop_lefts_.insert(at->second.left);
        whole_iterations_ = both(whole_iterations_, whole);
      }
    }
  }
  return at->second;
}

void TileBounds::find_extents(BlockValue value) {
  const size_t at = static_cast<size_t>(value);
  const BlockOp& op = program_.op(value);
  const Ints& shape = op.type.shape;
  auto& dims = dims_[at];
  for (int64_t extent : shape) dims.push_back({extent});
  if (op.has_access()) {
    for (int d = 0; d < op.type.rank(); ++d) {
      const Interval interval = this->interval(op, d);
      firsts_[at].push_back(interval.first / facts_.place(op).repeats_of(static_cast<size_t>(d)));
      dims[static_cast<size_t>(d)].left = interval.left;
      if (op.is_store()) dims[static_cast<size_t>(d)].own = interval.own;
    }
    return;
  }
  // A dimension reaches as far as in an operand that has it.
  for (size_t o = 0; o < op.operands.size(); ++o) {
    const auto& from = dims_[static_cast<size_t>(op.operands[o])];
    const Ints& own = program_.shape(op.operands[o]);
    const std::vector<int> to = result_dims(program_, value, o);
    for (size_t d = 0; d < own.size(); ++d)
      if (to[d] >= 0 && own[d] == shape[static_cast<size_t>(to[d])] && from[d].left)
        dims[static_cast<size_t>(to[d])].left = from[d].left;
  }
}

Expr TileBounds::define(const std::string& prefix, const Expr& expression) {
  if (expression.is_number()) return expression;
  const auto [at, fresh_one] = defined_.try_emplace(print(expression));
  if (fresh_one) {
    at->second = ir::make_variable(fresh(prefix), expression.type());
    Builder(body_.prologue).let(at->second, expression);
  }
  return Expr(at->second);
}

Expr TileBounds::coordinate(const RegisterLayout& layout, int dim, const Expr& index) {
  return define("i", thread_part(layout, dim)) + register_part(index, layout, dim);
}

namespace {

Expr wide_enough(const RegisterLayout& layout, int dim, int64_t stride) {
  const bool wide = stride * (int64_t{1} << layout.bits(dim)) > 0x7fffffff;
  return wide ? ir::cast(Expr(stride), Scalar::i64) : Expr(stride);
}

}  // namespace

Expr TileBounds::offset(const RegisterLayout& layout, const Ints& strides, const Expr& index) {
  Expr out = 0;
  for (int d = 0; d < static_cast<int>(strides.size()); ++d)
    out = out + coordinate(layout, d, index) * wide_enough(layout, d, strides[static_cast<size_t>(d)]);
  return out;
}

Expr TileBounds::register_offset(const RegisterLayout& layout, const Ints& strides, const Expr& index) {
  Expr out = 0;
  for (int d = 0; d < static_cast<int>(strides.size()); ++d)
    out = out + register_part(index, layout, d) * wide_enough(layout, d, strides[static_cast<size_t>(d)]);
  return out;
}

Expr TileBounds::inside(BlockValue value, const RegisterLayout& layout, const Expr& index, bool edges,
                        const std::vector<int>& dims) {
  Expr out = ir::truth(true);
  const auto& extents = dims_[static_cast<size_t>(value)];
  for (int d = 0; d < static_cast<int>(extents.size()); ++d) {
    if (!dims.empty() && std::find(dims.begin(), dims.end(), d) == dims.end()) continue;
    const TileDim& dim = extents[static_cast<size_t>(d)];
    const bool ragged = edges && dim.left, ends = ragged || layout.extent(d) > dim.tile,
               begins = edges && dim.own;
    if (!ends && !begins) continue;
    const Expr at = coordinate(layout, d, index);
    if (begins) out = both(out, less_equal(Expr(dim.own), at));
    if (!ends) continue;
    Expr own = less(at, ragged ? Expr(dim.left) : Expr(dim.tile));
    // Iterations that are masked nowhere have whole tiles.
    if (ragged && !body_.masked_selects.empty() && loop_lefts_.contains(dim.left))
      own = both(either(Expr(body_.unmasked), own),
                 layout.extent(d) <= dim.tile ? ir::truth(true) : less(at, dim.tile));
    out = both(out, own);
  }
  return out;
}

}  // namespace quern
