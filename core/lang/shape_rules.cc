// The type rule of every operator: infer_<id> for the rows of ops.def that are not elementwise, one rule for
// those that are.
#include <algorithm>
#include <numeric>

#include "core/lang/type.h"

namespace quern {

namespace {

using Operands = std::span<const TensorType>;

Status invalid(std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); }

DType floating(DType dtype) { return is_float(dtype) ? dtype : DType::f32; }
DType arithmetic(DType dtype) { return dtype == DType::boolean ? DType::i32 : dtype; }

Result<int64_t> normal_axis(int64_t axis, int rank) {
  const int64_t normal = axis < 0 ? axis + rank : axis;
  if (normal < 0 || normal >= rank)
    return invalid("axis " + std::to_string(axis) + " does not exist in a tensor of rank " +
                   std::to_string(rank));
  return normal;
}

// Makes the axes ascending and unique; `fallback` stands in when none are given.
Status normalize_axes(Attrs& attrs, int rank, const Ints& fallback) {
  Ints axes;
  for (int64_t axis : attrs.axis ? *attrs.axis : fallback) {
    auto normal = normal_axis(axis, rank);
    if (!normal) return normal.status();
    if (std::find(axes.begin(), axes.end(), *normal) != axes.end())
      return invalid("axis " + std::to_string(axis) + " is named twice");
    axes.push_back(*normal);
  }
  std::sort(axes.begin(), axes.end());
  attrs.axis = axes;
  return {};
}

Ints all_axes(int rank) {
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Result<TensorType> infer_elementwise(const OpInfo& op, Operands operands) {
  auto shape = broadcast_shapes(operands);
  if (!shape) return shape.status();
  DType dtype = DType::boolean;
  switch (op.result) {
    case ResultRule::same:
      dtype = arithmetic(promote(operands));
      break;
    case ResultRule::floating:
      dtype = floating(promote(operands));
      break;
    case ResultRule::truth:
      dtype = DType::boolean;
      break;
    case ResultRule::select:
      dtype = promote(operands.subspan(1));
      break;
  }
  return TensorType{dtype, std::move(*shape)};
}

Result<TensorType> infer_matmul(Operands operands, Attrs&) {
  TensorType a = operands[0], b = operands[1];
  if (a.rank() == 0 || b.rank() == 0) return invalid("matmul needs operands of rank 1 or more");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a.shape.insert(a.shape.begin(), 1);
  if (column) b.shape.push_back(1);
  const int64_t inner_a = a.shape.back(), inner_b = b.shape[b.shape.size() - 2];
  if (inner_a != inner_b)
    return invalid("the inner extents differ: " + std::to_string(inner_a) + " and " +
                   std::to_string(inner_b));
  const int64_t rows = a.shape[a.shape.size() - 2], columns = b.shape.back();
  a.shape.resize(a.shape.size() - 2);
  b.shape.resize(b.shape.size() - 2);
  const TensorType batches[] = {a, b};
  auto shape = broadcast_shapes(batches);
  if (!shape) return shape.status().with_context("batch dimensions");
  if (!row) shape->push_back(rows);
  if (!column) shape->push_back(columns);
  return TensorType{arithmetic(promote(operands)), std::move(*shape)};
}

Result<TensorType> infer_reduction(Operands operands, Attrs& attrs) {
  const TensorType& x = operands[0];
  if (Status status = normalize_axes(attrs, x.rank(), all_axes(x.rank())); !status.ok()) return status;
  attrs.keepdims = attrs.keepdims.value_or(false);
  TensorType result{arithmetic(x.dtype), {}};
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = std::binary_search(attrs.axis->begin(), attrs.axis->end(), i);
    if (!reduced)
      result.shape.push_back(x.shape[i]);
    else if (*attrs.keepdims)
      result.shape.push_back(1);
  }
  return result;
}

Result<TensorType> infer_reduce_mean(Operands operands, Attrs& attrs) {
  auto type = infer_reduction(operands, attrs);
  if (type) type->dtype = floating(type->dtype);
  return type;
}

Result<TensorType> infer_softmax(Operands operands, Attrs& attrs) {
  const TensorType& x = operands[0];
  if (Status status = normalize_axes(attrs, x.rank(), {-1}); !status.ok()) return status;
  return TensorType{floating(x.dtype), x.shape};
}

Result<TensorType> infer_norm(Operands operands, Attrs& attrs) {
  const TensorType& x = operands[0];
  if (Status status = normalize_axes(attrs, x.rank(), {-1}); !status.ok()) return status;
  attrs.eps = attrs.eps.value_or(1e-5);
  if (!(*attrs.eps >= 0)) return invalid("eps is " + print_number(*attrs.eps) + ", not a number from 0 up");
  Ints normalized;
  for (int64_t axis : *attrs.axis) normalized.push_back(x.shape[axis]);
  const char* names[] = {"operand", "weight", "bias"};
  for (size_t i = 1; i < operands.size(); ++i)
    if (operands[i].shape != normalized)
      return invalid(std::string("the ") + names[i] + " has shape " + print_ints(operands[i].shape) +
                     "; the normalised dimensions are " + print_ints(normalized));
  return TensorType{floating(promote(operands)), x.shape};
}

Result<TensorType> infer_rms_norm(Operands operands, Attrs& attrs) { return infer_norm(operands, attrs); }
Result<TensorType> infer_layer_norm(Operands operands, Attrs& attrs) { return infer_norm(operands, attrs); }

Result<TensorType> infer_reshape(Operands operands, Attrs& attrs) {
  const TensorType& x = operands[0];
  Ints& shape = *attrs.shape;
  const auto free = std::find(shape.begin(), shape.end(), -1);
  const Ints asked = shape;
  if (std::count(shape.begin(), shape.end(), -1) > 1)
    return invalid("only one extent of " + print_ints(asked) + " can be -1, which is what is left");
  if (free != shape.end()) {
    *free = 1;
    if (Status status = check_shape(shape); !status.ok()) return status;
    const int64_t rest = TensorType{x.dtype, shape}.element_count();
    if (rest == 0)
      return invalid("the extent -1 in " + print_ints(asked) + " is not determined: another one is 0");
    *free = x.element_count() / rest;
  }
  if (Status status = check_shape(shape); !status.ok()) return status;
  TensorType result{x.dtype, shape};
  if (result.element_count() != x.element_count())
    return invalid("shape " + print_ints(asked) + " does not hold the " + std::to_string(x.element_count()) +
                   " elements of the operand");
  return result;
}

Result<TensorType> infer_transpose(Operands operands, Attrs& attrs) {
  const TensorType& x = operands[0];
  if (!attrs.perm) {
    attrs.perm = all_axes(x.rank());
    std::reverse(attrs.perm->begin(), attrs.perm->end());
  }
  for (int64_t& axis : *attrs.perm) {
    auto normal = normal_axis(axis, x.rank());
    if (!normal) return normal.status();
    axis = *normal;
  }
  Ints sorted = *attrs.perm;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != all_axes(x.rank()))
    return invalid("perm " + print_ints(*attrs.perm) + " does not name each of the " +
                   std::to_string(x.rank()) + " dimensions once");
  TensorType result{x.dtype, {}};
  for (int64_t axis : *attrs.perm) result.shape.push_back(x.shape[axis]);
  return result;
}

