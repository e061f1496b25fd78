#include "core/schedule/scheduled_block.h"

#include <algorithm>
#include <cmath>

#include "core/mugraph/narrow.h"
#include "core/mugraph/tensor_view.h"

namespace quern {

namespace {

bool is_norm(OpCode code) {
  return code == OpCode::rms_norm || code == OpCode::layer_norm || code == OpCode::softmax;
}

}  // namespace

double padded_elements(const TensorType& type) {
  double count = 1;
  for (int64_t extent : type.shape) count *= static_cast<double>(padded(extent));
  return count;
}

ScheduledBlock::ScheduledBlock(const MuGraph& mugraph, const MuKernel& kernel, const KernelSchedule& schedule,
                               const Target& target)
    : mugraph_(mugraph),
      kernel_(kernel),
      schedule_(schedule),
      target_(target),
      stages_(block_stages(kernel)),
      has_product_(has_product(kernel.ops)),
      product_(kernel.ops.size()),
      split_rows_(kernel.ops.size()),
      copies_(kernel.ops.size(), 1) {
  find_products();
  count_copies();
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
      split_rows_[i] = is_by_warpgroups(i) && m_side() == 0 &&
                       padded(each.type.shape[each.type.shape.size() - 2]) > 16 * schedule_.warps[0];
    }
  }
}

bool ScheduledBlock::is_elementwise(const BlockOp& each) const {
  return each.is_compute(OpKind::elementwise) || each.is_compute(OpKind::composite);
}

bool ScheduledBlock::comes(int32_t tensor) const {
  const MuTensor& own = mugraph_.tensors[static_cast<size_t>(tensor)];
  if (own.view.source >= 0) return comes(own.view.source);
  if (own.pieced.axis >= 0)  // the largest
    return comes(own.pieced
                     .pieces[static_cast<size_t>(
                         std::max_element(own.pieced.extents.begin(), own.pieced.extents.end()) -
                         own.pieced.extents.begin())]
                     .source);
  return std::find(mugraph_.inputs.begin(), mugraph_.inputs.end(), tensor) != mugraph_.inputs.end();
}

double ScheduledBlock::loaded_bytes(const BlockOp& load) const {
  return static_cast<double>(load.type.element_count()) *
         static_cast<double>(dtype_size(mugraph_.tensors[static_cast<size_t>(load.tensor())].type.dtype));
}

ScheduledBlock::Row ScheduledBlock::memory_row(const BlockOp& access) const {
  const MuTensor& tensor = mugraph_.tensors[static_cast<size_t>(access.tensor())];
  const Ints& shape = tensor.type.shape;
  Row row;
  if (shape.empty()) return row;
  row.dim = shape.size() - 1;
  Ints strides;  // of a view; otherwise each is a multiple of a row
  if (tensor.view.source >= 0) {
    strides = strides_if_dense(mugraph_, tensor);
    for (size_t d = 0; d < shape.size(); ++d)
      if (strides[d] == 1 && shape[d] > 1) row.dim = d;
  } else {
    while (row.dim > 0 && shape[row.dim] == 1) --row.dim;
  }
  const auto size = static_cast<int64_t>(dtype_size(tensor.type.dtype));
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != row.dim && shape[d] > 1) row.pitches |= (strides.empty() ? shape[row.dim] : strides[d]) * size;
  int64_t part = shape[row.dim];
  row.whole = access.type.shape[row.dim] >= part;
  if (row.whole) return row;
  row.bytes = static_cast<double>(access.type.shape[row.dim] * size);
  int64_t starts = kMostAlignment | row.pitches;
  for (int axis = 0; axis <= kGridAxes; ++axis)
    if (cuts(access, axis, static_cast<int>(row.dim)) && kernel_.parts(axis) > 1) {
      part = kernel_.part(axis, part);
      starts |= part * size;
    }
  row.alignment = starts & -starts;
  return row;
}

ScheduledBlock::SectorWaste ScheduledBlock::sector_waste(const Row& row) {
  if (row.whole) return {};
  const double beyond = static_cast<double>(32 - std::min<int64_t>(32, row.alignment));
  const double pairs = std::max(1.0, std::min(2.0, 64 / row.bytes));
  return {std::max(32.0, row.bytes + beyond) / row.bytes, row.bytes < 64 ? 0.5 * (1 + pairs) : 1};
}

ScheduledBlock::TmaCopies ScheduledBlock::tma_copies(const BlockOp& load, const Row& row) const {
  constexpr double kMostBox = 256, kLine = 128;
  const double tile_row =
      static_cast<double>(load.type.shape[row.dim]) *
      static_cast<double>(dtype_size(mugraph_.tensors[static_cast<size_t>(load.tensor())].type.dtype));
  const double panels = std::max(1.0, std::ceil(tile_row / kLine)), rows = loaded_bytes(load) / tile_row;
  const double lines = (std::min(tile_row, kLine) + kLine - static_cast<double>(row.alignment)) / kLine;
  double longest = 1;
  for (size_t d = 0; d < load.type.shape.size(); ++d)
    if (d != row.dim) longest = std::max(longest, static_cast<double>(padded(load.type.shape[d])));
  return {panels * std::max(1.0, longest / kMostBox), rows * panels * std::max(1.0, lines)};
}

