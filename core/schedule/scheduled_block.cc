#include "core/schedule/scheduled_block.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/integers.h"
#include "core/mugraph/narrow.h"
#include "core/mugraph/tensor_view.h"

namespace quern {

namespace {

// Bytes of DRAM's time that whole rows of a tile cost which lie apart from the others: norms of rows of 128 bytes, of which a tile has
// one or two next to each other in each of 16 or 32 places, take 1.2 to 1.3 times as long as of four and more (docs/results/model.md).
constexpr double kRowsApart = 24;
constexpr double kShortRows = 0.25;  // of the time that DRAM takes, more where rows of a tile have 64 bytes

bool is_norm(OpCode code) {
  return code == OpCode::rms_norm || code == OpCode::layer_norm || code == OpCode::softmax;
}

bool takes(const BlockOp& user, BlockValue value) {
  return std::find(user.operands.begin(), user.operands.end(), value) != user.operands.end();
}

}  // namespace

ScheduledBlock::ScheduledBlock(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                               const Target& target)
    : mugraph_(mugraph),
      kernel_(kernel),
      schedule_(schedule),
      target_(target),
      stages_(block_stages(kernel)),
      has_product_(has_product(kernel.ops)),
      dram_shares_(shares_of_dram(mugraph, kernel, target)),
      product_(kernel.ops.size()),
      split_rows_(kernel.ops.size()),
      unpadded_(kernel.ops.size()),
      copies_(kernel.ops.size(), 1) {
  places_.reserve(kernel.ops.size());
  dtypes_.reserve(kernel.ops.size());
  for (const BlockOp& each : kernel.ops)
    places_.push_back(each.has_access() ? dense_place(mugraph, each.tensor()) : TensorPlace());
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const auto value = static_cast<BlockValue>(i);
    staged_.push_back(op(value).is_load() && is_from_memory(op(value)) &&
                      is_staged(kernel.ops, schedule, value, stages_[i], place(value)));
  }
  for (size_t i = 0; i < kernel.ops.size(); ++i)
    dtypes_.push_back(
        kernel.ops[i].is_compute(OpKind::contraction) && kernel.ops[i].type.shape.size() > 1
            ? tensor_core_dtype(kernel.ops, static_cast<BlockValue>(i), schedule.tf32 || schedule.tf32x3)
            : std::nullopt);
  find_unpadded();
  find_products();
  count_copies();
}

bool ScheduledBlock::is_in_three(size_t i) const {
  return schedule_.tf32x3 && !tensor_core_dtype(kernel_.ops, static_cast<BlockValue>(i), false);
}

void ScheduledBlock::find_products() {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& each = kernel_.ops[i];
    if (is_elementwise(each))
      for (BlockValue operand : each.operands) {
        product_[i] |= product_[static_cast<size_t>(operand)];
        split_rows_[i] |= split_rows_[static_cast<size_t>(operand)];
      }
    else if (each.is_compute(OpKind::contraction)) {
      product_[i] = true;
      split_rows_[i] = is_by_warpgroups(i) && m_side() == 0 && room(i, 1) > 16 * schedule_.warps[0];
    }
  }
}

bool ScheduledBlock::is_elementwise(const BlockOp& each) const {
  return each.is_compute(OpKind::elementwise) || each.is_compute(OpKind::composite);
}

double ScheduledBlock::loaded_bytes(const BlockOp& load) const {
  return static_cast<double>(load.type.element_count()) *
         static_cast<double>(dtype_size(mugraph_.tensors[static_cast<size_t>(load.tensor())].type.dtype));
}