Result<TensorType> infer_slice(Operands operands, Attrs& attrs) {
  const TensorType& x = operands[0];
  const size_t rank = x.shape.size();
  if (!attrs.start) attrs.start = Ints(rank, 0);
  if (!attrs.stop) attrs.stop = x.shape;
  if (!attrs.step) attrs.step = Ints(rank, 1);
  for (const Ints* list : {&*attrs.start, &*attrs.stop, &*attrs.step})
    if (list->size() != rank)
      return invalid("slice needs one number per dimension: " + print_ints(*list) + " for rank " +
                     std::to_string(rank));
  TensorType result{x.dtype, {}};
  for (size_t i = 0; i < rank; ++i) {
    int64_t& start = (*attrs.start)[i];
    int64_t& stop = (*attrs.stop)[i];
    const int64_t step = (*attrs.step)[i], extent = x.shape[i];
    if (step < 1) return invalid("step " + std::to_string(step) + " is below 1");
    start = std::clamp<int64_t>(start < 0 ? start + extent : start, 0, extent);
    stop = std::clamp<int64_t>(stop < 0 ? stop + extent : stop, start, extent);
    result.shape.push_back((stop - start) / step + ((stop - start) % step != 0));
  }
  return result;
}

Result<TensorType> infer_concat(Operands operands, Attrs& attrs) {
  const TensorType& first = operands[0];
  if (Status status = normalize_axes(attrs, first.rank(), {0}); !status.ok()) return status;
  if (attrs.axis->size() != 1) return invalid("concat takes one axis");
  const int64_t axis = attrs.axis->front();
  TensorType result{promote(operands), first.shape};
  for (const TensorType& operand : operands.subspan(1)) {
    Ints expected = first.shape, shape = operand.shape;
    if (shape.size() != expected.size()) return invalid("the operands of concat differ in rank");
    result.shape[axis] += shape[axis];
    shape[axis] = expected[axis];
    if (shape != expected)
      return invalid("the operands of concat differ outside axis " + std::to_string(axis));
  }
  return result;
}