double ScheduledBlock::load_width(const Row& row) {
  constexpr int64_t kMostWidth = 16;
  const int64_t starts = kMostWidth | row.pitches | (row.whole ? 0 : static_cast<int64_t>(row.bytes));
  return static_cast<double>(starts & -starts);
}

bool ScheduledBlock::is_by_inner(BlockValue operand, size_t side) const {
  const BlockOp& from = op(operand);
  const size_t rank = from.type.shape.size(), summed = rank - (side == 0 || rank == 1 ? 1 : 2);
  return lies_by_inner(operand, summed) && !is_turned(operand, rank);
}

bool ScheduledBlock::is_copied_turned(BlockValue load) const {
  for (size_t i = 0; i < kernel_.ops.size(); ++i) {
    const BlockOp& user = kernel_.ops[i];
    if (!user.is_compute(OpKind::contraction)) continue;
    if (tensor_core_dtype(kernel_.ops, static_cast<BlockValue>(i), schedule_.tf32)) continue;
    for (size_t side : {size_t{0}, size_t{1}}) {
      if (user.operands[side] != load) continue;
      const size_t rank = op(load).type.shape.size(), summed = rank - (side == 0 || rank == 1 ? 1 : 2);
      return is_turned(load, rank) && lies_by_inner(load, summed);
    }
  }
  return false;
}

bool ScheduledBlock::lies_by_inner(BlockValue operand, size_t summed) const {
  const BlockOp& from = op(operand);
  const size_t rank = from.type.shape.size();
  if (!is_staged_load(operand)) return summed + 1 == rank;
  const MuTensor& tensor = mugraph_.tensors[static_cast<size_t>(from.tensor())];
  return tensor.view.source < 0 ? summed + 1 == rank : strides_if_dense(mugraph_, tensor)[summed] == 1;
}

bool ScheduledBlock::is_turned(BlockValue operand, size_t rank) const {
  return is_staged_load(operand) && !(schedule_.tma && target_.tma) && rank > 1;
}

bool ScheduledBlock::is_made(BlockValue value) const {
  const size_t i = static_cast<size_t>(value);
  return schedule_.stages > 0 && in_loop(i) && !product_[i] && is_elementwise(op(value));
}

bool ScheduledBlock::uses_wgmma(const BlockOp& each) const {
  const Ints& shape = each.type.shape;
  const BlockValue n_operand = each.operands[static_cast<size_t>(1 - m_side())];
  return schedule_.wgmma && target_.wgmma &&
         (is_made(n_operand) || (is_staged_load(n_operand) && bytes_each(n_operand) == 2)) &&
         padded(m_side() == 0 ? shape[shape.size() - 2] : shape.back()) >= kWgmmaRows;
}

std::optional<DType> ScheduledBlock::tensor_dtype(size_t i) const {
  const BlockOp& each = kernel_.ops[i];
  if (!each.is_compute(OpKind::contraction) || each.type.shape.size() < 2) return {};
  return tensor_core_dtype(kernel_.ops, static_cast<BlockValue>(i), schedule_.tf32);
}

bool ScheduledBlock::is_by_warpgroups(size_t i) const {
  const auto dtype = tensor_dtype(i);
  return dtype && *dtype != DType::f32 && uses_wgmma(kernel_.ops[i]);
}

ProductParts ScheduledBlock::parts_of(size_t i, DType dtype) const {
  const BlockOp& each = kernel_.ops[i];
  return product_parts(each.type.shape[each.type.shape.size() - 2], op(each.operands[0]).type.shape.back(),
                       least_inner(dtype), schedule_.warps);
}

void ScheduledBlock::count_copies() {
  for (size_t i = kernel_.ops.size(); i-- > 0;) {
    const BlockOp& each = kernel_.ops[i];
    if (is_elementwise(each))
      for (BlockValue operand : each.operands)
        copies_[static_cast<size_t>(operand)] = std::max(copies_[static_cast<size_t>(operand)], copies_[i]);
    else if (const auto dtype = tensor_dtype(i); dtype && !is_by_warpgroups(i))
      copies_[static_cast<size_t>(each.operands[0])] = static_cast<double>(parts_of(i, *dtype).n);
  }
}

bool ScheduledBlock::is_kept(size_t i) const {
  if (in_loop(i) || kernel_.ops[i].type.element_count() == 0) return false;
  bool reduced = false;
  int uses = 0;
  for (const BlockOp& user : kernel_.ops)
    for (BlockValue operand : user.operands) {
      if (static_cast<size_t>(operand) != i) continue;
      ++uses;
      if (!user.is_compute()) continue;
      const bool norm = is_norm(user.code());
      reduced |= norm || user.is_compute(OpKind::reduction);
      uses += norm;
    }
  return reduced && uses > 1;
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
    if (!each.is_compute() ||
        std::find(each.operands.begin(), each.operands.end(), value) == each.operands.end())
      continue;
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