ScheduledBlock::Row ScheduledBlock::memory_row(BlockValue value) const {
  const BlockOp& access = op(value);
  const TensorPlace& place = this->place(value);
  const Ints& shape = place.shape;
  Row row;
  if (shape.empty()) return row;
  const int inner = inner_dim(place, access.type.shape);
  row.dim = inner < 0 ? shape.size() - 1 : static_cast<size_t>(inner);
  const auto size = static_cast<int64_t>(dtype_size(place.dtype));
  int64_t part = shape[row.dim];
  row.whole = access.type.shape[row.dim] >= part;
  if (row.whole) {
    const auto run = run_bytes(place, access.type.shape, row.dim);
    row.apart = run.has_value();
    row.bytes = static_cast<double>(run.value_or(0));
    return row;
  }
  row.bytes = static_cast<double>(access.type.shape[row.dim] * size);
  int64_t starts = kMostAlignment;
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != row.dim && shape[d] > 1) starts |= place.strides[d] * size;
  for (int axis = 0; axis <= kGridAxes; ++axis)
    if (cuts(access, axis, static_cast<int>(row.dim)) && kernel_.parts(axis) > 1) {
      part = kernel_.part(axis, part);
      starts |= part * size;
    }
  row.alignment = starts & -starts;
  return row;
}

ScheduledBlock::SectorWaste ScheduledBlock::sector_waste(const Row& row) {
  if (row.whole && !row.apart) return {};
  const double beyond = static_cast<double>(32 - std::min<int64_t>(32, row.alignment));
  const double pairs = std::max(1.0, std::min(2.0, 64 / row.bytes));
  // Pages of DRAM are opened for less: tiles with rows of 64 bytes came in 1.06 to 1.29 of the time of whole rows, of 128 in 1.05
  // to 1.10, of 256 in 1.06 (docs/results/model.md).
  const double pages = 1 + (row.whole ? kRowsApart / std::max(64.0, row.bytes)
                                      : kShortRows * std::pow(64 / std::max(64.0, row.bytes), 1.5));
  return {std::max(32.0, row.bytes + beyond) / row.bytes, (row.bytes < 64 ? 0.5 * (1 + pairs) : 1) * pages};
}

ScheduledBlock::StagedTile ScheduledBlock::staged_tile(BlockValue value, const Row& row) const {
  constexpr double kLine = 128;
  const BlockOp& load = op(value);
  const TensorPlace& place = this->place(value);
  const StagedExtents extents =
      staged_extents(kernel_, schedule_, load, place, least_extents(value), turned_dim(value));
  const auto size = static_cast<double>(dtype_size(place.dtype));
  StagedTile out;
  out.bytes =
      size * static_cast<double>(panel_elements(extents, static_cast<int64_t>(dtype_size(place.dtype))));
  const double unit = schedule_.tma || schedule_.wgmma ? kPanelUnit : kStagedUnit;
  out.bytes = std::ceil(out.bytes / unit) * unit;
  const std::vector<int> dims = dims_by_stride(place, extents);
  const auto map =
      schedule_.tma && target_.tma ? tile_map(kernel_, load, place, extents, dims) : std::nullopt;
  if (!map) return out;
  const TileBoxes boxes = tile_boxes(*map, extents, dims);
  out.copies = static_cast<double>(boxes.panels * boxes.parts);
  const double tile_row = static_cast<double>(load.type.shape[row.dim]) * size;
  // Rows of no whole lines come in pieces of half a line or less, each of which is a request.
  const double piece = std::min(kLine, static_cast<double>(panel_row(static_cast<int64_t>(tile_row))));
  const bool in_pieces = tile_row > kLine && piece < kLine;
  const double panels = std::max(1.0, std::ceil(tile_row / (in_pieces ? piece : kLine))),
               rows = loaded_bytes(load) / tile_row;
  const double lines = (std::min(tile_row, kLine) + kLine - static_cast<double>(row.alignment)) / kLine;
  out.lines = rows * panels * std::max(1.0, lines);
  if (in_pieces) out.requests = kLine / piece;
  return out;
}

Ints ScheduledBlock::least_extents(BlockValue load) const {
  Ints least(op(load).type.shape.size(), 1);
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const auto dtype = tensor_dtype(i);
    if (!dtype) continue;
    const bool by_warpgroups = is_by_warpgroups(i);
    for (size_t side : {size_t{0}, size_t{1}}) {
      const BlockValue operand = kernel_.ops[i].operands[side];
      if (root_load(operand) != load || least.size() < 2) continue;
      auto need = [&](size_t dim, int64_t extent) { least[dim] = std::max(least[dim], extent); };
      const size_t rank = least.size();
      need(rank - (side == 0 ? 1 : 2), least_inner(*dtype));
      const bool is_m = static_cast<int>(side) == m_side();
      const int64_t rows = by_warpgroups ? (is_m ? kWgmmaRows : 8) : side == 1 ? 8 : 16;
      const bool few = !by_warpgroups && side == 0 && op(operand).type.shape[rank - 2] <= 8;
      need(rank - (side == 0 ? 2 : 1), few ? 8 : rows);
      if (by_warpgroups && operand == load)
        need(static_cast<size_t>(std::max(0, inner_dim(place(load), op(load).type.shape))), 16);
    }
  }
  return least;
}

