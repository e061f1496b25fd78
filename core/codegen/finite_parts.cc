#include "core/codegen/finite_parts.h"

#include <numeric>

#include "core/base/integers.h"
#include "core/graph/builder.h"

namespace quern {

namespace {

constexpr int64_t kPart = 8192;  // elements at most

// The last dimensions: [..., parts, extent of a part, whole].
Ints cut(const Ints& shape) {
  Ints out = shape;
  int64_t whole = 1;
  while (!out.empty() && whole * out.back() <= kPart) {
    whole *= out.back();
    out.pop_back();
  }
  const int64_t next = out.empty() ? 1 : out.back();
  int64_t extent = kPart / whole;
  while (next % extent != 0) --extent;
  if (!out.empty()) out.pop_back();
  out.insert(out.end(), {next / extent, extent, whole});
  return out;
}

int64_t product(const Ints& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t finite_parts(const Ints& shape) {
  Ints parts = cut(shape);
  parts.resize(parts.size() - 2);
  return product(parts);
}

size_t dims_before_parts(const Ints& shape) { return cut(shape).size() - 3; }

Result<Graph> finite_graph(DType dtype, const Ints& shape, const Ints& strides) {
  GraphBuilder builder("finite");
  Status status;
  auto take = [&](Result<ValueId> made) {
    if (!made && status.ok()) status = made.status();
    return made ? *made : ValueId{-1};
  };
  auto op = [&](OpCode code, std::initializer_list<ValueId> operands, Attrs attrs = {}) {
    return take(builder.add_op(code, std::span(operands.begin(), operands.size()), std::move(attrs)));
  };
  Attrs as_parts, f32, last, flat;
  as_parts.shape = cut(shape);
  f32.dtype = DType::f32;
  const auto rank = static_cast<int64_t>(as_parts.shape->size());
  last.axis = Ints{rank - 2, rank - 1};
  last.keepdims = false;
  flat.shape = Ints{finite_parts(shape)};
  const ValueId x = take(builder.add_input("x", dtype, shape, strides)),
                numbers = op(OpCode::cast, {op(OpCode::reshape, {x}, as_parts)}, f32),
                zeros = op(OpCode::mul, {numbers, take(builder.add_constant(0, false))});
  const ValueId y = op(OpCode::reshape, {op(OpCode::reduce_sum, {zeros}, last)}, flat);
  if (status.ok()) status = builder.add_output(y);
  if (!status.ok()) return status;
  return builder.finish();
}

Result<MuGraph> finite_mugraph(DType dtype, const Ints& shape, int threads) {
  constexpr int64_t kElements = 16;  // of a thread in an iteration, which are on their way at the same time
  const int64_t parts = finite_parts(shape), elements = product(shape) / parts;
  MuGraph out;
  out.name = "finite";
  out.tensors = {{"x", {dtype, {parts, elements}}}, {"y", {DType::f32, {parts}}}};
  out.inputs = {0};
  out.outputs = {1};
  MuKernel kernel;
  kernel.custom = true;
  kernel.grid[0] = parts;
  kernel.trip_count = divide_up(elements, threads * kElements);
  kernel.threads = threads;
  constexpr AxisMap kRows = {0, -1, -1, -1};
  Attrs columns;
  columns.axis = Ints{1};
  columns.keepdims = false;
  kernel.ops = {BlockOp(BlockOp::Load{{0, kRows, 1}}),
                BlockOp::constant(0),
                BlockOp(BlockOp::Compute{OpCode::mul}, {0, 1}),
                BlockOp(BlockOp::Compute{OpCode::reduce_sum, columns}, {2}),
                BlockOp(BlockOp::Accumulate{Combine::sum}, {3}),
                BlockOp(BlockOp::Store{{1, kRows}}, {4})};
  out.kernels = {kernel};
  if (Status status = validate(out); !status.ok()) return status;
  return out;
}

}  // namespace quern
