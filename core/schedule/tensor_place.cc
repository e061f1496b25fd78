#include "core/schedule/tensor_place.h"

#include "core/mugraph/tensor_view.h"

namespace quern {

namespace {

void see_through(TensorPlace& place, const TensorView& view, const TensorPlace& source) {
  place.arg = source.arg;
  place.offset = view_offset(view, source.strides);
  place.strides = view_strides(view, source.strides);
}

}  // namespace

TensorPlace read_place(const MuGraph& mugraph, int32_t tensor,
                       const std::function<const TensorPlace&(int32_t)>& lies) {
  const MuTensor& own = mugraph.tensors[static_cast<size_t>(tensor)];
  TensorPlace place = lies(tensor);
  place.numbered = own.numbered;
  place.axis = own.pieced.axis;
  for (size_t p = 0; p < own.pieced.pieces.size(); ++p) {
    TensorPlace& piece = place.pieces.emplace_back(lies(tensor));
    piece.name += "_" + std::to_string(p);
    piece.shape[static_cast<size_t>(own.pieced.axis)] = own.pieced.extents[p];
    see_through(piece, own.pieced.pieces[p], lies(own.pieced.pieces[p].source));
  }
  if (own.view.source >= 0) see_through(place, own.view, lies(own.view.source));
  if (!place.pieces.empty()) place.strides = place.pieces[0].strides;
  return place;
}

TensorPlace dense_place(const MuGraph& mugraph, int32_t tensor) {
  TensorPlace dense;
  return read_place(mugraph, tensor, [&](int32_t number) -> const TensorPlace& {
    const TensorType& type = mugraph.tensors[static_cast<size_t>(number)].type;
    dense.dtype = type.dtype;
    dense.shape = type.shape;
    dense.strides = dense_strides(type.shape);
    return dense;
  });
}

}  // namespace quern