double ScheduledBlock::widest(BlockValue load) const {
  const TensorPlace& place = this->place(load);
  const int inner = inner_dim(place, op(load).type.shape);
  return static_cast<double>(dtype_size(place.dtype) << vector_bits(kernel_, op(load), place, inner));
}

double ScheduledBlock::copy_width(BlockValue load) const {
  const int inner = inner_dim(place(load), op(load).type.shape);
  return turned_dim(load).value_or(inner) == inner ? widest(load)
                                                   : static_cast<double>(dtype_size(place(load).dtype));
}

bool ScheduledBlock::is_fragment(BlockValue load) const {
  bool found = false;
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& user = kernel_.ops[i];
    const bool used = takes(user, load);
    if (used && !is_elementwise(user) && !user.is_compute(OpKind::contraction)) return false;
    found |= fragment_vector(load, i) > 0;
  }
  return found;
}

// What meets a product is loaded as that lies in registers.
bool ScheduledBlock::joins_product(BlockValue load) const {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& user = kernel_.ops[i];
    if (is_elementwise(user) && is_of_product(static_cast<BlockValue>(i)) && takes(user, load)) return true;
  }
  return false;
}

double ScheduledBlock::load_width(BlockValue load) const {
  const TensorPlace& place = this->place(load);
  const auto size = static_cast<double>(dtype_size(place.dtype));
  int64_t vector = 0;
  for (size_t i = 0; i < kernel_.ops.size() && vector == 0 && !is_kept(load); ++i)
    vector = fragment_vector(load, i);
  if (vector == 0 && joins_product(load)) vector = 2;
  if (vector == 0) {
    const int thread_bits = std::bit_width(static_cast<uint64_t>(schedule_.workers())) - 1;
    const Ints &own = op(load).type.shape, &used = shape_of_use(load);
    const int inner = inner_dim(place, own) + static_cast<int>(used.size() - own.size());
    vector = int64_t{1} << shared_vector_bits(used, place.dtype, inner, thread_bits);
  }
  const double width = std::min(widest(load), size * static_cast<double>(vector));
  return width < 4 ? size : width;
}

BlockValue ScheduledBlock::kept_operand(size_t product) const {
  if (!schedule_.shared_a || !in_loop(product) || !tensor_dtype(product) || !is_by_warpgroups(product)) return -1;
  const BlockValue rows = kernel_.ops[product].operands[static_cast<size_t>(m_side())];
  const BlockValue load = root_load(rows);
  const bool there = stages_[static_cast<size_t>(rows)] == Stage::before && load >= 0 &&
                     keeps_panel(place(load), op(rows).type.shape, rows == load && schedule_.producer,
                                 has_three_warpgroups());
  return there ? rows : -1;
}

bool ScheduledBlock::is_kept(BlockValue load) const {
  for (size_t i = 0; i < kernel_.ops.size(); ++i)
    if (const BlockValue rows = kept_operand(i); rows >= 0 && root_load(rows) == load) return true;
  return false;
}

const Ints& ScheduledBlock::shape_of_use(BlockValue load) const {
  const Ints* shape = &op(load).type.shape;
  for (const BlockOp& user : kernel_.ops)
    if (is_elementwise(user) && user.type.shape.size() >= shape->size() &&
        user.type.element_count() > op(load).type.element_count() && takes(user, load))
      shape = &user.type.shape;
  return *shape;
}