Result<TensorType> infer_broadcast(Operands operands, Attrs& attrs) {
  if (Status status = check_shape(*attrs.shape); !status.ok()) return status;
  const TensorType both[] = {operands[0], {operands[0].dtype, *attrs.shape}};
  auto shape = broadcast_shapes(both);
  if (!shape) return shape.status();
  if (*shape != *attrs.shape) return invalid("the operand does not broadcast to " + print_ints(*attrs.shape));
  return TensorType{operands[0].dtype, *shape};
}

Result<TensorType> infer_cast(Operands operands, Attrs& attrs) {
  return TensorType{*attrs.dtype, operands[0].shape};
}

Result<TensorType> infer_iota(Operands, Attrs& attrs) {
  if (Status status = check_shape(*attrs.shape); !status.ok()) return status;
  const int rank = static_cast<int>(attrs.shape->size());
  if (Status status = normalize_axes(attrs, rank, {0}); !status.ok()) return status;
  if (attrs.axis->size() != 1) return invalid("iota takes one axis");
  attrs.dtype = attrs.dtype.value_or(DType::i32);
  return TensorType{*attrs.dtype, *attrs.shape};
}

Result<TensorType> dispatch(const OpInfo& op, Operands operands, Attrs& attrs) {
  if (op.kind == OpKind::elementwise) return infer_elementwise(op, operands);
  if (op.kind == OpKind::reduction) return infer_reduction(operands, attrs);
  switch (op.code) {
#define QUERN_OPERATOR(id, ...) \
  case OpCode::id:              \
    return infer_##id(operands, attrs);
#include "core/lang/ops.def"
    default:
      fatal(__FILE__, __LINE__, "inputs and constants have no type rule");
  }
}

Status check_attrs(const OpInfo& op, const Attrs& attrs) {
  Status status;
  for_each_attr(attrs, [&](const AttrInfo& info, const auto& value) {
    if (value && !(op.attrs & attr_bit(info.id)))
      status = invalid(std::string("there is no attribute \"") + info.name + "\"");
    if (!value && (op.required_attrs & attr_bit(info.id)))
      status = invalid(std::string("the attribute \"") + info.name + "\" is missing (" + info.doc + ")");
  });
  return status;
}

}  // namespace

Result<TensorType> infer_type(OpCode code, Operands operands, Attrs& attrs) {
  const OpInfo& op = op_info(code);
  const int arity = static_cast<int>(operands.size());
  Status status = check_attrs(op, attrs);
  if (status.ok() && (arity < op.min_arity || arity > op.max_arity)) {
    std::string takes = std::to_string(op.min_arity);
    if (op.max_arity != op.min_arity) takes += " to " + std::to_string(op.max_arity);
    status = invalid("takes " + takes + " operands, not " + std::to_string(arity));
  }
  if (status.ok()) {
    auto type = dispatch(op, operands, attrs);
    status = type ? check_shape(type->shape) : type.status();
    if (status.ok()) return type;
  }
  std::string types;
  for (const TensorType& operand : operands)
    types += (types.empty() ? "" : ", ") + (operand.literal ? std::string("number") : print_type(operand));
  return status.with_context(std::string(op.text) + "(" + types + ")");
}

}  // namespace quern
