#include "core/schedule/tensor_place.h"

#include "core/mugraph/tensor_view.h"

namespace quern {

namespace {

void see_through(TensorPlace& place, const TensorView& view, const TensorPlace& source) {
  place.arg = source.arg;
  place.offset = view_offset(view, source.strides);
  place.strides = view_strides(view, source.strides);
  for (const TensorView::Dim& dim : view.dims) place.repeats.push_back(dim.repeats);
}

}  // namespace

Ints TensorPlace::extents_in_memory() const {
  Ints extents = shape;
  for (size_t d = 0; d < extents.size(); ++d) extents[d] /= repeats_of(d);
  return extents;
}

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
  auto dense_one = [&](int32_t number) {
    const TensorType& type = mugraph.tensors[static_cast<size_t>(number)].type;
    TensorPlace place;
    place.dtype = type.dtype;
    place.shape = type.shape;
    place.strides = dense_strides(type.shape);
    return place;
  };
  // The model asks for every schedule: what is nothing but dense is not copied.
  const MuTensor& own = mugraph.tensors[static_cast<size_t>(tensor)];
  if (own.view.source < 0 && own.pieced.pieces.empty()) {
    TensorPlace place = dense_one(tensor);
    place.numbered = own.numbered;
    return place;
  }
  TensorPlace dense;
  return read_place(mugraph, tensor,
                    [&](int32_t number) -> const TensorPlace& { return dense = dense_one(number); });
}

}  // namespace quern