int64_t ScheduledBlock::fragment_vector(BlockValue load, size_t product) const {
  const auto dtype = tensor_dtype(product);
  const BlockOp& each = kernel_.ops[product];
  if (!dtype) return 0;
  for (size_t side : {size_t{0}, size_t{1}}) {
    if (root_load(each.operands[side]) != load) continue;
    const int64_t pair = *dtype == DType::f32 ? 1 : 2, most = 16 / static_cast<int64_t>(dtype_size(*dtype));
    const BlockValue other = root_load(each.operands[1 - side]);
    const bool free = is_by_free(load, side);
    // Lanes exchange words of what comes once, and have two or four that lie together.
    auto words = [&](int64_t inner) {
      const bool once = pair == 2 && !in_loop(static_cast<size_t>(load)) && place(load).pieces.empty();
      return !once || inner < 16 ? pair : std::min(most, inner < 32 ? 2 * pair : 4 * pair);
    };
    const int64_t summed = std::max(least_inner(*dtype), padded(op(each.operands[0]).type.shape.back()));
    if (is_by_warpgroups(product)) return free ? 1 : words(summed);
    const ProductParts parts = parts_of(product, *dtype);
    if (free) {
      const int64_t columns = std::max<int64_t>(8, padded(each.type.shape.back()) / parts.n);
      return side == 0 ? 1 : std::min(most, columns / 8);
    }
    // A staged operand's rows are read in their own order, and so are those of an earlier product.
    const int64_t inner = summed / parts.k;
    if (product_[static_cast<size_t>(each.operands[0])] || (other >= 0 && is_staged_load(other)))
      return words(inner);
    return std::min(most, inner / 4);
  }
  return 0;
}

bool ScheduledBlock::is_by_free(BlockValue load, size_t side) const {
  const Ints& tile = op(load).type.shape;
  return tile.size() > 1 &&
         inner_dim(place(load), tile) == static_cast<int>(tile.size()) - (side == 0 ? 2 : 1);
}

bool ScheduledBlock::is_by_inner(BlockValue operand, size_t side) const {
  const BlockOp& from = op(operand);
  const size_t rank = from.type.shape.size(), summed = rank - (side == 0 || rank == 1 ? 1 : 2);
  if (!is_staged_load(operand)) return summed + 1 == rank;
  const int inner = inner_dim(place(operand), from.type.shape);
  return (inner < 0 ? rank - 1 : static_cast<size_t>(inner)) == summed && !is_turned(operand, side);
}

bool ScheduledBlock::is_turned(BlockValue operand, size_t side) const {
  const size_t rank = op(operand).type.shape.size();
  int users = 0;
  for (const BlockOp& user : kernel_.ops)
    users += static_cast<int>(std::count(user.operands.begin(), user.operands.end(), operand));
  return is_staged_load(operand) && !(schedule_.tma && target_.tma) && rank > 1 && users == 1 &&
         inner_dim(place(operand), op(operand).type.shape) == static_cast<int>(rank - (side == 0 ? 1 : 2));
}

std::optional<int> ScheduledBlock::turned_dim(BlockValue load) const {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& user = kernel_.ops[i];
    if (!user.is_compute(OpKind::contraction) || tensor_dtype(i)) continue;
    for (size_t side : {size_t{0}, size_t{1}})
      if (user.operands[side] == load && place(load).dtype == user.type.dtype && is_turned(load, side))
        return op(load).type.rank() - (side == 0 ? 2 : 1);
  }
  return {};
}

bool ScheduledBlock::is_made(BlockValue value) const {
  const size_t i = static_cast<size_t>(value);
  return schedule_.stages > 0 && in_loop(i) && !product_[i] && is_elementwise(op(value));
}

bool ScheduledBlock::is_panel_operand(BlockValue value, DType dtype) const {
  return is_staged_load(value) && place(value).dtype == dtype && is_panel(place(value), op(value).type.shape);
}

bool ScheduledBlock::uses_wgmma(const BlockOp& each, DType dtype) const {
  if (!schedule_.wgmma || !target_.wgmma) return false;
  const Ints& shape = each.type.shape;
  if (padded(m_side() == 0 ? shape[shape.size() - 2] : shape.back()) < kWgmmaRows) return false;
  const BlockValue n_operand = each.operands[static_cast<size_t>(1 - m_side())], load = root_load(n_operand);
  return load >= 0 && is_panel_operand(load, dtype) &&
         (load == n_operand || makes_panel(place(load), op(n_operand).type.shape));
}

