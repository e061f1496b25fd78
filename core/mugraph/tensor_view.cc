#include "core/mugraph/tensor_view.h"

#include <algorithm>
#include <optional>

namespace quern {

namespace {

using Dims = std::vector<TensorView::Dim>;

// All of a tensor that is in memory.
TensorView whole(int32_t tensor, int rank) {
  TensorView view{tensor, {}, Ints(static_cast<size_t>(rank))};
  for (int d = 0; d < rank; ++d) view.dims.push_back({d, 1});
  return view;
}

// Where the source's strides are known, elements from one coordinate to the next, else the same if both are
// of one dimension.
class Strides {
 public:
  explicit Strides(std::optional<Ints> known) : known_(std::move(known)) {}

  // Whether `outer` counts rows of `extent` elements of `inner`.
  bool continues(const TensorView::Dim& outer, const TensorView::Dim& inner, int64_t extent) const {
    if (known_) return elements(outer) == elements(inner) * extent;
    return outer.source == inner.source && outer.stride == inner.stride * extent;
  }

 private:
  int64_t elements(const TensorView::Dim& dim) const {
    return (*known_)[static_cast<size_t>(dim.source)] * dim.stride;
  }

  std::optional<Ints> known_;
};

// Dimensions of extent 1 are nowhere. Those of the operand that a dimension of the result joins must follow
// each other.
std::optional<Dims> reshaped(const Dims& dims, const Ints& from, const Ints& to, const Strides& strides) {
  Dims out(to.size());
  size_t i = from.size(), j = to.size();
  while (true) {
    while (i > 0 && from[i - 1] == 1) --i;
    while (j > 0 && to[j - 1] == 1) --j;
    if (i == 0 || j == 0) break;
    // The innermost dimensions, as many of each as have the same elements.
    const TensorView::Dim inner = dims[--i];
    int64_t there = from[i], here = 1;
    if (inner.repeats > 1 || inner.source < 0) {  // stays, or repeats what is in front of it
      const int64_t extent = to[--j];
      if (extent == there) {
        out[j] = inner;
        continue;
      }
      while (i > 0 && from[i - 1] == 1) --i;
      if (inner.source >= 0 || i == 0 || dims[i - 1].repeats > 1 || extent != there * from[i - 1])
        return std::nullopt;
      out[j] = dims[--i];
      out[j].repeats = there;
      continue;
    }
    while (true) {
      if (here < there || here == 1) {
        if (j == 0) return std::nullopt;
        --j;
        if (to[j] > 1) out[j] = {inner.source, inner.stride * here};
        here *= to[j];
      } else if (there < here) {
        while (i > 0 && from[i - 1] == 1) --i;
        if (i == 0 || dims[i - 1].source < 0 || dims[i - 1].repeats > 1 ||
            !strides.continues(dims[i - 1], inner, there))
          return std::nullopt;
        there *= from[--i];
      } else {
        break;
      }
    }
  }
  return out;
}

// Of a tensor of this shape, which is repeated along dimensions that it has not, or of which it has one index.
Dims repeated(const Dims& dims, const Ints& from, const Ints& to) {
  Dims out(to.size());
  for (size_t d = 0; d < from.size(); ++d) {
    const size_t at = d + to.size() - from.size();
    if (from[d] == to[at]) out[at] = dims[d];
  }
  return out;
}

Dims permuted(const Dims& dims, const Ints& perm) {
  Dims out;
  for (int64_t d : perm) out.push_back(dims[static_cast<size_t>(d)]);
  return out;
}

constexpr size_t kMostPieces = 4;      // every access looks which one it is in
constexpr int64_t kAlignedPiece = 16;  // bytes

// In memory that block graphs do not find dense, perhaps.
Strides strides_of(const MuGraph& mugraph, const TensorView& view) {
  const bool given =
      std::find(mugraph.inputs.begin(), mugraph.inputs.end(), view.source) != mugraph.inputs.end();
  const MuTensor& source = mugraph.tensors[static_cast<size_t>(view.source)];
  return Strides(given && !source.dense ? std::nullopt : std::optional(dense_strides(source.type.shape)));
}

int64_t product(Ints::const_iterator first, Ints::const_iterator last) {
  int64_t out = 1;
  for (; first != last; ++first) out *= *first;
  return out;
}

// The dimension of a reshape's result that dimension `axis` of its operand stays; -1 if it is split or joined
// with others.
int kept_dim(const Ints& from, int axis, const Ints& to) {
  const int64_t before = product(from.begin(), from.begin() + axis), extent = from[static_cast<size_t>(axis)];
  for (auto at = to.begin(); at != to.end(); ++at)
    if (*at == extent && product(to.begin(), at) == before) return static_cast<int>(at - to.begin());
  return -1;
}

// Each piece of the operand reshaped by itself, where the pieces' dimension stays one.
PiecedView reshaped_pieces(const MuGraph& mugraph, const PiecedView& operand, const Ints& from,
                           const Ints& to) {
  PiecedView out = operand;
  out.axis = kept_dim(from, operand.axis, to);
  if (out.axis < 0) return {};
  for (size_t p = 0; p < out.pieces.size(); ++p) {
    Ints own_from = from, own_to = to;
    own_from[static_cast<size_t>(operand.axis)] = own_to[static_cast<size_t>(out.axis)] = operand.extents[p];
    const auto dims =
        reshaped(operand.pieces[p].dims, own_from, own_to, strides_of(mugraph, operand.pieces[p]));
    if (!dims) return {};
    out.pieces[p].dims = *dims;
  }
  return out;
}

bool has_memory(const MuTensor& tensor) {
  return !tensor.type.literal && tensor.numbered < 0 && tensor.pieced.axis < 0 &&
         tensor.type.element_count() > 0 && !repeats(tensor.view, tensor.type.shape);
}

}  // namespace

bool moves_only(OpCode code) {
  return code == OpCode::transpose || code == OpCode::slice || code == OpCode::reshape ||
         code == OpCode::broadcast;
}

bool repeats(const TensorView& view, const Ints& tile) {
  for (size_t d = 0; d < view.dims.size(); ++d)
    if (tile[d] > 1 && (view.dims[d].repeats > 1 || view.dims[d].source < 0)) return true;
  return false;
}

TensorView view_of(const MuGraph& mugraph, const MuKernel& kernel) {
  if (!moves_only(kernel.code)) return {};
  const MuTensor &operand = mugraph.tensors[static_cast<size_t>(kernel.operands[0])],
                 &result = mugraph.tensors[static_cast<size_t>(kernel.result)];
  const Ints &from = operand.type.shape, &to = result.type.shape;
  if (operand.type.literal || operand.numbered >= 0 || operand.type.dtype != result.type.dtype ||
      result.type.element_count() == 0)
    return {};
  TensorView view = operand.view.source >= 0 ? operand.view : whole(kernel.operands[0], operand.type.rank());
  if (kernel.code == OpCode::broadcast) {
    if (operand.pieced.axis >= 0) return {};
    view.dims = repeated(view.dims, from, to);
  } else if (kernel.code == OpCode::transpose) {
    if (operand.pieced.axis >= 0) return {};
    view.dims = permuted(view.dims, *kernel.attrs.perm);
  } else if (kernel.code == OpCode::slice) {
    for (size_t d = 0; d < from.size(); ++d) {
      if ((*kernel.attrs.step)[d] != 1) return {};
      if (view.dims[d].source < 0) continue;
      if (view.dims[d].repeats > 1 && from[d] != to[d]) return {};
      // Off 16 bytes it would be read element by element, time and again.
      const bool inner = view.dims[d].source + 1 == static_cast<int>(view.first.size());
      const int64_t elements = (*kernel.attrs.start)[d] * view.dims[d].stride;
      if (inner && elements * static_cast<int64_t>(dtype_size(result.type.dtype)) % 16 != 0) return {};
      view.first[static_cast<size_t>(view.dims[d].source)] += elements;
      if (to[d] == 1) view.dims[d] = {};
    }
  } else {
    if (operand.pieced.axis >= 0 && reshaped_pieces(mugraph, operand.pieced, from, to).axis >= 0) return {};
    auto dims = reshaped(view.dims, from, to, strides_of(mugraph, view));
    if (!dims) return {};
    view.dims = std::move(*dims);
  }
  return view;
}

PiecedView pieced_view_of(const MuGraph& mugraph, const MuKernel& kernel) {
  const MuTensor& result = mugraph.tensors[static_cast<size_t>(kernel.result)];
  PiecedView out;
  if (kernel.code == OpCode::transpose || kernel.code == OpCode::reshape) {
    const MuTensor& operand = mugraph.tensors[static_cast<size_t>(kernel.operands[0])];
    if (operand.pieced.axis < 0 || operand.type.dtype != result.type.dtype) return {};
    out = operand.pieced;
    if (kernel.code == OpCode::reshape)
      return reshaped_pieces(mugraph, out, operand.type.shape, result.type.shape);
    const Ints& perm = *kernel.attrs.perm;
    out.axis = static_cast<int>(std::find(perm.begin(), perm.end(), operand.pieced.axis) - perm.begin());
    for (TensorView& piece : out.pieces) piece.dims = permuted(piece.dims, perm);
    return out;
  }
  if (kernel.code != OpCode::concat || kernel.operands.size() > kMostPieces) return {};
  out.axis = static_cast<int>((*kernel.attrs.axis)[0]);
  for (int32_t id : kernel.operands) {
    const MuTensor& operand = mugraph.tensors[static_cast<size_t>(id)];
    if (!has_memory(operand) || operand.type.dtype != result.type.dtype) return {};
    const int64_t extent = operand.type.shape[static_cast<size_t>(out.axis)];
    // Rows that begin off 16 bytes would be read element by element, time and again.
    if (out.axis + 1 == result.type.rank() &&
        extent * static_cast<int64_t>(dtype_size(result.type.dtype)) % kAlignedPiece != 0)
      return {};
    out.pieces.push_back(operand.view.source >= 0 ? operand.view : whole(id, operand.type.rank()));
    out.extents.push_back(extent);
  }
  return out;
}

Ints view_strides(const TensorView& view, const Ints& source_strides) {
  Ints strides;
  for (const TensorView::Dim& dim : view.dims)
    strides.push_back(dim.source < 0 ? 0 : source_strides[static_cast<size_t>(dim.source)] * dim.stride);
  return strides;
}

int64_t view_offset(const TensorView& view, const Ints& source_strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < view.first.size(); ++d) offset += view.first[d] * source_strides[d];
  return offset;
}

Ints strides_if_dense(const MuGraph& mugraph, const MuTensor& tensor) {
  if (tensor.view.source < 0) return dense_strides(tensor.type.shape);
  return view_strides(tensor.view,
                      dense_strides(mugraph.tensors[static_cast<size_t>(tensor.view.source)].type.shape));
}

}  // namespace quern