bool ScheduledBlock::is_by_warpgroups(size_t i) const {
  const auto dtype = tensor_dtype(i);
  return dtype && *dtype != DType::f32 && uses_wgmma(kernel_.ops[i], *dtype);
}

Ints ScheduledBlock::inner_extents(const BlockOp& product) const {
  const BlockOp &left = op(product.operands[0]), &right = op(product.operands[1]);
  auto is_concat = [](const BlockOp& each, int64_t dim) {
    return dim >= 0 && each.is_compute(OpCode::concat) && (*each.attrs().axis)[0] == dim;
  };
  auto extents = [&](const BlockOp& concat, size_t from_end) {
    Ints out;
    for (BlockValue operand : concat.operands)
      out.push_back(*(op(operand).type.shape.end() - static_cast<std::ptrdiff_t>(from_end)));
    return out;
  };
  if (is_concat(left, left.type.rank() - 1) && is_concat(right, right.type.rank() - 2))
    if (const Ints parts = extents(left, 1); parts == extents(right, 2)) return parts;
  return {left.type.shape.back()};
}

// Parts whose operands both have the same 16 bits are multiplied as those, whatever the others are.
int64_t ScheduledBlock::least_of_part(const BlockOp& product, size_t part, DType dtype) const {
  auto narrow = [&](size_t side) {
    return narrow_dtype(kernel_.ops, op(product.operands[side]).operands[part]);
  };
  const std::optional<DType> left = narrow(0);
  return least_inner(left && left == narrow(1) ? *left : dtype);
}

double ScheduledBlock::fragments_of(size_t i, DType dtype) const {
  const BlockOp& each = kernel_.ops[i];
  const Ints& shape = each.type.shape;
  const int64_t rows = shape[shape.size() - 2];
  double sum = 0;
  const Ints extents = inner_extents(each);
  for (size_t part = 0; part < extents.size(); ++part) {
    const int64_t inner = extents[part],
                  least = extents.size() == 1 ? least_inner(dtype) : least_of_part(each, part, dtype);
    const ProductParts parts = product_parts(rows, inner, least, schedule_.warps);
    sum += static_cast<double>(std::max<int64_t>(16, padded(rows)) / parts.m / 16) *
           static_cast<double>(std::max<int64_t>(8, padded(shape.back()) / parts.n) / 8) *
           static_cast<double>(std::max(least, padded(inner)) / parts.k / least);
  }
  return sum * warps();
}

ProductParts ScheduledBlock::parts_of(size_t i, DType dtype) const {
  const BlockOp& each = kernel_.ops[i];
  return product_parts(each.type.shape[each.type.shape.size() - 2], op(each.operands[0]).type.shape.back(),
                       least_inner(dtype), schedule_.warps);
}

void ScheduledBlock::count_copies() {
  for (size_t i = kernel_.ops.size(); i-- > 0;) {
    const BlockOp& each = kernel_.ops[i];
    if (is_elementwise(each)) {
      for (BlockValue operand : each.operands)
        copies_[static_cast<size_t>(operand)] = std::max(copies_[static_cast<size_t>(operand)], copies_[i]);
    } else if (is_by_warpgroups(i)) {
      if (kept_operand(i) < 0)
        copies_[static_cast<size_t>(each.operands[static_cast<size_t>(m_side())])] =
            by_warpgroups(i).m_copies;
    } else if (const auto dtype = tensor_dtype(i)) {
      copies_[static_cast<size_t>(each.operands[0])] = static_cast<double>(parts_of(i, *dtype).n);
    }
  }
}

ScheduledBlock::WarpgroupProduct ScheduledBlock::by_warpgroups(size_t i) const {
  const BlockOp& each = kernel_.ops[i];
  const int side = m_side();
  int64_t m = room(i, 1), n = room(i, 0);
  if (side == 1) std::swap(m, n);
  n = std::max<int64_t>(n, 8);
  const int64_t k = std::max<int64_t>(16, padded(op(each.operands[0]).type.shape.back()));
  // No instruction begins within a row of a panel.
  const BlockValue wide = root_load(each.operands[static_cast<size_t>(1 - side)]);
  const int64_t least_n =
      is_by_free(wide, static_cast<size_t>(1 - side)) ? std::min<int64_t>(n, kPanelColumns) : 8;
  WarpgroupProduct out;
  out.tile = {m, n, k, least_n};
  out.parts = warpgroup_parts(out.tile, schedule_.warps[static_cast<size_t>(side)],
                              side == 0 ? schedule_.warps[1] : 1, schedule_.workers() / 32);
  const auto groups = static_cast<double>(schedule_.workers() / 128);
  out.m_copies = groups / static_cast<double>(out.parts.m * out.parts.k);
  // Steps that the inner dimension has room for, and no elements, are left out.
  if (out.parts.k == 1) out.tile.k = round_up(op(each.operands[0]).type.shape.back(), 16);
  return out;
}

bool ScheduledBlock::is_kept(size_t i) const {
  if (in_loop(i) || kernel_.ops[i].type.element_count() == 0) return false;
  // Where there is a loop, what it does not see has gone before it needs its registers. What is made for behind the loop alone
  // is made there.
  bool reduced = false, stays = kernel_.trip_count == 1;
  int uses = 0;
  for (size_t u = i + 1; u < kernel_.ops.size(); ++u) {
    const BlockOp& user = kernel_.ops[u];
    for (BlockValue operand : user.operands) {
      if (static_cast<size_t>(operand) != i) continue;
      ++uses;
      stays |=
          stages_[u] != Stage::before || (is_elementwise(user) && !is_norm(user.code()) && is_used_behind(u));
      if (!user.is_compute()) continue;
      const bool norm = is_norm(user.code());
      reduced |= norm || user.is_compute(OpKind::reduction);
      uses += norm;
    }
  }
  return reduced && stays && uses > 1;
}

bool ScheduledBlock::is_used_behind(size_t i) const {
  for (size_t u = i + 1; u < kernel_.ops.size(); ++u)
    if (stages_[u] == Stage::after && takes(kernel_.ops[u], static_cast<BlockValue>(i))) return true;
  return false;
}

bool ScheduledBlock::lives_on(BlockValue value) const {
  const BlockOp& each = op(value);
  if (product_[static_cast<size_t>(value)] || !in_loop(static_cast<size_t>(value)) ||
      each.type.element_count() < schedule_.workers())
    return false;
  int64_t uses = 0;
  for (const BlockOp& user : kernel_.ops) {
    const int64_t own = std::count(user.operands.begin(), user.operands.end(), value);
    if (own > 0 && user.is_compute(OpKind::contraction)) return false;
    uses += own;
  }
  return uses > 1 && is_reduced(value);
}

bool ScheduledBlock::is_reduced(BlockValue value) const {
  for (size_t user = static_cast<size_t>(value) + 1; user < kernel_.ops.size(); ++user) {
    const BlockOp& each = kernel_.ops[user];
    if (!each.is_compute() || !takes(each, value)) continue;
    if (each.is_compute(OpKind::reduction) || is_norm(each.code())) return true;
    if (is_elementwise(each) && is_reduced(static_cast<BlockValue>(user))) return true;
  }
  return false;
}

bool ScheduledBlock::is_summed(size_t i) const {
  for (const BlockOp& user : kernel_.ops)
    for (BlockValue operand : user.operands)
      if (operand == static_cast<BlockValue>(i) && (!user.is_accumulate() || user.combine() == Combine::max))
        return false;
  return true;
}

ReducedParts ScheduledBlock::parts_of_reduction(const BlockOp& each) const {
  const BlockOp& from = op(each.operands[0]);
  const Ints& axes = *each.attrs().axis;
  return product_[static_cast<size_t>(each.operands[0])] && from.type.shape.size() > 1
             ? reduced_product_parts(from.type.shape, axes, schedule_.warps)
             : reduced_parts(from.type.shape, axes, static_cast<int64_t>(dtype_size(from.type.dtype)),
                             schedule_.workers() / 32, row_warps());
}

}  // namespace quern
